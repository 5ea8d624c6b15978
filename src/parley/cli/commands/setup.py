"""`parley init`, `link`, `update` and `install`: the first files of a project, links to Parley, and how to upgrade it.

Existing files are never changed, and `update` changes nothing: packages belong to the tool that installed them.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib import metadata
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from parley.cli.commands.subcommand import GivenArgs, write_result
from parley.cli.nearest import find_nearest
from parley.cli.stdio import warn
from parley.errors import InvalidArguments, UsageError, explain_os_errors
from parley.protocol.base import Struct
from parley.settings.base import printable
from parley.version import PROTOCOL_LEVEL, __version__

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
PROGRAMS = {"claude": "parley", "miriad-code": "parley-miriad"}
"""The names, and the program that each is a link to."""
PREFERRED = (".local/bin", "bin")
DISTRIBUTION = "parley-agent"


def init(given: GivenArgs) -> int:
    folder = Path(given.words[0] if given.words else ".")
    written: list[str] = []
    kept: list[str] = []
    for name, text in FILES.items():
        path = folder / name
        (written if write_new(path, text) else kept).append(str(path))
    lines = [
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
    return write_result(given, {"written": written, "kept": kept}, lines)


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


def link(given: GivenArgs) -> int:
    name, folder = (*given.words, *("claude", "")[len(given.words) :])
    if name not in PROGRAMS:
        hint = find_nearest(name, PROGRAMS) or f" (choose from {', '.join(PROGRAMS)})"
        raise InvalidArguments(f"cannot link {name!r}{hint}")
    path = (Path(folder).absolute() if folder else find_folder()) / name
    target = find_program(PROGRAMS[name])
    is_done = path.is_symlink() and os.path.realpath(path) == os.path.realpath(target)
    if not is_done:
        if os.path.lexists(path):
            raise UsageError(f"{printable(str(path))} exists and is not replaced; remove it, or name another directory")
        if not given.has("dry-run"):
            warn(f"Linking {path} to {target}")
            make_link(path, target)
    winner = shutil.which(name)
    wins = winner is not None and os.path.abspath(winner) == str(path)
    created = not is_done and not given.has("dry-run")
    result = {"link": str(path), "target": str(target), "created": created, "on_path": winner, "wins": wins}
    done = "is already" if is_done else "is now" if created else "would be"
    lines = [f"{path} {done} a link to {target}", describe_winner(name, path, winner, wins)]
    return write_result(given, result, lines)


def make_link(path: Path, target: Path) -> None:
    """Raises UsageError."""
    with explain_os_errors(f"cannot create the link {printable(str(path))}", UsageError):
        path.symlink_to(target)


def describe_winner(name: str, path: Path, winner: str | None, wins: bool) -> str:
    if wins:
        return f"`{name}` on the PATH is this link"
    if str(path.parent) not in os.environ.get("PATH", "").split(os.pathsep):
        return f"{path.parent} is not on the PATH" + (f"; `{name}` on the PATH is {winner}" if winner else "")
    return f"`{name}` on the PATH is {winner}, not this link" if winner else f"`{name}` is not found on the PATH yet"


def find_folder() -> Path:
    """A directory of the user's home on the PATH. Raises UsageError."""
    home = Path(os.path.expanduser("~"))
    listed = [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    ours = [entry for entry in listed if entry.is_relative_to(home) and os.access(entry, os.W_OK | os.X_OK)]
    if not ours:
        raise UsageError(
            "no directory on the PATH is inside your home directory; name a directory: parley link NAME DIR"
        )
    return next((home / name for name in PREFERRED if home / name in ours), ours[0])


def find_program(name: str) -> Path:
    """The executable of this installation. Raises UsageError."""
    beside = [Path(folder, name) for folder in (os.path.dirname(sys.executable), os.path.dirname(sys.argv[0]))]
    found = next((str(path) for path in beside if os.access(path, os.X_OK)), shutil.which(name))
    if found is None:
        raise UsageError(f"the program {name} does not exist in this installation")
    return Path(found).absolute()


class Installation(Struct, frozen=True, kw_only=True):
    """How this copy of Parley came here."""

    method: str
    location: str
    command: str
    """Upgrades it."""


def show_update(given: GivenArgs) -> int:
    """A version that `install` is given changes nothing either."""
    found = find_installation()
    result = {
        "version": __version__,
        "protocol": PROTOCOL_LEVEL,
        "method": found.method,
        "location": found.location,
        "command": found.command,
        "changed": False,
    }
    lines = [
        f"Parley {__version__} (protocol of Claude Code {PROTOCOL_LEVEL})",
        f"Installed with {found.method} in {found.location}",
        f"To upgrade it, run: {found.command}",
        "Nothing was changed.",
    ]
    return write_result(given, result, lines)


def find_installation() -> Installation:
    location = str(Path(__file__).resolve().parents[2])
    try:
        package = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return Installation(method="a source tree", location=location, command="git pull")
    origin = read_origin(package)
    folder = unquote(urlsplit(origin.get("url", "")).path) if "dir_info" in origin else ""
    pull = f"git -C {quote(folder)} pull"
    if folder and origin["dir_info"].get("editable") is True:
        return Installation(method="pip (editable)", location=folder, command=pull)
    parts = Path(sys.prefix).parts
    if "pipx" in parts:
        return Installation(method="pipx", location=location, command=f"pipx upgrade {DISTRIBUTION}")
    if "uv" in parts and "tools" in parts:
        return Installation(method="uv tool", location=location, command=f"uv tool upgrade {DISTRIBUTION}")
    installer = (package.read_text("INSTALLER") or "pip").strip()
    if installer == "conda":
        return Installation(method="conda", location=location, command=f"conda update {DISTRIBUTION}")
    python = quote(sys.executable)
    upgrade = f"uv pip install --python {python}" if installer == "uv" else f"{python} -m pip install"
    return Installation(
        method="uv pip" if installer == "uv" else installer,
        location=location,
        command=(f"{pull} && " if folder else "") + f"{upgrade} --upgrade {name_source(origin, folder)}",
    )


def name_source(origin: dict[str, Any], folder: str) -> str:
    """What pip gets the next version from: the index has no copy of what was installed from elsewhere."""
    if folder:
        return quote(folder)
    if "vcs_info" in origin:
        return quote(f"{origin['vcs_info'].get('vcs', 'git')}+{origin['url']}")
    return "NEW_WHEEL" if "archive_info" in origin else DISTRIBUTION


def read_origin(package: metadata.Distribution) -> dict[str, Any]:
    """Where the package was installed from, if not from an index."""
    text = package.read_text("direct_url.json")
    try:
        return dict(msgspec.json.decode(text)) if text else {}
    except (msgspec.DecodeError, TypeError, ValueError):
        return {}
