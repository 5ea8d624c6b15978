"""Find the engine's executable: `Options.cli_path`, the installed `parley`, or `claude` on the PATH."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from parley.sdk.errors import CLIConnectionError, CLINotFoundError

NAMES = ("parley", "claude")
FOLDERS = ("~/.local/bin", "~/.claude/local", "/usr/local/bin", "/opt/homebrew/bin")


def find_engine(given: str | Path | None, environment: Mapping[str, str]) -> str:
    """Return the path of the engine's executable. Raises CLINotFoundError, CLIConnectionError."""
    if given is not None:
        return resolve_path(str(given), environment)
    # pip installs `parley` next to the interpreter, which may not be on the PATH.
    installed = Path(sys.executable).with_name("parley")
    if os.access(installed, os.X_OK):
        return str(installed)
    path = environment.get("PATH", os.defpath)
    for name in NAMES:
        found = shutil.which(name, path=os.pathsep.join([path, *map(os.path.expanduser, FOLDERS)]))
        if found:
            return check_runnable(found)
    raise CLINotFoundError(f"no engine found: neither {' nor '.join(NAMES)} is on the PATH; set Options.cli_path")


def resolve_path(given: str, environment: Mapping[str, str]) -> str:
    """Resolve a path, or a name to look up on the PATH."""
    if os.path.dirname(given):
        path = os.path.abspath(os.path.expanduser(given))
        if not os.path.exists(path):
            raise CLINotFoundError("the engine does not exist", path)
        return check_runnable(path)
    found = shutil.which(given, path=environment.get("PATH", os.defpath))
    if found is None:
        raise CLINotFoundError("the engine is not on the PATH", given)
    return check_runnable(found)


def check_runnable(path: str) -> str:
    if path.lower().endswith((".cmd", ".bat")):
        raise CLIConnectionError(
            f"{path} is a batch file, which cannot receive arguments unchanged; give the path of the program itself"
        )
    return path
