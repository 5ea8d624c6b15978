import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";

import { Conversation, SessionConnection } from "../console/session.js";

const STREAMS = process.env.STREAMS;

const user = (text, uuid, more = {}) => ({ type: "user", uuid, message: { role: "user", content: text }, ...more });
const assistant = (id, block, more = {}) => ({ type: "assistant", uuid: `u-${id}-${block.type}`, message: { id, model: "m", content: [block] }, parent_tool_use_id: null, ...more });
const toolUse = (id, name, input = {}) => ({ type: "tool_use", id, name, input });
const toolResult = (id, content, more = {}) => ({ type: "user", message: { role: "user", content: [{ type: "tool_result", tool_use_id: id, content, ...more.block }] }, parent_tool_use_id: null, tool_use_result: more.details, ...more.line });
const event = (value, parent = null) => ({ type: "stream_event", event: value, parent_tool_use_id: parent });
const state = (value) => ({ type: "system", subtype: "session_state_changed", state: value });
const lifecycle = (uuid, value) => ({ type: "command_lifecycle", command_uuid: uuid, state: value });
const result = (more = {}) => ({ type: "result", subtype: "success", is_error: false, total_cost_usd: 0.5, duration_ms: 10, ...more });

function reduce(...lines) {
  const conversation = new Conversation();
  lines.forEach((line, index) => conversation.apply(line, index + 1, 1000 + index));
  return conversation;
}

const kinds = (conversation) => conversation.items.map((item) => item.kind);

test("a turn becomes a prompt, an answer and a result", () => {
  const made = reduce(user("hi", "p1"), state("running"), assistant("m1", { type: "text", text: "Hello" }), result(), state("idle"));

  assert.deepEqual(kinds(made), ["prompt", "text", "result"]);
  assert.equal(made.items[1].text, "Hello");
  assert.equal(made.costUsd, 0.5);
  assert.equal(made.model, "m");
  assert.equal(made.state, "idle");
  assert.equal(made.find("p1"), made.items[0]);
});

test("a result has the cost of its turn, the conversation that of all", () => {
  const usage = (usd) => ({ model_usage_since_last_result: { a: { costUSD: usd }, b: { costUSD: 1 } } });
  const made = reduce(result({ total_cost_usd: 3, ...usage(2) }), result({ total_cost_usd: 4.5, ...usage(0.5) }));

  assert.deepEqual(made.items.map((item) => item.costUsd), [3, 1.5]);
  assert.equal(made.costUsd, 4.5);
});

test("a line that comes twice after a reconnect is taken once", () => {
  const made = reduce(user("hi", "p1"));
  made.apply(user("hi", "p1"), 1, 1);

  assert.equal(made.items.length, 1);
});

test("streamed text grows and is replaced by the whole message", () => {
  const made = reduce(
    user("hi", "p1"),
    event({ type: "message_start", message: { id: "m1" } }),
    event({ type: "content_block_start", index: 0, content_block: { type: "thinking", thinking: "" } }),
    event({ type: "content_block_delta", index: 0, delta: { type: "thinking_delta", thinking: "Hm" } }),
    event({ type: "content_block_start", index: 1, content_block: { type: "text", text: "" } }),
    event({ type: "content_block_delta", index: 1, delta: { type: "text_delta", text: "Hel" } }),
  );
  assert.deepEqual(made.items.slice(1).map(({ kind, text, isStreaming }) => [kind, text, isStreaming]), [["thinking", "Hm", true], ["text", "Hel", true]]);
  const [, thinking, text] = made.items;

  made.apply(assistant("m1", { type: "thinking", thinking: "Hm." }), 10);
  made.apply(assistant("m1", { type: "text", text: "Hello" }), 11);

  assert.deepEqual(made.items.slice(1), [thinking, text]);
  assert.deepEqual([thinking.text, text.text, text.isStreaming, text.number], ["Hm.", "Hello", false, 11]);
});

