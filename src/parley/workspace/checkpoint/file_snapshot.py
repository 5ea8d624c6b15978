"""Taking a file as it is, and finding out whether it is still so."""

from __future__ import annotations

import os
from collections.abc import Callable

from parley.errors import ToolError
from parley.workspace import safe_open
from parley.workspace.base import Snapshot
from parley.workspace.safe_open import Place

CHUNK_BYTES = 1 << 20
LARGEST_BYTES = 1 << 30
"""No larger file is read without a limit."""


def snapshot(place: Place, limit_bytes: int | None = None) -> Snapshot:
    """Raises FileNotFoundError, ToolError, Swapped and OSError."""
    descriptor = place.open()
    with open(descriptor, "rb", buffering=0) as file:
        # The status first: if the file changes while we read, a later comparison fails.
        status = os.fstat(descriptor)
        if limit_bytes is None and status.st_size > LARGEST_BYTES:
            raise ToolError(f"{place.path} is too large to be taken whole: {status.st_size} bytes.")
        data = file.read() if limit_bytes is None else beginning(file.read, limit_bytes, status.st_size)
    return taken(place.path, data, status)


def snapshot_at(path: str) -> Snapshot | None:
    """What has exactly this real path. Raises Swapped if a link is on the way, ToolError and OSError."""
    try:
        with safe_open.at(path) as place:
            return snapshot(place)
    except FileNotFoundError:
        return None


def taken(path: str, data: bytes, status: os.stat_result) -> Snapshot:
    return Snapshot(
        path=path,
        data=data,
        size=max(status.st_size, len(data)),
        mode=status.st_mode & 0o7777,
        mtime_ns=status.st_mtime_ns,
        inode=status.st_ino,
    )


def must_be(place: Place, expected: Snapshot | None) -> None:
    """Raises ToolError unless what is there is what the caller knows; also Swapped and OSError."""
    if expected is None:
        if place.status() is not None:
            raise ToolError(f"{place.path} exists already. Read it first, then write it.")
        return
    try:
        descriptor = place.open()
    except FileNotFoundError:
        raise ToolError(f"{place.path} was deleted since it was read. Look again before you write it.") from None
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if expected.path != place.path:
            same = False
        elif len(expected.data) == expected.size:
            same = status.st_size == expected.size and holds(file.read, expected.data)
        else:
            # Of a file that was read in part, its marks must do.
            known = expected.inode, expected.mtime_ns, expected.size
            same = (status.st_ino, status.st_mtime_ns, status.st_size) == known
    if not same:
        raise ToolError(f"{place.path} has changed since it was read. Read it again before you write it.")


def must_be_writable(place: Place) -> None:
    """A file that its owner made read-only is left alone, though its name could be given to another."""
    if place.status() is not None and not os.access(place.name, os.W_OK, dir_fd=place.folder, effective_ids=True):
        raise ToolError(f"{place.path} cannot be written: it is read-only.")


def holds(read: Callable[[int], bytes | None], data: bytes) -> bool:
    """Whether a file's content is this, without having it in memory twice."""
    rest = memoryview(data)
    while part := read(CHUNK_BYTES):
        if rest[: len(part)] != part:
            return False
        rest = rest[len(part) :]
    return not rest


def beginning(read: Callable[[int], bytes | None], limit_bytes: int, size: int) -> bytes:
    """The beginning of a file, which may give less at once than it has."""
    parts, left = [], limit_bytes
    while left > 0 and (part := read(min(left, size + 1))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
