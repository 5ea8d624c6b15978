// `query()`: one prompt, a text or a list of content blocks, to the end.

import { options, sdk, task, tell, tellError, user } from "./telling.mjs";

async function* onePrompt(content) {
  yield user(content);
}

try {
  const prompt = typeof task.prompt === "string" ? task.prompt : onePrompt(task.prompt);
  for await (const message of sdk.query({ prompt, options: options() })) tell("message", message);
} catch (flaw) {
  tellError(flaw);
}
