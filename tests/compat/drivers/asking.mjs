// A hook or `canUseTool`, asked about many calls at once. All wait until all have come; then the last answers first.

import { options, query, task, tell, tellError, user } from "./telling.mjs";

function gate(expected) {
  const waiting = [];
  return async (name) => {
    tell("asked", name);
    const mine = new Promise((resolve) => waiting.push(resolve));
    if (waiting.length === expected) waiting.at(-1)();
    await mine;
    tell("answered", name);
    waiting.pop();
    waiting.at(-1)?.();
  };
}

function chosen(kind) {
  const passed = gate(task.calls);
  const allow = { hookSpecificOutput: { hookEventName: "PreToolUse", permissionDecision: "allow" } };
  const hook = async (input, id) => (await passed(id), allow);
  if (kind === "hook") return { hooks: { PreToolUse: [{ matcher: "Read", hooks: [hook] }] } };
  return { canUseTool: async (name, input) => (await passed(input.file_path), { behavior: "allow", updatedInput: input }) };
}

async function* one(content) {
  yield user(content);
}

try {
  for (const [form, kind] of task.cells) {
    const prompt = form === "string" ? "go" : one(form === "list" ? [{ type: "text", text: "go" }] : "go");
    for await (const message of await query({ prompt, options: { ...options(), ...chosen(kind) } })) {
      if (message.type !== "result") continue;
      tell("message", message);
      if (task.gateway) break;
    }
  }
} catch (flaw) {
  tellError(flaw);
}
