// The entry `/core`: a query with a tool of the host, and what reads and changes its transcript.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { options, task, tell, tellError } from "./telling.mjs";

const installed = createRequire(`${task.packages}/`).resolve("@anthropic-ai/claude-agent-sdk/core");
const core = await import(pathToFileURL(installed));
tell("exports", Object.keys(core));
try {
  const secret = core.tool("secret", "Tells the secret", {}, async () => ({
    content: [{ type: "text", text: "forty-two" }],
  }));
  const mcpServers = { host: core.createSdkMcpServer({ name: "host", tools: [secret] }) };
  let sessionId;
  for await (const message of core.query({ prompt: task.prompt, options: { ...options(), ...task.options, mcpServers } })) {
    tell("message", message);
    sessionId = message.session_id ?? sessionId;
  }
  const where = { dir: task.directory };
  await core.renameSession(sessionId, "Our talk", where);
  await core.tagSession(sessionId, "blue", where);
  tell("info", await core.getSessionInfo(sessionId, where));
  await core.archiveSession(sessionId, where);
  tell("archived", await core.getSessionInfo(sessionId, where));
  await core.unarchiveSession(sessionId, where);
  tell("unarchived", await core.getSessionInfo(sessionId, where));
  await core.deleteSession(sessionId, where);
  tell("info", await core.getSessionInfo(sessionId, where));
} catch (flaw) {
  tellError(flaw);
}
