// The official TypeScript SDK with a fake engine for each scenario: what came of each.

import { options, query, task, tell, tellError, user } from "./telling.mjs";

async function* onePrompt() {
  yield user("Clean the project.");
}

async function hook(given) {
  tell("hook", [given.hook_event_name, given.tool_name ?? null]);
  return {};
}

async function canUseTool(name, given) {
  tell("asked", [name, given]);
  if (JSON.stringify(given).includes("/")) return { behavior: "deny", message: "no" };
  return { behavior: "allow", updatedInput: given };
}

for (const [name, engine] of task.scenarios) {
  tell("scenario", name);
  const hooks = { UserPromptSubmit: [{ hooks: [hook] }], PreToolUse: [{ hooks: [hook] }] };
  const chosen = { ...options(), pathToClaudeCodeExecutable: engine, canUseTool, hooks };
  try {
    for await (const message of await query({ prompt: onePrompt(), options: chosen })) {
      if (message.type === "assistant") {
        for (const block of message.message.content) if (block.type === "text") tell("text", block.text.slice(0, 40));
      } else if (message.type === "result") {
        tell("result", [message.subtype, message.result ?? null, message.errors ?? null]);
      }
    }
  } catch (flaw) {
    tellError(flaw);
  }
}
