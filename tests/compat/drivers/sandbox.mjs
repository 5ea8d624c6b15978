// A session with the `sandbox` option whose questions are answered as the task says.

import { options, query, task, tell, tellError, user } from "./telling.mjs";

async function* oneMessage() {
  yield user("go");
  await ended;
}

let end;
const ended = new Promise((resolve) => (end = resolve));

async function canUseTool(name, input) {
  tell("asked", [name, input]);
  if ((task.answers[name] ?? "deny") === "allow") return { behavior: "allow", updatedInput: input };
  return { behavior: "deny", message: "denied by the test" };
}

try {
  for await (const message of await query({ prompt: oneMessage(), options: { ...options(), ...task.more, canUseTool } })) {
    tell("message", message);
    if (message.type === "result") end();
  }
} catch (flaw) {
  tellError(flaw);
}
