// Parses an AsyncAPI document with the official parser; prints its version, or what is wrong with it.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const [packages, path] = process.argv.slice(2);
const { Parser } = createRequire(`${packages}/`)("@asyncapi/parser");
const { document, diagnostics } = await new Parser().parse(readFileSync(path, "utf8"));
const ERROR = 0;
const problems = diagnostics.filter(({ severity }) => severity === ERROR).map(({ message }) => message);
console.log(JSON.stringify({ version: document?.version(), channels: document?.channels().length, problems }));
