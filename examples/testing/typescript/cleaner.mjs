// An application: an agent that cleans a project. It may delete the directory `build`, and nothing else.
// @ts-check

import { query } from "@anthropic-ai/claude-agent-sdk";

/** What the agent may do. @type {import("@anthropic-ai/claude-agent-sdk").CanUseTool} */
export async function decide(tool, input) {
  if (tool === "Bash" && input.command === "rm -r build") return { behavior: "allow", updatedInput: input };
  return { behavior: "deny", message: "only the build directory may be deleted" };
}

async function* onePrompt(text) {
  yield { type: "user", message: { role: "user", content: text }, parent_tool_use_id: null, session_id: "" };
}

/** Clean the project: what the agent answers, and all messages. */
export async function clean(pathToClaudeCodeExecutable, cwd) {
  const messages = [];
  let answer = "no answer";
  try {
    const options = { pathToClaudeCodeExecutable, cwd, canUseTool: decide };
    for await (const message of query({ prompt: onePrompt("Clean the project."), options })) {
      messages.push(message);
      if (message.type === "result") answer = message.subtype === "success" ? message.result : message.subtype;
    }
  } catch (error) {
    answer = `failed: ${error.message}`;
  }
  return { answer, messages };
}
