"""One Bash command in a real session with a sandbox: our executable, a scripted model, and settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from parley.workspace.sandbox.detect import LANDLOCK_WITH_SCOPES, find_bubblewrap, landlock_abi

KINDS = ("bubblewrap", "landlock")
MODEL = """
[[turn]]
tools = [{{ name = "Bash", input = {{ command = {command}, timeout = 100000 }} }}]

[[turn]]
text = "done"
"""


def require(kind: str) -> None:
    """Skip the test if this machine does not have this sandbox."""
    if kind == "bubblewrap" and (problem := find_bubblewrap(None, weaker_nested=False)[1]):
        pytest.skip(problem)
    if kind == "landlock" and landlock_abi() < LANDLOCK_WITH_SCOPES:
        pytest.skip("this kernel has no Landlock with scopes")


@dataclass(frozen=True)
class Ran:
    """What came of a session."""

    lines: list[dict[str, Any]]
    stderr: str

    @property
    def sandbox(self) -> str:
        return str(self._first("system")["sandbox"])

    @property
    def output(self) -> str:
        """The result of the command, as the model reads it."""
        [block] = self._first("user")["message"]["content"]
        return str(block["content"])

    @property
    def failed(self) -> bool:
        [block] = self._first("user")["message"]["content"]
        return bool(block.get("is_error"))

    @property
    def result(self) -> dict[str, Any]:
        return self._first("result")

    def _first(self, kind: str) -> dict[str, Any]:
        found = [line for line in self.lines if line["type"] == kind]
        assert found, (kind, self.lines, self.stderr)
        return found[0]


def run(
    command: str,
    cwd: Path,
    *flags: str,
    kind: str = "",
    sandbox: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
) -> Ran:
    """Run a command. `kind` `landlock` makes bubblewrap unavailable."""
    folder = cwd.parent / f"{cwd.name}.session"
    (folder / "home").mkdir(parents=True, exist_ok=True)
    (folder / "model.toml").write_text(MODEL.format(command=json.dumps(command)))
    settings = {"sandbox": {"enabled": True, "failIfUnavailable": True, **(sandbox or {})}}
    if kind == "landlock":
        flags = (*flags, "--managed-settings", json.dumps({"sandbox": {"bwrapPath": "/nonexistent"}}))
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "IS_SANDBOX": "1", "LANG": "C.UTF-8"}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "parley", "--print", "go", "--model", f"scripted:{folder / 'model.toml'}"),
            *("--permission-mode", "bypassPermissions", "--output-format", "stream-json", "--verbose"),
            *("--settings", json.dumps(settings), *flags),
        ],
        cwd=cwd,
        env={**variables, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    return Ran([json.loads(line) for line in done.stdout.splitlines()], done.stderr)
