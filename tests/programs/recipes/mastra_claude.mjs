// Mastra's wrapper of the TypeScript SDK: an answer with usage, and a stream.

// /// script
// [tool.program]
// npm = ["@mastra/claude@0.3.0", "@mastra/core", "@anthropic-ai/claude-agent-sdk@0.3.326"]
// ///
import assert from "node:assert";

import { ClaudeSDKAgent } from "@mastra/claude";

const agent = new ClaudeSDKAgent({
  id: "plums",
  name: "Plums",
  description: "It counts plums.",
  sdkOptions: { pathToClaudeCodeExecutable: process.env.CLAUDE_CODE_EXECUTABLE, cwd: process.cwd() },
});

const answer = await agent.generate("say two plums");
assert.strictEqual(answer.text, "two plums");
assert.ok(answer.usage.outputTokens > 0);

let text = "";
for await (const part of (await agent.stream("say three plums")).textStream) text += part;
assert.strictEqual(text, "three plums");
