// `query()`: one prompt, a text or a list of content blocks, to the end.

import { options, query, task, tell, tellError, user } from "./telling.mjs";

async function* onePrompt(content) {
  yield user(content);
}

try {
  const prompt = typeof task.prompt === "string" ? task.prompt : onePrompt(task.prompt);
  for await (const message of await query({ prompt, options: options() })) {
    tell("message", message);
    if (task.gateway && message.type === "result") break; // a socket stays open after its last prompt
  }
} catch (flaw) {
  tellError(flaw);
}
