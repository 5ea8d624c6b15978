"""Commands in a real session with a sandbox: our executable, a scripted model, and settings.

ran = sandbox_session.run("cat notes.txt", folder, kind="landlock")
assert ran.output == "..."
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from parley.workspace.landlock import abi_version
from parley.workspace.sandbox.base import LANDLOCK_WITH_SCOPES, find_bubblewrap
from tests.helpers.environment import base_environment
from tests.helpers.patience import TEST_SECONDS

KINDS = ("bubblewrap", "landlock")
Call = tuple[str, dict[str, Any]]
"""The name of a tool, and the input."""


def require(kind: str) -> None:
    """Skip the test if this machine does not have this sandbox."""
    if kind == "bubblewrap" and (problem := find_bubblewrap(None, weaker_nested=False)[1]):
        pytest.skip(problem)
    if kind == "landlock" and abi_version() < LANDLOCK_WITH_SCOPES:
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
        """The result of the first call, as the model reads it."""
        return self.outputs[0]

    @property
    def outputs(self) -> list[str]:
        lines = [line for line in self.lines if line["type"] == "user"]
        assert lines, (self.lines, self.stderr)
        return [str(block["content"]) for line in lines for block in line["message"]["content"]]

    def _first(self, kind: str) -> dict[str, Any]:
        found = [line for line in self.lines if line["type"] == kind]
        assert found, (kind, self.lines, self.stderr)
        return found[0]


def run(command: str, cwd: Path, *flags: str, kind: str = "", sandbox: dict[str, Any] | None = None) -> Ran:
    """Run a command. `kind` `landlock` makes bubblewrap unavailable."""
    return play([("Bash", {"command": command, "timeout": 100_000})], cwd, *flags, kind=kind, sandbox=sandbox)


def play(
    calls: Sequence[Call],
    cwd: Path,
    *flags: str,
    kind: str = "",
    sandbox: dict[str, Any] | None = None,
) -> Ran:
    """Let the model make calls one after the other."""
    folder = cwd.parent / f"{cwd.name}.session"
    (folder / "home").mkdir(parents=True, exist_ok=True)
    turns = [f"[[turn]]\ntools = [{{ name = '{name}', input = {encode_table(input)} }}]\n" for name, input in calls]
    (folder / "model.toml").write_text("".join([*turns, "[[turn]]\ntext = 'done'\n"]))
    settings = {"sandbox": {"enabled": True, "failIfUnavailable": True, **(sandbox or {})}}
    if kind == "landlock":
        flags = (*flags, "--managed-settings", json.dumps({"sandbox": {"bwrapPath": "/nonexistent"}}))
    variables = {**base_environment(), "HOME": str(folder / "home"), "IS_SANDBOX": "1", "LANG": "C.UTF-8"}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "parley", "--print", "go", "--model", f"scripted:{folder / 'model.toml'}"),
            *("--permission-mode", "bypassPermissions", "--output-format", "stream-json", "--verbose"),
            *("--settings", json.dumps(settings), *flags),
        ],
        cwd=cwd,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=TEST_SECONDS,
    )
    return Ran([json.loads(line) for line in done.stdout.splitlines()], done.stderr)


def encode_table(values: dict[str, Any]) -> str:
    """An inline table of TOML."""
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items()) + " }"
