// The agent of the Agent Client Protocol on the TypeScript SDK, as an editor starts it.

// /// script
// [tool.program]
// npm = ["@agentclientprotocol/claude-agent-acp@0.99.1"]
// ///
import assert from "node:assert";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const agent = spawn("claude-agent-acp", { stdio: ["pipe", "pipe", "inherit"] });
const waiting = new Map();
const updates = [];
let asked = 0;

function send(message) {
  agent.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
}

function request(method, params) {
  const id = waiting.size + 1;
  send({ id, method, params });
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

createInterface({ input: agent.stdout }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.method === "session/update") updates.push(message.params.update);
  else if (message.method === "session/request_permission") {
    asked += 1;
    const { optionId } = message.params.options.find(({ kind }) => kind === "allow_once");
    send({ id: message.id, result: { outcome: { outcome: "selected", optionId } } });
  } else if (message.method) send({ id: message.id, error: { code: -32601, message: "no such method" } });
  else if (message.error) waiting.get(message.id).reject(new Error(JSON.stringify(message.error)));
  else waiting.get(message.id).resolve(message.result);
});

await request("initialize", { protocolVersion: 1, clientCapabilities: {} });
const { sessionId } = await request("session/new", { cwd: process.cwd(), mcpServers: [] });
const ask = (text) => request("session/prompt", { sessionId, prompt: [{ type: "text", text }] });

assert.strictEqual((await ask("say two plums")).stopReason, "end_turn");
const said = updates.filter(({ sessionUpdate }) => sessionUpdate === "agent_message_chunk");
assert.strictEqual(said.map(({ content }) => content.text).join(""), "two plums");

await ask(`call Write ${JSON.stringify({ file_path: `${process.cwd()}/plums.txt`, content: "two" })}\nsay done`);
assert.strictEqual(asked, 1);
assert.strictEqual(readFileSync("plums.txt", "utf8"), "two");
agent.kill();
process.exit(0);
