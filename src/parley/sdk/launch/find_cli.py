"""Which engine is started: the one given, ours, or the original on the PATH."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from parley.sdk.errors import CLIConnectionError, CLINotFoundError

NAMES = ("parley", "claude")
FOLDERS = ("~/.local/bin", "~/.claude/local", "/usr/local/bin", "/opt/homebrew/bin")


def engine(given: str | Path | None, environment: Mapping[str, str]) -> str:
    """The path of an executable. Raises CLINotFoundError, CLIConnectionError."""
    if given is not None:
        return named(str(given), environment)
    # An installation of ours has its program beside the interpreter, also where the PATH does not name it.
    beside = Path(sys.executable).with_name("parley")
    if os.access(beside, os.X_OK):
        return str(beside)
    path = environment.get("PATH", os.defpath)
    for name in NAMES:
        found = shutil.which(name, path=os.pathsep.join([path, *map(os.path.expanduser, FOLDERS)]))
        if found:
            return runnable(found)
    raise CLINotFoundError(f"there is no engine on the PATH: neither {' nor '.join(NAMES)}")


def named(given: str, environment: Mapping[str, str]) -> str:
    """A path, or a name to be found on the PATH."""
    if os.path.dirname(given):
        path = os.path.abspath(os.path.expanduser(given))
        if not os.path.exists(path):
            raise CLINotFoundError("there is no such engine", path)
        return runnable(path)
    found = shutil.which(given, path=environment.get("PATH", os.defpath))
    if found is None:
        raise CLINotFoundError("there is no such engine on the PATH", given)
    return runnable(found)


def runnable(path: str) -> str:
    if path.lower().endswith((".cmd", ".bat")):
        raise CLIConnectionError(
            f"{path} is a batch file, which takes no arguments as they are: name the program itself"
        )
    return path
