"""Read a file with its status, and check later whether it has changed."""

from __future__ import annotations

import os
from collections.abc import Callable

from parley.errors import ToolError
from parley.workspace import safe_open
from parley.workspace.base import FileSnapshot
from parley.workspace.safe_open import FileLocation

CHUNK_BYTES = 1 << 20
LARGEST_BYTES = 1 << 30
"""Larger files are only read with a limit."""
NO_WAIT: int | None = getattr(os, "RWF_NOWAIT", None)
"""Linux: fail instead of waiting for a disk."""


def snapshot(location: FileLocation, limit_bytes: int | None = None) -> FileSnapshot:
    """Raises FileNotFoundError, ToolError, Swapped and OSError."""
    descriptor = location.open()
    with open(descriptor, "rb", buffering=0) as file:
        # Get the status first: if the file changes during the read, a later comparison fails.
        status = os.fstat(descriptor)
        if limit_bytes is None and status.st_size > LARGEST_BYTES:
            raise ToolError(
                f"{location.path} is too large to read as a whole: {status.st_size} bytes, at most {LARGEST_BYTES}."
            )
        data = file.read() if limit_bytes is None else read_beginning(file.read, limit_bytes, status.st_size)
    return make_snapshot(location.path, data, status)


def snapshot_cached(location: FileLocation, limit_bytes: int) -> FileSnapshot | None:
    """The same, if the kernel has the whole content in memory and it is not longer; otherwise None."""
    descriptor = location.open()
    try:
        status = os.fstat(descriptor)
        data = read_cached(descriptor, status.st_size) if status.st_size <= limit_bytes else None
    finally:
        os.close(descriptor)
    return None if data is None else make_snapshot(location.path, data, status)


def read_cached(descriptor: int, size: int) -> bytes | None:
    if NO_WAIT is None:
        return None
    data = bytearray(size + 1)
    try:
        count = os.preadv(descriptor, [data], 0, NO_WAIT)
    except OSError:  # it is on the disk, or the file system cannot tell
        return None
    return bytes(data[:size]) if count == size else None


def snapshot_at(path: str) -> FileSnapshot | None:
    """Snapshot exactly this real path. Raises Swapped if the path contains a symlink, ToolError, OSError."""
    try:
        with safe_open.at(path) as location:
            return snapshot(location)
    except FileNotFoundError:
        return None


def make_snapshot(path: str, data: bytes, status: os.stat_result) -> FileSnapshot:
    return FileSnapshot(
        path=path,
        data=data,
        size=max(status.st_size, len(data)),
        mode=status.st_mode & 0o7777,
        mtime_ns=status.st_mtime_ns,
        inode=status.st_ino,
    )


def check_unchanged(location: FileLocation, expected: FileSnapshot | None) -> None:
    """Raises ToolError if the file is not as expected; also Swapped and OSError."""
    if expected is None:
        if location.status() is not None:
            raise ToolError(f"{location.path} already exists. Read it before you write it.")
        return
    try:
        descriptor = location.open()
    except FileNotFoundError:
        text = f"{location.path} was deleted after it was read. Write it only if it should be created again."
        raise ToolError(text) from None
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if expected.path != location.path:
            same = False
        elif len(expected.data) == expected.size:
            same = status.st_size == expected.size and has_content(file.read, expected.data)
        else:
            # The file was read in part, so compare inode, mtime and size.
            known = expected.inode, expected.mtime_ns, expected.size
            same = (status.st_ino, status.st_mtime_ns, status.st_size) == known
    if not same:
        raise ToolError(f"{location.path} has changed since it was read. Read it again before you write it.")


def check_writable(location: FileLocation) -> None:
    """Raises ToolError for a read-only file. (A rename could replace it, but its owner does not want that.)"""
    if location.status() is not None and not os.access(
        location.name, os.W_OK, dir_fd=location.folder, effective_ids=True
    ):
        raise ToolError(f"{location.path} cannot be written: the file is read-only.")


def has_content(read: Callable[[int], bytes | None], data: bytes) -> bool:
    """Whether the file has this content. Reads in chunks, so as not to hold it in memory twice."""
    rest = memoryview(data)
    while part := read(CHUNK_BYTES):
        if rest[: len(part)] != part:
            return False
        rest = rest[len(part) :]
    return not rest


def read_beginning(read: Callable[[int], bytes | None], limit_bytes: int, size: int) -> bytes:
    """Read up to `limit_bytes`. A single `read` may return less than there is."""
    parts, left = [], limit_bytes
    while left > 0 and (part := read(min(left, size + 1))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
