"""Replace files of the working tree atomically.

The new content is written to a temporary file in the same folder, synced to disk and renamed over the old file. On any
error the temporary file is removed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress

from parley.workspace import syscalls
from parley.workspace.safe_open import FileLocation, Swapped

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
KEPT_BITS = 0o1777
"""The mode bits that are preserved. As with a write, a changed program loses setuid and setgid."""


def replace(
    location: FileLocation, data: bytes, temp_name: str, check: Callable[[], object], mode: int | None = None
) -> os.stat_result:
    """Replace the content by `data`. `check` is called just before the rename and may raise.

    If `mode` is None, an existing file keeps its mode and a new one gets the default.
    Raises OSError, Swapped, and whatever `check` raises.
    """
    old = location.status()
    if old is not None and not stat.S_ISREG(old.st_mode):
        raise Swapped
    descriptor = open_temp(location, temp_name, 0o666 if old is None and mode is None else 0o600)
    try:
        try:
            write_all(descriptor, data)
            if old is not None:
                take_owner(descriptor, old)
            new_mode = old.st_mode if mode is None and old is not None else mode
            if new_mode is not None:
                os.fchmod(descriptor, new_mode & KEPT_BITS)
            os.fsync(descriptor)
            new = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        check()
        if location.has_moved():
            raise Swapped
        if old is None:
            rename_to_free_name(temp_name, location)
        else:
            os.rename(temp_name, location.name, src_dir_fd=location.folder, dst_dir_fd=location.folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temp_name, dir_fd=location.folder)
        raise
    sync_folder(location)
    return new


def open_temp(location: FileLocation, temp_name: str, mode: int) -> int:
    try:
        return os.open(temp_name, NEW, mode, dir_fd=location.folder)
    except FileExistsError:
        # Only we use such names: an earlier write was interrupted.
        os.unlink(temp_name, dir_fd=location.folder)
        return os.open(temp_name, NEW, mode, dir_fd=location.folder)


def remove(location: FileLocation) -> None:
    """Raises OSError."""
    os.unlink(location.name, dir_fd=location.folder)
    sync_folder(location)


def write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def take_owner(descriptor: int, old: os.stat_result) -> None:
    """Give the new file the owner of the old one, as far as permissions allow."""
    ours = os.fstat(descriptor)
    if (ours.st_uid, ours.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except PermissionError:
            with suppress(PermissionError):
                os.fchown(descriptor, -1, old.st_gid)


def rename_to_free_name(temp_name: str, location: FileLocation) -> None:
    """Rename without replacing. Raises FileExistsError if the name was taken in the meantime."""
    if syscalls.rename_to_free_name(location.folder, temp_name, location.name):
        return
    # The system has no atomic rename without replacement. Check once more, then rename.
    if location.status() is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), location.name)
    os.rename(temp_name, location.name, src_dir_fd=location.folder, dst_dir_fd=location.folder)


def sync_folder(location: FileLocation) -> None:
    """Sync the folder's entries to disk, if the folder is readable."""
    # Write-only folders cannot be opened for reading.
    with suppress(PermissionError):
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=location.folder)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