test("stream events that come after the whole message change nothing", () => {
  const events = [
    event({ type: "message_start", message: { id: "m1" } }),
    event({ type: "content_block_start", index: 0, content_block: { type: "text", text: "" } }),
    event({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Hello" } }),
  ];
  const whole = assistant("m1", { type: "text", text: "Hello" });

  for (const lines of [[whole, ...events], [events[0], whole, ...events.slice(1)], [...events, whole]])
    assert.deepEqual(reduce(...lines, result()).items.map((item) => [item.kind, item.text, item.isStreaming ?? false]), [["text", "Hello", false], ["result", undefined, false]]);
});

test("a message that is asked for again replaces its streamed parts", () => {
  const start = (id) => [
    event({ type: "message_start", message: { id } }),
    event({ type: "content_block_start", index: 0, content_block: { type: "text", text: id } }),
  ];
  const made = reduce(...start("m1"), ...start("m2"));

  assert.deepEqual(made.items.map((item) => item.text), ["m2"]);
});

test("what was written before an interrupt stays", () => {
  const made = reduce(
    event({ type: "message_start", message: { id: "m1" } }),
    event({ type: "content_block_start", index: 0, content_block: { type: "text", text: "Half" } }),
    user("[Request interrupted by user]", undefined),
    result({ subtype: "error_during_execution", is_error: true, terminal_reason: "aborted_streaming" }),
  );

  assert.deepEqual(kinds(made), ["text", "mark", "result"]);
  assert.deepEqual([made.items[0].isStreaming, made.items[0].isCut], [false, true]);
});

test("the input of a call is streamed, then whole, then joined with its result", () => {
  const made = reduce(
    event({ type: "message_start", message: { id: "m1" } }),
    event({ type: "content_block_start", index: 0, content_block: toolUse("t1", "Bash") }),
    event({ type: "content_block_delta", index: 0, delta: { type: "input_json_delta", partial_json: '{"comm' } }),
  );
  const [call] = made.items;
  assert.equal(call.partialInput, '{"comm');

  made.apply(assistant("m1", toolUse("t1", "Bash", { command: "ls" })), 10);
  assert.deepEqual([made.items.length, call.input, call.partialInput, call.result], [1, { command: "ls" }, undefined, null]);

  const before = call.rev;
  made.apply(toolResult("t1", "a.txt", { details: { stdout: "a.txt" } }), 11, 7);
  assert.deepEqual(call.result, { content: "a.txt", isError: false, details: { stdout: "a.txt" }, time: 7 });
  assert.ok(call.rev > before);
});

test("messages of a subagent are inside of its call", () => {
  const made = reduce(
    assistant("m1", toolUse("t1", "Task", { description: "Look" })),
    { type: "system", subtype: "task_started", task_id: "a1", tool_use_id: "t1", description: "Look", subagent_type: "Explore" },
    user("Look", "p2", { parent_tool_use_id: "t1" }),
    assistant("m2", toolUse("t2", "Bash", { command: "ls" }), { parent_tool_use_id: "t1" }),
    { type: "system", subtype: "task_progress", task_id: "a1", description: "Running ls", usage: { total_tokens: 5, tool_uses: 1, duration_ms: 9 } },
    toolResult("t2", "a.txt", { line: { parent_tool_use_id: "t1" } }),
    { type: "system", subtype: "task_updated", task_id: "a1", patch: { status: "completed" } },
  );

  const [call] = made.items;
  assert.equal(made.items.length, 1);
  assert.deepEqual(call.children.map((item) => item.kind), ["prompt", "tool"]);
  assert.equal(call.children[1].result.content, "a.txt");
  assert.deepEqual([call.task.status, call.task.usage.tool_uses, call.task.activity], ["completed", 1, "Running ls"]);
  assert.deepEqual(made.rootTasks(), [call.task]);
});

test("a task that a subagent started is below its task", () => {
  const made = reduce(
    assistant("m1", toolUse("t1", "Task")),
    { type: "system", subtype: "task_started", task_id: "a1", tool_use_id: "t1", description: "Outer" },
    assistant("m2", toolUse("t2", "Bash", { run_in_background: true }), { parent_tool_use_id: "t1" }),
    { type: "system", subtype: "task_started", task_id: "b1", tool_use_id: "t2", description: "Inner" },
  );

  assert.deepEqual(made.rootTasks().map((task) => task.id), ["a1"]);
  assert.equal(made.tasks.get("b1").parentId, "a1");
});

test("prompts of a running turn wait in the queue until they start", () => {
  const made = reduce(user("one", "p1"), state("running"), lifecycle("p1", "started"), user("two", "p2"), user("three", "p3"), lifecycle("p2", "queued"));
  assert.deepEqual(made.queue.map((prompt) => prompt.text), ["two", "three"]);
  assert.deepEqual(kinds(made), ["prompt"]);

  made.apply(lifecycle("p3", "cancelled"), 10);
  made.apply(lifecycle("p2", "started"), 11);

  assert.deepEqual(made.queue, []);
  assert.deepEqual(made.items.map((item) => item.text), ["one", "two"]);
});

test("a queued prompt without lifecycle starts with the turn that names it", () => {
  const made = reduce(user("one", "p1"), state("running"), user("two", "p2"), { type: "system", subtype: "init", model: "m", user_message_uuids: ["p2"] });

  assert.deepEqual([made.queue.length, made.items.map((item) => item.text)], [0, ["one", "two"]]);
});

test("a prompt of this page is shown before the server has it, and forgotten if it is refused", () => {
  const made = new Conversation();
  made.expectPrompt("p1", "hello");
  assert.equal(made.items[0].state, "pending");
  made.apply(user("hello", "p1"), 1, 5);
  assert.deepEqual([made.items.length, made.items[0].state, made.items[0].number], [1, "sent", 1]);

  made.expectPrompt("p2", "again");
  made.forgetPrompt("p2");
  assert.deepEqual(made.items.map((item) => item.text), ["hello"]);
});

test("todos come from TodoWrite and from the task tools", () => {
  const todos = [{ content: "A", status: "pending", activeForm: "Doing A" }];
  assert.deepEqual(reduce(assistant("m1", toolUse("t1", "TodoWrite", { todos }))).todos, todos);

  const made = reduce(
    assistant("m1", toolUse("t1", "TaskCreate", { subject: "B", activeForm: "Doing B" })),
    toolResult("t1", "ok", { details: { task: { id: "1", subject: "B" } } }),
    assistant("m2", toolUse("t2", "TaskUpdate", { taskId: "1", status: "completed" })),
    toolResult("t2", "ok", { details: { success: true, taskId: "1" } }),
  );
  assert.deepEqual(made.todos, [{ content: "B", status: "completed", activeForm: "Doing B" }]);
});

test("an open request is closed by a decision or when it is withdrawn", () => {
  const request = (id) => ({ type: "control_request", request_id: id, request: { subtype: "can_use_tool", tool_name: "Bash", tool_use_id: "t1" } });
  const made = reduce(assistant("m1", toolUse("t1", "Bash")), request("r1"), request("r2"), { type: "control_request", request_id: "h", request: { subtype: "hook_callback" } });
  assert.deepEqual([...made.requests.keys()], ["r1", "r2"]);

  made.apply({ type: "gateway", subtype: "question_decided", request_id: "r1", decided_by: "ann", behavior: "allow" }, 20);
  made.apply({ type: "control_cancel_request", request_id: "r2" }, 21);

  assert.equal(made.requests.size, 0);
  assert.deepEqual([made.items[0].decision.by, made.items[0].decision.behavior], ["ann", "allow"]);
});

test("errors, retries, compaction and unknown lines are shown", () => {
  const made = reduce(
    { type: "system", subtype: "api_retry", attempt: 1, max_retries: 3, error_status: 529, error: "overloaded" },
    { type: "system", subtype: "compact_boundary", compact_metadata: { trigger: "auto" } },
    assistant("m1", { type: "text", text: "API Error" }, { error: "server_error" }),
    result({ subtype: "error_max_turns", is_error: true, errors: ["too many turns"] }),
    { type: "brand_new", subtype: "thing" },
  );

  assert.deepEqual(kinds(made), ["notice", "mark", "notice", "result", "unknown"]);
  assert.deepEqual([made.items[2].level, made.items[3].errors], ["error", ["too many turns"]]);
});

/* A session of several turns with calls, a subagent, a compaction and a queue. */
function longSession() {
  const lines = [];
  for (let turn = 0; turn < 20; turn++) {
    lines.push(user(`prompt ${turn}`, `p${turn}`), state("running"), lifecycle(`p${turn}`, "started"));
    lines.push(assistant(`m${turn}`, toolUse(`t${turn}`, turn % 3 ? "Bash" : "Task", { n: turn })));
    if (turn % 3 === 0) {
      lines.push({ type: "system", subtype: "task_started", task_id: `a${turn}`, tool_use_id: `t${turn}`, description: "d" });
      lines.push(assistant(`s${turn}`, toolUse(`st${turn}`, "Read"), { parent_tool_use_id: `t${turn}`, uuid: `su${turn}` }));
      lines.push(toolResult(`st${turn}`, "file", { line: { parent_tool_use_id: `t${turn}` } }));
      lines.push({ type: "system", subtype: "task_notification", task_id: `a${turn}`, status: "completed", summary: "s" });
    }
    if (turn % 4 === 0) {
      lines.push({ type: "control_request", request_id: `r${turn}`, request: { subtype: "can_use_tool", tool_use_id: `t${turn}` } });
      if (turn < 16) lines.push({ type: "gateway", subtype: "question_decided", request_id: `r${turn}`, decided_by: "ann", behavior: "allow" });
    }
    if (turn === 9) lines.push({ type: "system", subtype: "compact_boundary" });
    lines.push(toolResult(`t${turn}`, `out ${turn}`), assistant(`n${turn}`, { type: "text", text: `answer ${turn}` }), result({ total_cost_usd: turn }), state("idle"));
  }
  return lines.map((line, index) => [index + 1, 1000 + index, line]);
}

const comparable = (conversation) => JSON.parse(JSON.stringify(conversation.items, (key, value) => (["key", "rev", "parent"].includes(key) ? undefined : value)));

test("a conversation that is loaded backwards is the same, wherever it is cut", () => {
  const lines = longSession();
  const whole = new Conversation();
  for (const [number, time, line] of lines) whole.apply(line, number, time);

  for (const size of [1, 2, 3, 7, 50, 1000]) {
    const made = new Conversation();
    let end = lines.length;
    const newest = lines.slice(Math.max(0, end - size), end);
    for (const [number, time, line] of newest) made.apply(line, number, time);
    end -= newest.length;
    while (end > 0) {
      const page = lines.slice(Math.max(0, end - size), end);
      made.prepend(page);
      end -= page.length;
    }
    assert.deepEqual(comparable(made), comparable(whole), `pages of ${size} lines`);
    assert.equal(new Set(made.items.map((item) => item.key)).size, made.items.length);
    assert.deepEqual([made.first, made.last, made.costUsd], [1, lines.length, 19]);
    assert.deepEqual([...made.requests.keys()], ["r16"]);
    assert.deepEqual(made.rootTasks().map((task) => task.status).sort(), whole.rootTasks().map((task) => task.status).sort());
  }
});

test("every recorded session is understood", () => {
  for (const name of readdirSync(STREAMS).filter((each) => each.endsWith(".ndjson"))) {
    const made = new Conversation();
    const lines = readFileSync(`${STREAMS}/${name}`, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
    lines.forEach((line, index) => made.apply(line, index + 1, index));

    assert.deepEqual(made.items.filter((item) => item.kind === "unknown").map((item) => item.name), [], name);
    assert.deepEqual(made.items.filter((item) => item.isStreaming), [], name);
  }
});

/* The connection, with a server and a clock of our own. */

class Socket {
  constructor(url, protocols) {
    Object.assign(this, { url, protocols, isClosed: false });
  }
  close() {
    this.isClosed = true;
  }
  say(number, line) {
    this.onmessage({ data: `${number ?? ""}\t${JSON.stringify(line)}\n` });
  }
}

function connect(get) {
  const sockets = [];
  const scheduled = [];
  const statuses = [];
  const api = { get, now: () => 5000, socketUrl: (path, query) => `${path}?${new URLSearchParams(query)}`, socketProtocols: () => ["parley"] };
  const connection = new SessionConnection({
    api,
    id: "s1",
    onStatus: (each) => statuses.push(each.status),
    openSocket: (url, protocols) => (sockets.push(new Socket(url, protocols)), sockets.at(-1)),
    schedule: (action) => scheduled.push(action),
    clock: () => 0,
  });
  const flush = () => scheduled.splice(0).forEach((action) => action());
  return { connection, sockets, statuses, flush };
}

const page = (lines) => ({ lines, first: lines[0]?.[0] ?? 0, last: lines.at(-1)?.[0] ?? 0 });

test("a connection continues after the last stored line, and after the last it has seen", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const { connection, sockets, statuses, flush } = connect(async () => page([[7, 1, user("hi", "p1")]]));
  await connection.start();
  assert.match(sockets[0].url, /\/sessions\/s1\/ws\?after=7&numbered=true&partial=true/);

  sockets[0].onopen();
  sockets[0].say(8, assistant("m1", { type: "text", text: "Hello" }));
  flush();
  assert.deepEqual(kinds(connection.conversation), ["prompt", "text"]);

  await sockets[0].onclose({ reason: "" });
  context.mock.timers.tick(2000);
  assert.match(sockets[1].url, /after=8/);
  sockets[1].onopen();
  assert.deepEqual(statuses, ["live", "lost", "live"]);
  connection.stop();
  assert.ok(sockets[1].isClosed);
});

test("a session that was deleted ends the connection", async () => {
  let isDeleted = false;
  const { connection, sockets, statuses } = connect(async () => {
    if (isDeleted) throw Object.assign(new Error("no session"), { status: 404 });
    return page([]);
  });
  await connection.start();
  sockets[0].onopen();
  isDeleted = true;
  await sockets[0].onclose({ reason: "" });

  assert.deepEqual(statuses, ["live", "lost", "ended"]);
});

test("older pages are asked for until the message is there", async () => {
  const asked = [];
  const { connection } = connect(async (path, query) => {
    asked.push(query.before);
    const before = query.before ?? 31;
    const from = Math.max(1, before - 10);
    return page(Array.from({ length: before - from }, (_, index) => [from + index, 1, user(`n ${from + index}`, `p${from + index}`)]));
  });
  await connection.start();
  const item = await connection.loadUntil("p3");

  assert.equal(item.text, "n 3");
  assert.deepEqual(asked, [undefined, 21, 11]);
  assert.equal(await connection.loadUntil("nowhere"), null);
  assert.equal(connection.isComplete, true);
  connection.stop();
});
