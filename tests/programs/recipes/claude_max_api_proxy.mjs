// A server of chat completions on the command line: whole answers and streams.

// /// script
// [tool.program]
// npm = ["claude-max-api-proxy@1.0.0"]
// ///
import assert from "node:assert";
import { spawn } from "node:child_process";
import { createServer } from "node:net";

const port = await new Promise((resolve) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});
const proxy = spawn("claude-max-api", [String(port)], { stdio: ["ignore", "inherit", "inherit"] });
const url = `http://127.0.0.1:${port}/v1/chat/completions`;
const messages = [{ role: "user", content: "say two plums" }];
const ask = (stream) =>
  fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "claude-sonnet-4", messages, stream }),
  });

let answer;
while (!answer) answer = await ask(false).catch(() => new Promise((resolve) => setTimeout(resolve, 50)));
assert.strictEqual((await answer.json()).choices[0].message.content, "two plums");

const chunks = (await (await ask(true)).text()).split("\n").filter((line) => line.startsWith("data: {"));
const text = chunks.map((line) => JSON.parse(line.slice(6)).choices[0]?.delta?.content ?? "").join("");
assert.strictEqual(text, "two plums");
proxy.kill();
process.exit(0);
