"""Error messages for OSError that tell a model what to do next."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from parley.errors import ToolError
from parley.workspace import safe_open
from parley.workspace.base import Scope
from parley.workspace.safe_open import Pins, Swapped

MOST_NAMES = 10_000
"""How many names of a folder are compared."""

DESCRIPTIONS = {
    errno.ENOENT: "it no longer exists, or its folder cannot be created",
    errno.EACCES: "permission denied",
    errno.EPERM: "the operation is not permitted",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is exceeded",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "its symlinks form a loop",
    errno.ENOTDIR: "part of the path is a file, not a folder",
    errno.EISDIR: "it is a folder",
    errno.EEXIST: "it already exists; read it before you write it",
    errno.EBUSY: "it is in use and cannot be replaced (a mount point?)",
    errno.EFBIG: "it is too large for the file system",
    errno.EMFILE: "too many files are open; try again",
}


def describe_os_error(error: OSError) -> str:
    return DESCRIPTIONS.get(error.errno or 0) or error.strerror or str(error)


@contextmanager
def translate_os_errors(message: str) -> Iterator[None]:
    """Translate OSError to a ToolError with the message and the reason."""
    try:
        yield
    except OSError as exc:
        raise ToolError(f"{message}: {describe_os_error(exc)}.") from None


def not_found_error(path: str, scope: Scope, pins: Pins, cwd: str) -> ToolError:
    """The error for a missing file, with similar names and, if it may help, the working directory."""
    similar = similar_names(path, scope, pins)
    message = [f"File does not exist: {path}."]
    if similar:
        message.append(f"Did you mean {' or '.join(similar)}?")
    if not similar or not safe_open.is_beneath(path, cwd):
        message.append(f"Note: your current working directory is {cwd}.")
    return ToolError(" ".join(message))


def similar_names(path: str, scope: Scope, pins: Pins) -> list[str]:
    """Up to three similar names in the same folder, if it is in scope."""
    from difflib import get_close_matches

    try:
        with safe_open.find(path, scope, pins) as location:
            names = list_names(location.folder)
    except (OSError, Swapped, ToolError):
        return []
    by_lower = {name.lower(): name for name in names}
    return [by_lower[name] for name in get_close_matches(location.name.lower(), by_lower, n=3)]


def list_names(folder: int) -> list[str]:
    """The names in an opened folder, up to `MOST_NAMES`."""
    from itertools import islice

    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        with os.scandir(readable) as entries:
            return [entry.name for entry in islice(entries, MOST_NAMES)]
    finally:
        os.close(readable)
