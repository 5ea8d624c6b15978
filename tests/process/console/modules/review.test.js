import assert from "node:assert/strict";
import test from "node:test";

import { changedFiles, sumTimeline, timelineOf, toDocument } from "../console/review.js";
import { Conversation } from "../console/session.js";

const user = (content, more = {}) => ({ type: "user", message: { role: "user", content }, parent_tool_use_id: null, ...more });
const assistant = (id, block, usage) => ({ type: "assistant", uuid: `${id}-${block.type}`, message: { id, model: "m", content: [block], usage }, parent_tool_use_id: null });
const call = (id, name, input = {}) => ({ type: "tool_use", id, name, input });
const returned = (id, content, details) => user([{ type: "tool_result", tool_use_id: id, content }], { tool_use_result: details });
const result = { type: "result", subtype: "success", is_error: false, duration_ms: 9000 };

function reduce(...timed) {
  const conversation = new Conversation();
  timed.forEach(([time, line], index) => conversation.apply(line, index + 1, time));
  return conversation.items;
}

test("a timeline has model calls, questions and tools with their times and tokens", () => {
  const usage = { input_tokens: 10, cache_read_input_tokens: 5, output_tokens: 2 };
  const asked = { type: "control_request", request_id: "r", request: { subtype: "can_use_tool", tool_name: "Bash", tool_use_id: "t1" } };
  const decided = { type: "gateway", subtype: "question_decided", request_id: "r", behavior: "allow", decided_by: "me" };
  const items = reduce(
    [100, user("go", { uuid: "p" })],
    [102, assistant("m1", { type: "text", text: "I look." }, usage)],
    [102, assistant("m1", call("t1", "Bash"), usage)],
    [102, asked],
    [105, decided],
    [107, returned("t1", "ok")],
    [109, assistant("m2", { type: "text", text: "Done." }, usage)],
    [109, result],
  );

  const timeline = timelineOf(items, items.at(-1));

  assert.deepEqual(timeline.spans.map(({ kind, from, until }) => [kind, from, until]), [["model", 100, 102], ["question", 102, 105], ["tool", 105, 107], ["model", 107, 109]]);
  assert.deepEqual(timeline.spans[0].usage, usage);
  assert.deepEqual(sumTimeline(timeline), { model: 4, tool: 2, agent: 0, question: 3, rest: 0 });
});

test("a turn without times has no timeline, and earlier turns are not part of it", () => {
  const items = reduce([100, user("a")], [101, result], [200, user("b")], [201, assistant("m", { type: "text", text: "B" })], [202, result]);

  assert.equal(timelineOf(items, items.at(-1)).from, 200);
  assert.equal(timelineOf([{ kind: "prompt" }, { kind: "result" }], {}), null);
});

test("changes of a file are listed together, failed ones are not", () => {
  const patch = [{ oldStart: 1, newStart: 1, lines: ["-a", "+b"] }];
  const failed = user([{ type: "tool_result", tool_use_id: "t3", content: "no", is_error: true }]);
  const items = reduce(
    [1, assistant("m1", call("t1", "Edit", { file_path: "/x/a.py", old_string: "a", new_string: "b" }))],
    [2, returned("t1", "ok", { filePath: "/x/a.py", structuredPatch: patch })],
    [3, assistant("m2", call("t2", "Write", { file_path: "/x/a.py", content: "b\nc\n" }))],
    [4, returned("t2", "ok", { filePath: "/x/a.py", originalFile: "b\n" })],
    [5, assistant("m3", call("t3", "Write", { file_path: "/x/b.py", content: "" }))],
    [6, failed],
  );

  const files = changedFiles(items);

  assert.deepEqual(files.map(({ path, hunks, items: calls }) => [path, hunks.length, calls.length]), [["/x/a.py", 2, 2]]);
});

test("changes of results that no tool returns are left out, and no call is compared twice", () => {
  const patch = [{ oldStart: 1, newStart: 1, lines: ["-a", "+b"] }];
  const odd = [{ structuredPatch: [null] }, { structuredPatch: [{ lines: [1] }] }, { structuredPatch: [{ lines: 5 }] }, { filePath: 5, structuredPatch: patch }];
  const items = reduce(
    ...odd.flatMap((details, index) => [
      [1, assistant(`m${index}`, call(`t${index}`, "Edit", { file_path: "/x/a.py", old_string: "a", new_string: "b" }))],
      [2, returned(`t${index}`, "ok", details)],
    ]),
  );

  const files = changedFiles(items);

  assert.deepEqual(files.map(({ path, hunks, items: calls }) => [path, hunks.length, calls.length]), [["/x/a.py", 1, 1]]);
  assert.equal(changedFiles(items)[0].hunks[0], files[0].hunks[0]);
});

test("a document quotes prompts, and its fences are longer than those inside", () => {
  const items = reduce([1, user("one\ntwo", { uuid: "p" })], [2, assistant("m", call("t", "Bash", { command: "x" }))], [3, returned("t", "a ```` b")]);

  const text = toDocument("Title", items);

  assert.match(text, /^# Title\n\n## one\n\n> one\n> two\n/);
  assert.match(text, /\n`````\na ```` b\n`````\n/);
});
