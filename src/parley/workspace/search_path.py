"""The PATH of commands: where they find their programs.

Only absolute folders are kept. A relative entry, an empty one and one below /proc/self mean another folder after
every `cd`, so that a program of the working tree could take the name of one of the system.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import lru_cache

DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""For an environment that names no absolute folder; bash itself might search the current one."""

LONGEST_FIRST_LINE = 256


@lru_cache(maxsize=64)
def folders(path: str | None) -> tuple[str, ...]:
    """The absolute folders of a PATH, in their order."""
    given = (path or "").split(":")
    kept = tuple(entry for entry in given if entry.startswith("/") and not entry.lstrip("/").startswith("proc/"))
    return kept or tuple(DEFAULT.split(":"))


def with_absolute_path(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a command."""
    return {**environment, "PATH": ":".join(folders(environment.get("PATH")))}


def find(path: str, name: str) -> str | None:
    """The file in these folders that a name runs, or None. An answer is used for a second at most."""
    return _find(path, name, int(time.monotonic()))


def interpreter(place: str) -> str | None:
    """The name that a script has looked up on PATH by `#!/usr/bin/env NAME`, or None."""
    return _interpreter(place, int(time.monotonic()))


@lru_cache(maxsize=512)
def _interpreter(place: str, second: int) -> str | None:
    try:
        with open(place, "rb") as file:
            words = file.read(LONGEST_FIRST_LINE).split(b"\n")[0].split()
    except OSError:
        return None
    if not words or not words[0].startswith(b"#!") or not words[0].endswith(b"/env"):
        return None
    names = (os.fsdecode(word) for word in words[1:] if not word.startswith(b"-") and b"=" not in word)
    return next(names, None)


@lru_cache(maxsize=512)
def _find(path: str, name: str, second: int) -> str | None:
    places = (f"{folder}/{name}" for folder in path.split(":"))
    return next((place for place in places if os.path.lexists(place)), None)
