// Tests of cleaner.mjs, without a model and without a network: `node --test`.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";

import { clean } from "./cleaner.mjs";

const folder = mkdtempSync(join(tmpdir(), "cleaner-"));
after(() => rmSync(folder, { recursive: true }));

/** Run the application with a fake `claude` that plays a scenario. */
function play(name) {
  const claude = join(folder, `claude-${name}`);
  const scenario = join(import.meta.dirname, "..", "scenarios", `${name}.toml`);
  execFileSync(process.env.PARLEY ?? "parley", ["fake", scenario, "--install", claude]);
  return clean(claude, folder);
}

test("the build directory may be deleted", async () => {
  const { answer, messages } = await play("clean");

  assert.equal(answer, "Cleaned.");
  assert.deepEqual(messages.at(-1).permission_denials, []);
});

test("nothing else may be deleted", async () => {
  const { answer, messages } = await play("dangerous");

  assert.equal(answer, "I may not delete everything.");
  assert.deepEqual(messages.at(-1).permission_denials[0].tool_input, { command: "rm -r /" });
});

test("a rough connection is survived", async () => {
  assert.equal((await play("rough")).answer, "Done.");
});

test("a crash is reported", async () => {
  assert.match((await play("crash")).answer, /exited with code 3/);
});
