"""`parley init`: write the first files of a project that uses Parley. Existing files are not changed.

Settings are JSON, which has no comments, and Claude Code reads the same file. So a README beside it explains them.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.subcommand import GivenArgs, run_command, write_json, write_lines
from parley.errors import UsageError
from parley.settings.base import printable

FILES = {
    ".claude/settings.json": """\
{
  "$schema": "https://json.schemastore.org/claude-code-settings.json",
  "permissions": {
    "allow": ["Bash(git status)", "Bash(python -m pytest *)"],
    "deny": ["Read(.env)", "Read(.env.*)"]
  }
}
""",
    ".claude/README.md": """\
# Settings of this project

`settings.json` is read by Parley and Claude Code. It is JSON, so it has no comments; this file explains it.

- `permissions.allow`: calls that run without a question. They take effect after `parley trust .`
- `permissions.deny`: calls that never run. They take effect at once.
- `model`, `env`, `hooks` and others can be added. `parley config list` shows what is in effect, and why.

`settings.local.json` has the same form, for yourself alone: keep it out of version control.
`parley permissions check Bash "git status"` explains a decision.

MCP servers are declared in `.mcp.json` in the directory above. Copy `.mcp.example.json` to that name and edit it, then
run `parley mcp list`.
""",
    ".mcp.example.json": """\
{
  "mcpServers": {
    "started-by-a-command": {
      "command": "python",
      "args": ["my_server.py"],
      "env": {"LEVEL": "info"}
    },
    "behind-a-url": {
      "type": "http",
      "url": "https://example.com/mcp",
      "headers": {"Authorization": "Bearer ${MY_TOKEN}"}
    }
  }
}
""",
    "agent.py": '''\
"""A first agent: it answers a question about the current directory.

python agent.py "What is in this directory?"
"""

import sys

from parley import Options, ResultError, run_sync

OPTIONS = Options(allowed_tools=["Read", "Glob", "Grep"])


def answer(prompt: str, options: Options = OPTIONS) -> str:
    """Raises ResultError if the turn fails."""
    return run_sync(prompt, options).text


if __name__ == "__main__":
    try:
        print(answer(" ".join(sys.argv[1:]) or "What is in this directory?"))
    except ResultError as exc:
        sys.exit(f"Error: {exc}")
''',
    "test_agent.py": '''\
"""Tests agent.py without a key or a network: a script takes the place of the model. Run it with pytest."""

from dataclasses import replace
from pathlib import Path

import pytest
from parley import ResultError
from parley.testing import Script, ScriptedError, ScriptedTurn, call

from agent import OPTIONS, answer

pytest_plugins = ["parley.testing.plugin"]
# The tests keep their sessions in a directory of their own, and do not read your settings.
pytestmark = pytest.mark.usefixtures("parley_config")


def test_the_agent_reads_the_notes(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("buy milk")
    model = Script([["I will look.", call("Read", file_path="notes.txt")], "The notes say: buy milk."])

    assert answer("What do my notes say?", replace(OPTIONS, model=model, cwd=tmp_path)) == "The notes say: buy milk."


def test_a_failed_turn_is_an_error(tmp_path: Path) -> None:
    model = Script([ScriptedTurn(error=ScriptedError(status=400, message="no such thing"))])

    with pytest.raises(ResultError, match="no such thing"):
        answer("Are you there?", replace(OPTIONS, model=model, cwd=tmp_path))
''',
}


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["init"], argv, {"": init})


def init(given: GivenArgs) -> int:
    folder = Path(given.words[0] if given.words else ".")
    written: list[str] = []
    kept: list[str] = []
    for name, text in FILES.items():
        path = folder / name
        (written if write_new(path, text) else kept).append(str(path))
    if given.has("json"):
        return write_json({"written": written, "kept": kept})
    return write_lines(
        [
            *(f"wrote    {printable(path)}" for path in written),
            *(f"kept     {printable(path)} (it exists)" for path in kept),
            "",
            "Next:",
            *([] if folder.samefile(".") else [f"  cd {quote(str(folder))}"]),
            "  python -m pytest test_agent.py           # needs no key and no network",
            "  parley trust .                           # let the settings take full effect",
            '  python agent.py "What is in this directory?"   # needs a key: export ANTHROPIC_API_KEY=...',
            "  parley doctor                            # if something does not work",
        ]
    )


def write_new(path: Path, text: str) -> bool:
    """Write a file unless it exists; returns whether it was written. Raises UsageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        if path.parent.is_dir():
            return False
        raise UsageError(f"{printable(str(path.parent))} is not a directory") from None
    except OSError as exc:
        raise UsageError(f"cannot write {printable(str(path))}: {exc.strerror}") from None
    return True
