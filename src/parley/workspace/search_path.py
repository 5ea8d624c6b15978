"""The PATH of commands, reduced to absolute folders.

Relative entries, empty entries and entries below /proc/self depend on the working directory, so a program in the
working tree could shadow one of the system.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache

DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Used if PATH has no absolute folder. Bash's own default might include the current directory."""

LONGEST_FIRST_LINE = 256


@lru_cache(maxsize=64)
def folders(path: str | None) -> tuple[str, ...]:
    """The absolute folders of a PATH, in order."""
    entries = (path or "").split(":")
    kept = tuple(entry for entry in entries if entry.startswith("/") and not entry.lstrip("/").startswith("proc/"))
    return kept or tuple(DEFAULT.split(":"))


def with_absolute_path(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with only absolute folders in PATH."""
    return {**environment, "PATH": ":".join(folders(environment.get("PATH")))}


def without_programs_of(folder: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for programs that we run ourselves: a command may have put another one into a working folder."""
    top = os.path.join(os.path.realpath(folder), "")
    entries = folders(environment.get("PATH"))
    kept = [entry for entry in entries if not os.path.join(os.path.realpath(entry), "").startswith(top)]
    return {**environment, "PATH": ":".join(kept) or DEFAULT}


def is_found_below(tops: Iterable[str], name: str, environment: Mapping[str, str]) -> bool:
    """Whether a command name runs a file in one of these folders, or one that leads there. A builtin does not."""
    if "/" in name:
        file: str | None = name
    else:
        candidates = (os.path.join(folder, name) for folder in folders(environment.get("PATH")))
        file = next((path for path in candidates if os.path.lexists(path)), None)
    if file is None:
        return False
    # A relative path depends on the folder of the shell, which is one of them.
    places = (os.path.abspath(file), os.path.realpath(file))
    return not os.path.isabs(file) or any(
        os.path.join(place, "").startswith(os.path.join(top, "")) for place in places for top in tops
    )


def find(path: str, name: str) -> str | None:
    """The file that a command name runs, or None. Results are cached for up to a second."""
    return _find(path, name, int(time.monotonic()))


def interpreter(path: str) -> str | None:
    """The NAME of a script's `#!/usr/bin/env NAME` line, or None."""
    return _interpreter(path, int(time.monotonic()))


@lru_cache(maxsize=512)
def _interpreter(path: str, second: int) -> str | None:
    try:
        with open(path, "rb") as file:
            return parse_interpreter(file.read(LONGEST_FIRST_LINE).split(b"\n")[0])
    except OSError:
        return None


def parse_interpreter(line: bytes) -> str | None:
    """The NAME of a first line `#!/usr/bin/env NAME`, or None."""
    words = line.split()
    if not words or not words[0].startswith(b"#!") or not words[0].endswith(b"/env"):
        return None
    names = (os.fsdecode(word) for word in words[1:] if not word.startswith(b"-") and b"=" not in word)
    return next(names, None)


@lru_cache(maxsize=512)
def _find(path: str, name: str, second: int) -> str | None:
    candidates = (f"{folder}/{name}" for folder in path.split(":"))
    return next((file for file in candidates if os.path.lexists(file)), None)
