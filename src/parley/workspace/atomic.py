"""Replacing a file so that at every moment it is the old one or the new one.

The new content goes to a file beside the old one, reaches the disk, and takes the old
one's name in one step. Whatever fails on the way, the file beside it is removed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress

from parley.workspace import syscalls
from parley.workspace.safe_open import Place, Swapped

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
KEPT_BITS = 0o1777
"""As the kernel has it for writes: a changed program is not setuid any more."""


def replace(
    place: Place, data: bytes, beside: str, still_right: Callable[[], object], mode: int | None = None
) -> os.stat_result:
    """Make `data` the content. `still_right` is called last of all before the switch, and may raise.

    Without a `mode`, a file that is there keeps its own, and a new one gets the usual one.
    Raises OSError, Swapped, and whatever `still_right` raises.
    """
    old = place.status()
    if old is not None and not stat.S_ISREG(old.st_mode):
        raise Swapped
    descriptor = open_beside(place, beside, 0o666 if old is None and mode is None else 0o600)
    try:
        try:
            write_all(descriptor, data)
            if old is not None:
                take_owner(descriptor, old)
            wanted = old.st_mode if mode is None and old is not None else mode
            if wanted is not None:
                os.fchmod(descriptor, wanted & KEPT_BITS)
            os.fsync(descriptor)
            new = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        still_right()
        if place.has_moved():
            raise Swapped
        if old is None:
            rename_to_free_name(beside, place)
        else:
            os.rename(beside, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=place.folder)
        raise
    sync_folder(place)
    return new


def open_beside(place: Place, beside: str, mode: int) -> int:
    try:
        return os.open(beside, NEW, mode, dir_fd=place.folder)
    except FileExistsError:
        # The names are ours alone: somebody broke off in the middle.
        os.unlink(beside, dir_fd=place.folder)
        return os.open(beside, NEW, mode, dir_fd=place.folder)


def remove(place: Place) -> None:
    """Raises OSError."""
    os.unlink(place.name, dir_fd=place.folder)
    sync_folder(place)


def write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def take_owner(descriptor: int, old: os.stat_result) -> None:
    """Give the new file the owner of the old one, as far as we may."""
    mine = os.fstat(descriptor)
    if (mine.st_uid, mine.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except PermissionError:
            with suppress(PermissionError):
                os.fchown(descriptor, -1, old.st_gid)


def rename_to_free_name(beside: str, place: Place) -> None:
    """Raises FileExistsError if the name is taken meanwhile."""
    if syscalls.rename_to_free_name(place.folder, beside, place.name):
        return
    # A system that cannot do it in one step: the name was free when `still_right` looked.
    if place.status() is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), place.name)
    os.rename(beside, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)


def sync_folder(place: Place) -> None:
    """Bring the folder's entries to the disk, where the folder may be read."""
    # Not every folder may be read, and not every file system can do it.
    with suppress(PermissionError):
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place.folder)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
