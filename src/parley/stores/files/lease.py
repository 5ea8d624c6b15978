"""Who holds a session: a kernel lock on a file that names its holder.

The lock goes with the process, however it ends, so a file without one is stale and is taken
over. Whoever steals a session puts another file in the place of the holder's; the holder asks
`is_ours` before each write, and stops.

A file is removed, by its holder or by a thief, only under a lock on the folder. Else a holder that has just found
the file to be its own could remove the one that a thief puts in its place.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from parley.errors import SessionBusy, SessionError
from parley.workspace import private_files

START_TIME = 19
"""Its place among the fields that the kernel tells of a process, behind the name."""


BELOW = 1
"""Leases are in a folder of their own, below the one that the user named."""


class Lease:
    """`with take(...):` holds a session for as long as it lasts."""

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        self._file = file
        status = os.fstat(file)
        self._identity = status.st_dev, status.st_ino

    def is_ours(self) -> bool:
        """Whether nobody took it from us."""
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *flaw: object) -> None:
        self.release()

    def release(self) -> None:
        # Where the folder cannot be locked, the file stays: without a lock it is stale, and is taken over.
        with suppress(OSError), locked_folder(self._path.parent) as folder:
            if self.is_ours():
                os.unlink(self._path.name, dir_fd=folder)
        os.close(self._file)


PASSING_SECONDS = 0.5
PAUSE_SECONDS = 0.01


def take(path: Path, session_id: str, *, steal: bool = False, pause: Callable[[float], None] = time.sleep) -> Lease:
    """Hold a session. Raises SessionBusy, or SessionError if the file cannot be made.

    A holder who was killed as it started a process may have left its lock to that, for the moment
    until it turns into another program: a dead holder's lock is waited for, not for long.
    """
    patience = round(PASSING_SECONDS / PAUSE_SECONDS)
    try:
        while True:
            file = private_files.open_file(path, os.O_RDWR | os.O_CREAT, below=BELOW)
            try:
                if lock(file):
                    lease = Lease(path, file)
                    if lease.is_ours():  # else its holder let it go between our two calls
                        with suppress(OSError):  # the lock counts: on a full disk, who may delete sessions must get in
                            sign(file)
                        file = -1
                        return lease
                elif not steal and patience and not is_held(path):
                    patience -= 1
                    pause(PAUSE_SECONDS)
                elif not steal:
                    raise SessionBusy(session_id, holder(file))
                else:
                    take_away(path, pause)
            finally:
                if file >= 0:
                    os.close(file)
    except OSError as flaw:
        raise SessionError(f"the session cannot be held at {path}: {flaw.strerror}") from None


def take_away(path: Path, pause: Callable[[float], None]) -> None:
    """Remove the file of another holder. Raises OSError."""
    try:
        with locked_folder(path.parent, pause) as folder, suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=folder)
    except NoFolderLocks:
        # Nobody can lock the folder, so no holder removes its file when it lets go.
        with suppress(FileNotFoundError):
            private_files.remove(path, below=BELOW)


class NoFolderLocks(OSError):
    """The file system has no locks on folders."""


@contextmanager
def locked_folder(path: Path, pause: Callable[[float], None] = time.sleep) -> Iterator[int]:
    """The descriptor of the folder of leases, locked. Raises OSError, BlockingIOError if others hold it for long."""
    with private_files.opened_folder(path, below=BELOW, to_list=True) as (folder, _):
        for _ in range(round(PASSING_SECONDS / PAUSE_SECONDS)):
            if lock_folder(folder):
                break
            pause(PAUSE_SECONDS)
        else:
            raise BlockingIOError(errno.EAGAIN, f"{path} is locked by another process", str(path))
        yield folder


def lock_folder(folder: int) -> bool:
    """Raises NoFolderLocks."""
    try:
        return lock(folder)
    except OSError as exc:
        raise NoFolderLocks(exc.errno, exc.strerror) from None


def is_held(path: Path) -> bool:
    """Whether a holder seems to live, by what the file says: to try the lock would keep others from it for a moment."""
    try:
        owner: Any = msgspec.json.decode(private_files.read(path, below=BELOW))
        if owner["host"] == os.uname().nodename:
            with suppress(PermissionError):  # it is somebody else's, and alive
                os.kill(owner["pid"], 0)
            return bool(begun(owner["pid"]) == owner.get("begun"))
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return False
    return True


def begun(pid: int) -> int | None:
    """When a process began, in the kernel's own count: another one may go by its number meanwhile. None if unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            behind_name = file.read().rpartition(b")")[2].split()
        return int(behind_name[START_TIME])
    except (OSError, IndexError, ValueError):
        return None


def lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sign(file: int) -> None:
    """Say who we are. Raises OSError."""
    owner = {"pid": os.getpid(), "host": os.uname().nodename, "begun": begun(os.getpid())}
    os.ftruncate(file, 0)
    os.pwrite(file, msgspec.json.encode(owner), 0)


def holder(file: int) -> str:
    """Who holds it, in words."""
    try:
        owner: Any = msgspec.json.decode(os.pread(file, 4096, 0))
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(os.fstat(file).st_mtime))
        return f"process {owner['pid']} on {owner['host']} since {since}"
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return "another process"
