"""Replace and remove files of the working tree.

A replaced file keeps its owner and mode. All of its new content is on disk before the file gets its name.

See also: `safe_open.py`, which opens the folder; `private_files.replacing`, which does the work.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from parley.workspace import private_files
from parley.workspace.safe_open import FileLocation, Swapped

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

    def check_location() -> None:
        check()
        if location.has_moved():
            raise Swapped

    with private_files.replacing(
        location.folder,
        location.name,
        temp_name=temp_name,
        mode=0o666 if old is None and mode is None else 0o600,
        sync=True,
        is_new=old is None,
        check=check_location,
    ) as descriptor:
        private_files.write_all(descriptor, data)
        if old is not None:
            take_owner(descriptor, old)
        new_mode = old.st_mode if mode is None and old is not None else mode
        if new_mode is not None:
            os.fchmod(descriptor, new_mode & KEPT_BITS)
        return os.fstat(descriptor)


def take_owner(descriptor: int, old: os.stat_result) -> None:
    """Give the new file the owner of the old one, as far as permissions allow."""
    ours = os.fstat(descriptor)
    if (ours.st_uid, ours.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except PermissionError:
            with suppress(PermissionError):
                os.fchown(descriptor, -1, old.st_gid)


def remove(location: FileLocation) -> None:
    """Raises OSError."""
    os.unlink(location.name, dir_fd=location.folder)
    private_files.sync_folder(location.folder)
