// Sessions in a store of the client's own, with a subagent; then the functions that read them from there.

import { rmSync } from "node:fs";
import { options, sdk, task, tell, tellError } from "./telling.mjs";

const sessionStore = new sdk.InMemorySessionStore();
let sessionId;

async function ask(prompt, more) {
  try {
    const wanted = { ...options(), cwd: task.directory, sessionStore, ...more };
    for await (const message of sdk.query({ prompt, options: wanted })) {
      tell("message", message);
      sessionId = message.session_id ?? sessionId;
    }
  } catch (flaw) {
    tellError(flaw);
  }
}

await ask("one", {});
const where = { dir: task.directory, sessionStore };
for (const session of await sdk.listSessions(where)) tell("session", session);
tell("info", await sdk.getSessionInfo(sessionId, where));
for (const agent of await sdk.listSubagents(sessionId, where)) {
  tell("agent", agent);
  for (const entry of await sdk.getSubagentMessages(sessionId, agent, where)) tell("said", entry);
}
rmSync(task.config, { recursive: true });
await ask("two", { resume: sessionId });
