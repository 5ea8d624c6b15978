import assert from "node:assert/strict";
import { test } from "node:test";

import { describe, matches, Schema, WireTimeline } from "../console/wire.js";

const record = (number, time, direction, line) => [number, time, direction, 10, line];

test("a request and its answer are paired in both directions", () => {
  const timeline = new WireTimeline();
  timeline.add([
    record(1, 10, "in", { type: "control_request", request_id: "a", request: { subtype: "initialize" } }),
    record(2, 10.5, "out", { type: "control_request", request_id: "a", request: { subtype: "can_use_tool" } }),
    record(3, 11, "out", { type: "control_response", response: { subtype: "success", request_id: "a" } }),
  ]);
  const [asked, question, answer] = timeline.rows;
  assert.equal(asked.latencyMs, 1000);
  assert.equal(asked.answer, answer);
  assert.equal(answer.request, asked);
  assert.deepEqual(timeline.open, [question]);
  timeline.add([record(4, 12, "out", { type: "control_cancel_request", request_id: "a" })]);
  assert.deepEqual(timeline.open, []);
});

test("a prompt waits for its result", () => {
  const timeline = new WireTimeline();
  timeline.add([record(1, 1, "in", { type: "user", uuid: "p", message: { content: "hi" } })]);
  assert.equal(timeline.open.length, 1);
  timeline.add([record(2, 3, "out", { type: "result", subtype: "success", user_message_uuids: ["p"] })]);
  assert.equal(timeline.open.length, 0);
  assert.equal(timeline.rows[1].latencyMs, 2000);
});

test("a result without names answers the prompts that are not queued", () => {
  const timeline = new WireTimeline();
  const prompt = (number) => record(number, number, "in", { type: "user", message: { content: "hi" } });
  timeline.add([prompt(1), prompt(2), prompt(3), record(4, 4, "out", { type: "result", queued_turn_count: 1 })]);
  assert.deepEqual(timeline.open.map((row) => row.number), [3]);
  assert.equal(timeline.until, 4);
});

test("requests of JSON-RPC are paired", () => {
  const timeline = new WireTimeline();
  timeline.add([record(1, 1, "in", { jsonrpc: "2.0", id: 1, method: "run" }), record(2, 2, "out", { jsonrpc: "2.0", id: 1, result: {} })]);
  assert.deepEqual(timeline.open, []);
  assert.equal(timeline.rows[0].type, "jsonrpc");
  assert.equal(timeline.rows[1].latencyMs, 1000);
});

test("records that came before are not added again", () => {
  const timeline = new WireTimeline();
  timeline.add([record(1, 1, "in", { type: "keep_alive" }), record(2, 1, "in", { type: "keep_alive" })]);
  timeline.add([record(2, 1, "in", { type: "keep_alive" }), record(3, 1, "in", { type: "keep_alive" })]);
  assert.deepEqual(timeline.rows.map((row) => row.number), [1, 2, 3]);
});

test("lines that are no objects are shown", () => {
  for (const line of [null, 1, "text", [], undefined]) assert.equal(describe(line).type, "not an object");
  assert.deepEqual(describe("oops", "out"), { type: "not JSON", detail: "oops" });
  assert.deepEqual(describe("oops", "err"), { type: "stderr", detail: "oops" });
  assert.deepEqual(describe({ type: "assistant", message: { content: [{ type: "text" }, { type: "tool_use" }, { type: "text" }] } }), { type: "assistant", detail: "text, tool_use" });
});

const schema = new Schema({
  anyOf: ["Result", "Request", "Response", "Open"].map((name) => ({ $ref: `#/$defs/${name}` })),
  $defs: {
    Result: { type: "object", required: ["type"], properties: { type: { enum: ["result"] }, usage: { type: "object" }, list: { type: "array", items: { $ref: "#/$defs/Item" } } } },
    Request: { type: "object", required: ["type"], properties: { type: { enum: ["request"] }, body: { anyOf: [{ $ref: "#/$defs/A" }, { $ref: "#/$defs/B" }] } } },
    Item: { type: "object", properties: { name: { type: "string" } } },
    A: { type: "object", properties: { kind: { enum: ["a"] }, one: {} } },
    B: { type: "object", properties: { kind: { enum: ["b"] }, two: {} } },
    Ask: { type: "object", properties: { subtype: { enum: ["ask"] } }, "x-answer": { $ref: "#/$defs/Item" } },
    Response: { type: "object", required: ["type"], properties: { type: { enum: ["control_response"] }, response: {} } },
    Open: { type: "object", required: ["type"], properties: { type: { enum: ["open"] }, part: { anyOf: [{ $ref: "#/$defs/A" }, { type: "object", properties: { kind: { type: "string", not: { enum: ["a"] } } } }] } } },
  },
});

test("fields without a name in the schema are found", () => {
  assert.deepEqual(schema.unknownFields({ type: "result", usage: { anything: 1 }, list: [{ name: "x" }, { name: "y", extra: 1 }] }), ["list[1].extra"]);
  assert.deepEqual(schema.unknownFields({ type: "request", body: { kind: "b", two: 1, three: 2 } }), ["body.three"]);
  assert.deepEqual(schema.unknownFields({ type: "request", body: { kind: "c" } }), ["body.type"]);
  assert.deepEqual(schema.unknownFields({ type: "hologram" }), ["type"]);
  assert.deepEqual(schema.unknownFields({ type: "result", hasOwnProperty: 1, __proto__: null }), ["hasOwnProperty"]);
});

test("a kind that the schema does not have is named by its tag", () => {
  assert.deepEqual(schema.unknownFields({ type: "open", part: { kind: "z", more: 1 } }), ["part.kind"]);
  assert.deepEqual(schema.unknownFields({ type: "open", part: { kind: "a", more: 1 } }), ["part.more"]);
});

test("the body of an answer is checked by its request", () => {
  const line = { type: "control_response", response: { response: { name: "x", mood: 1 } } };
  assert.deepEqual(schema.unknownFields(line, { request: { subtype: "ask" } }), ["response.response.mood"]);
  assert.deepEqual(schema.unknownFields(line), []);
});

test("a filter finds text, directions, types and unknown fields", () => {
  const timeline = new WireTimeline();
  timeline.add([record(1, 1, "in", { type: "result", list: [{ name: "Needle" }] }), record(2, 1, "out", { type: "hologram" })]);
  const [first, second] = timeline.rows;
  const none = { text: "", direction: "", type: "", unknownOnly: false };
  const found = (filter) => [first, second].filter((row) => matches(row, { ...none, ...filter }, schema)).map((row) => row.number);
  assert.deepEqual(found({}), [1, 2]);
  assert.deepEqual(found({ text: "needle" }), [1]);
  assert.deepEqual(found({ direction: "out" }), [2]);
  assert.deepEqual(found({ type: "result" }), [1]);
  assert.deepEqual(found({ unknownOnly: true }), [2]);
});
