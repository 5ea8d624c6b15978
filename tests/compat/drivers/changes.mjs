// The functions that read and change transcripts on disk, with no engine.

import { sdk, task, tell } from "./telling.mjs";

const where = { dir: task.directory };
for (const [name, ...given] of task.changes) tell("changed", await sdk[name](...given, where));
for (const session of await sdk.listSessions(where)) {
  tell("session", session);
  tell("info", await sdk.getSessionInfo(session.sessionId, where));
  for (const agent of await sdk.listSubagents(session.sessionId, where)) {
    tell("agent", agent);
    for (const entry of await sdk.getSubagentMessages(session.sessionId, agent, where)) tell("said", entry);
  }
}
