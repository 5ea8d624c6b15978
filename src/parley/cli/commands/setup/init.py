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

import asyncio
import sys

from parley import Options, ResultMessage, query

OPTIONS = Options(allowed_tools=["Read", "Glob", "Grep"])


async def answer(prompt: str, options: Options = OPTIONS) -> str:
    async for message in query(prompt=prompt, options=options):
        if isinstance(message, ResultMessage):
            return message.result or ""
    return ""


if __name__ == "__main__":
    print(asyncio.run(answer(" ".join(sys.argv[1:]) or "What is in this directory?")))
''',
    "agent_script.toml": """\
# What the model answers in test_agent.py, turn by turn.

[[turn]]
text = "I will look."
tools = [{ name = "Read", input = { file_path = "notes.txt" } }]

[[turn]]
text = "The notes say: buy milk."
""",
    "test_agent.py": '''\
"""Tests agent.py without a key or a network: agent_script.toml takes the place of the model. Run it with pytest."""

import asyncio
from pathlib import Path

from agent import answer
from parley import Options

SCRIPT = Path(__file__).with_name("agent_script.toml")


def test_the_agent_reads_the_notes(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("buy milk")
    options = Options(
        model=f"scripted:{SCRIPT}",
        allowed_tools=["Read"],
        cwd=tmp_path,
        env={"CLAUDE_CONFIG_DIR": str(tmp_path / "config")},
    )

    assert asyncio.run(answer("What do my notes say?", options)) == "The notes say: buy milk."
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
            "  python -m pytest test_agent.py           # plays the script: no key, no network",
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
