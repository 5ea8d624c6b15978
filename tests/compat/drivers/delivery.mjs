// `mcpServersDelivery`: servers of all three kinds, with secrets that must not be on the engine's command line.

import { createServer } from "node:http";
import { options, sdk, task, tell, tellError } from "./telling.mjs";

const say = (text) => ({ content: [{ type: "text", text }] });
const schema = { name: "say", description: "Says what it was given", inputSchema: { type: "object" } };

/** A server behind a URL, whose tool tells the header that it was called with. */
const remote = createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    const { id, method } = request.method === "POST" ? JSON.parse(Buffer.concat(parts)) : {};
    const replies = {
      initialize: { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: { name: "web", version: "1" } },
      "tools/list": { tools: [schema] },
      "tools/call": say(request.headers["x-secret"]),
      ping: {},
    };
    if (request.method !== "POST") return response.writeHead(405).end();
    if (id === undefined) return response.writeHead(202).end();
    const unknown = { error: { code: -32601, message: `no method ${method}` } };
    const reply = replies[method] ? { result: replies[method] } : unknown;
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ jsonrpc: "2.0", id, ...reply }));
  });
});
await new Promise((resolve) => remote.listen(0, "127.0.0.1", resolve));

const own = sdk.tool("say", "Says what the host knows", {}, async () => say("of the host"));
const warned = (warning) => tell("warning", { name: warning.name, code: warning.code });
process.on("warning", warned);

/** The prompt, after every server has connected or failed. A turn waits for them too, but not for ever. */
async function* prompts() {
  const isPending = ({ status }) => status === "pending";
  while ((await query.mcpServerStatus()).some(isPending)) await new Promise((resolve) => setTimeout(resolve, 20));
  yield { type: "user", message: { role: "user", content: task.prompt }, parent_tool_use_id: null, session_id: "" };
}

let query;
try {
  query = sdk.query({
    prompt: prompts(),
    options: {
      ...options(),
      ...task.options,
      mcpServers: {
        ...task.servers,
        web: { type: "http", url: `http://127.0.0.1:${remote.address().port}/mcp`, headers: { "X-Secret": task.secret } },
        host: sdk.createSdkMcpServer({ name: "host", tools: [own] }),
      },
    },
  });
  tell("described", await query.initializationResult());
  for await (const message of query) tell("message", message);
} catch (flaw) {
  tellError(flaw);
}
await new Promise((resolve) => setImmediate(resolve)); // warnings are emitted in the next tick
process.off("warning", warned);
remote.closeAllConnections();
remote.close();
