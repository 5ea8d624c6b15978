// The first agent of the Agent Client Protocol, which editors still start.

// /// script
// [tool.program]
// npm = ["@zed-industries/claude-code-acp@0.16.2"]
// ///
import assert from "node:assert";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const agent = spawn("claude-code-acp", { stdio: ["pipe", "pipe", "inherit"] });
const waiting = new Map();
let said = "";

createInterface({ input: agent.stdout }).on("line", (line) => {
  const message = JSON.parse(line);
  const update = message.params?.update;
  if (update?.sessionUpdate === "agent_message_chunk") said += update.content.text;
  else if (waiting.has(message.id)) waiting.get(message.id)(message);
});

function request(method, params) {
  const id = waiting.size + 1;
  agent.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
  return new Promise((resolve) => waiting.set(id, resolve));
}

await request("initialize", { protocolVersion: 1, clientCapabilities: {} });
const { result } = await request("session/new", { cwd: process.cwd(), mcpServers: [] });
const prompt = [{ type: "text", text: "say two plums" }];
const answer = await request("session/prompt", { sessionId: result.sessionId, prompt });
assert.strictEqual(answer.result?.stopReason, "end_turn", JSON.stringify(answer));
assert.strictEqual(said, "two plums");
agent.kill();
process.exit(0);
