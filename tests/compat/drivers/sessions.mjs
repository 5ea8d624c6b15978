// The functions that read transcripts from disk, with no engine.

import { sdk, task, tell } from "./telling.mjs";

for (const session of await sdk.listSessions({ dir: task.directory })) {
  tell("session", session);
  for (const entry of await sdk.getSessionMessages(session.sessionId, { dir: task.directory })) tell("entry", entry);
}
