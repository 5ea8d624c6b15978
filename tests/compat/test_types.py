"""The generated TypeScript types, checked by the compiler."""

from __future__ import annotations

import subprocess
from pathlib import Path

from parley.protocol.schema import build_schema, to_typescript
from tests.compat.harness import installed
from tests.compat.install import COMPILER

PROGRAM = """
import type { Line, Block, ControlRequest } from "./messages";

function textOf(block: Block): string {
  switch (block.type) {
    case "text":
      return block.text;
    case "tool_use":
      return block.name;
    default:
      return "";
  }
}

export function show(line: Line): string {
  if (line.type === "assistant") return line.message.content.map(textOf).join("");
  if (line.type === "system" && line.subtype === "init") return (line.tools ?? []).join();
  if (line.type === "result") return line.subtype;
  return "";
}

export const ask: ControlRequest = {
  type: "control_request",
  request_id: "r1",
  request: { subtype: "set_permission_mode", mode: "plan" },
};

// @ts-expect-error: an id is a text or a number
export const wrong: ControlRequest = { type: "control_request", request_id: true, request: { subtype: "get_plan" } };
"""


def test_a_program_that_uses_the_types_compiles(tmp_path: Path) -> None:
    installed(COMPILER)
    (tmp_path / "messages.d.ts").write_text(to_typescript(build_schema()), encoding="utf-8")
    (tmp_path / "program.ts").write_text(PROGRAM)
    compiler = COMPILER.place / "node_modules" / "typescript" / "bin" / "tsc"
    command = ["node", str(compiler), "--strict", "--noEmit", "program.ts"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    assert (done.stdout, done.returncode) == ("", 0)
