// A provider for Vercel's AI SDK, on the TypeScript SDK: an answer, a stream, an object, a tool of the engine.

// /// script
// [tool.program]
// npm = ["ai-sdk-provider-claude-code@4.1.0", "ai@7", "zod@4"]
// ///
import assert from "node:assert";
import { existsSync } from "node:fs";

import { generateText, streamText } from "ai";
import { createClaudeCode } from "ai-sdk-provider-claude-code";

const claude = createClaudeCode({
  defaultSettings: { pathToClaudeCodeExecutable: process.env.CLAUDE_CODE_EXECUTABLE, permissionMode: "acceptEdits" },
});
const model = claude("sonnet");

assert.strictEqual((await generateText({ model, prompt: "Count.\nsay two plums" })).text, "two plums");

let text = "";
for await (const part of streamText({ model, prompt: "Count.\nsay three plums" }).textStream) text += part;
assert.strictEqual(text, "three plums");

const path = `${process.cwd()}/plums.txt`;
const prompt = `Write.\ncall Write ${JSON.stringify({ file_path: path, content: "two" })}\nsay done`;
assert.strictEqual((await generateText({ model, prompt })).text, "done");
assert.ok(existsSync(path));
