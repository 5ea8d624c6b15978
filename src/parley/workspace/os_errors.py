"""What the system says, in words that help a model to go on."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from parley.errors import ToolError
from parley.workspace import safe_open
from parley.workspace.base import Reach
from parley.workspace.safe_open import Pins, Swapped

NAMES_LOOKED_AT = 10_000
"""In a folder, for near names."""

TROUBLES = {
    errno.ENOENT: "it is not there any more, or its folder cannot be made",
    errno.EACCES: "permission denied",
    errno.EPERM: "the operation is not permitted",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "no space is left on the device",
    errno.EDQUOT: "the disk quota is used up",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "its links lead in a circle",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "it is a folder",
    errno.EEXIST: "it exists already; read it first, then write it",
    errno.EBUSY: "it is in use and cannot be replaced (a mount point?)",
    errno.EFBIG: "it is too large for the file system",
    errno.EMFILE: "too many files are open; try again",
}


def trouble(flaw: OSError) -> str:
    return TROUBLES.get(flaw.errno or 0) or flaw.strerror or str(flaw)


@contextmanager
def told(words: str) -> Iterator[None]:
    """Raise what the system refuses as a ToolError: the words, and why."""
    try:
        yield
    except OSError as flaw:
        raise ToolError(f"{words}: {trouble(flaw)}.") from None


def missing(path: str, reach: Reach, pins: Pins, cwd: str) -> ToolError:
    """There is no such file; which ones come near, and where we are if that may be the mistake."""
    near = near_names(path, reach, pins)
    words = [f"File does not exist: {path}."]
    if near:
        words.append(f"Did you mean {' or '.join(near)}?")
    if not near or not safe_open.is_beneath(path, cwd):
        words.append(f"Note: your current working directory is {cwd}.")
    return ToolError(" ".join(words))


def near_names(path: str, reach: Reach, pins: Pins) -> list[str]:
    """Up to three names in the same folder that look alike, if we may look there."""
    from difflib import get_close_matches

    try:
        with safe_open.find(path, reach, pins) as place:
            names = listed(place.folder)
    except (OSError, Swapped, ToolError):
        return []
    by_lower = {name.lower(): name for name in names}
    return [by_lower[name] for name in get_close_matches(place.name.lower(), by_lower, n=3)]


def listed(folder: int) -> list[str]:
    """The names in an opened folder, if they are not too many to look at all of them."""
    from itertools import islice

    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        with os.scandir(readable) as entries:
            return [entry.name for entry in islice(entries, NAMES_LOOKED_AT)]
    finally:
        os.close(readable)
