// What the TypeScript drivers share: the task that comes in, and what the SDK hands out, as JSON lines on stdout.

import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

export let task = JSON.parse(process.argv[2]);

/** The next task of a process that runs several (server.mjs). */
export function begin(next) {
  task = next;
}

// The SDK is installed elsewhere, so its name alone would not be found from here.
const installed = createRequire(`${task.packages}/`).resolve("@anthropic-ai/claude-agent-sdk");
export const sdk = await import(pathToFileURL(installed));

export function tell(what, value) {
  process.stdout.write(JSON.stringify([what, value ?? null]) + "\n");
}

export function tellError(flaw) {
  tell("raised", { class: flaw.constructor.name, text: flaw.message });
}

export function options() {
  return {
    pathToClaudeCodeExecutable: task.engine,
    includePartialMessages: task.partial,
    stderr: (text) => tell("stderr", text),
    ...(task.spawn_ourselves ? { spawnClaudeCodeProcess: spawned } : {}),
  };
}

/** What the SDK does by itself, told on the way. */
function spawned({ command, args, cwd, env, signal }) {
  tell("spawn", { command, args, cwd, env });
  const child = spawn(command, args, { cwd, env, signal, stdio: ["pipe", "pipe", "inherit"] });
  child.on("exit", (code) => tell("exit", code));
  return child;
}

/** The SDK's query: over a pipe or DirectConnect the package itself, over other connections its browser entry. */
export async function query({ prompt, options: { canUseTool, hooks, mcpServers, ...rest }, ...session }) {
  const callbacks = { canUseTool, hooks, mcpServers };
  if (!task.gateway) return sdk.query({ prompt, options: { ...rest, ...callbacks } });
  const { connect } = await import("./network.mjs");
  return connect(prompt, callbacks, session);
}

export function user(content) {
  return { type: "user", message: { role: "user", content }, parent_tool_use_id: null };
}
