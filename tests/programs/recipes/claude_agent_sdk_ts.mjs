// The TypeScript SDK: a turn, a question, a tool in the process.

// /// script
// [tool.program]
// npm = ["@anthropic-ai/claude-agent-sdk@0.3.327", "zod@4"]
// ///
import assert from "node:assert";
import { existsSync } from "node:fs";

import { createSdkMcpServer, query, tool } from "@anthropic-ai/claude-agent-sdk";
import { z } from "zod";

const asked = [];
const weigh = tool("weigh", "Weigh a fruit", { fruit: z.string() }, async ({ fruit }) => ({
  content: [{ type: "text", text: `the ${fruit} weighs 42 g` }],
}));
const options = {
  pathToClaudeCodeExecutable: process.env.CLAUDE_CODE_EXECUTABLE,
  mcpServers: { scale: createSdkMcpServer({ name: "scale", tools: [weigh] }) },
  allowedTools: ["mcp__scale__weigh"],
  canUseTool: async (name, input) => {
    asked.push(name);
    return { behavior: "allow", updatedInput: input };
  },
};

async function ask(prompt) {
  let result;
  async function* prompts() {
    yield { type: "user", message: { role: "user", content: prompt }, parent_tool_use_id: null };
  }
  for await (const message of query({ prompt: prompts(), options })) if (message.type === "result") result = message.result;
  return result;
}

assert.strictEqual(await ask("say two plums"), "two plums");
const path = `${process.cwd()}/plums.txt`;
await ask(`call Write ${JSON.stringify({ file_path: path, content: "two" })}\nsay done`);
assert.ok(existsSync(path));
assert.deepStrictEqual(asked, ["Write"]);
assert.ok((await ask('call mcp__scale__weigh {"fruit": "plum"}\nshow')).includes("the plum weighs 42 g"));
