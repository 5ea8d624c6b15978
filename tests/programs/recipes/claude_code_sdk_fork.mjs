// A port of the first SDK to TypeScript, on the command line: an answer, and a tool.

// /// script
// [tool.program]
// npm = ["@botanicastudios/claude-code-sdk-ts@0.2.22-fork"]
// ///
import assert from "node:assert";
import { readFileSync } from "node:fs";

import { claude } from "@botanicastudios/claude-code-sdk-ts";

assert.strictEqual(await claude().query("say two plums").asText(), "two plums");
const write = `call Write ${JSON.stringify({ file_path: `${process.cwd()}/plums.txt`, content: "two" })}\nsay done`;
assert.strictEqual(await claude().allowTools("Write").query(write).asText(), "done");
assert.strictEqual(readFileSync("plums.txt", "utf8"), "two");
