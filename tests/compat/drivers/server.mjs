// `server.mjs {"packages": FOLDER} SOCKET` runs drivers one after the other in a process that has loaded the SDK, which
// takes longer than most tasks.
//
// A request on the socket (a descriptor) is a line, `{"driver", "task", "environment", "cwd"}`. The reply is the exit code that a
// process of its own would have had, once nothing is left that it would have waited for.

import { readSync, writeSync } from "node:fs";
import { begin } from "./telling.mjs";

const SOCKET = Number(process.argv[3]);
const UNFINISHED = 13; // as node reports a top-level await that is never settled
let count = 0;
let isFinished = true;

function readRequest() {
  const parts = [];
  const buffer = Buffer.alloc(1 << 16);
  for (;;) {
    const length = readSync(SOCKET, buffer);
    if (length === 0) process.exit();
    parts.push(Buffer.from(buffer.subarray(0, length)));
    if (buffer[length - 1] === 10) return JSON.parse(Buffer.concat(parts).toString());
  }
}

async function run({ driver, task, environment, cwd }) {
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, environment);
  process.chdir(cwd);
  begin(task);
  isFinished = false;
  await import(`./${driver}.mjs?${++count}`); // a new copy of the module: each task runs its top level
  isFinished = true;
}

process.on("beforeExit", () => {
  if (count) writeSync(SOCKET, isFinished ? "0" : `${UNFINISHED}`);
  const request = readRequest();
  setImmediate(() => run(request));
});
