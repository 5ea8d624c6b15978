"""An executable file that runs a `parley` command, for clients that take only the path of an engine.

    write_launcher(Path("bin/claude"), ["tap", "--record", "conversation.jsonl", "--", "claude"])

The arguments of the client are added after the words.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from parley.errors import UsageError, explain_os_errors
from parley.settings.base import printable

MARK = "# Written by parley; it may be replaced by the same command."


def write_launcher(path: Path, words: Sequence[str]) -> None:
    """Write the script. Only a file that was written by this function is replaced. Raises UsageError."""
    shown = printable(str(path))
    with explain_os_errors(f"cannot write {shown}", UsageError):
        if os.path.lexists(path) and not is_launcher(path):
            raise UsageError(f"{shown} exists and is not replaced; remove it, or name another file")
        path.unlink(missing_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o755)
    with open(file, "w", encoding="utf-8", errors="surrogateescape") as script:
        script.write(f'#!/bin/sh\n{MARK}\nexec {shlex.join([sys.executable, "-P", "-m", "parley", *words])} "$@"\n')


def is_launcher(path: Path) -> bool:
    """Whether this module wrote the file. Raises OSError."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as script:
        return script.read(len(MARK) + 20).split(b"\n")[1:2] == [MARK.encode()]
