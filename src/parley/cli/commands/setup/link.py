"""`parley link`: make a link called `claude` or `miriad-code` to Parley, for programs that look for that name."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.subcommand import GivenArgs, run_command, write_json, write_lines
from parley.cli.nearest import find_nearest
from parley.cli.stdio import warn
from parley.errors import InvalidArguments, UsageError
from parley.settings.base import printable

PROGRAMS = {"claude": "parley", "miriad-code": "parley-miriad"}
"""The names, and the program that each is a link to."""
PREFERRED = (".local/bin", "bin")


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["link"], argv, {"": link})


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
    if given.has("json"):
        row = {"link": str(path), "target": str(target), "created": not is_done and not given.has("dry-run")}
        return write_json({**row, "on_path": winner, "wins": wins})
    done = "is already" if is_done else "would be" if given.has("dry-run") else "is now"
    return write_lines([f"{path} {done} a link to {target}", describe_winner(name, path, winner, wins)])


def make_link(path: Path, target: Path) -> None:
    """Raises UsageError."""
    try:
        path.symlink_to(target)
    except OSError as exc:
        raise UsageError(f"cannot create the link {printable(str(path))}: {exc.strerror}") from None


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
