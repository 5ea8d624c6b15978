"""Leases: a session is held by a kernel lock on a file that names the holder.

    with acquire(path, session_id) as lease:
        ...

The kernel drops the lock when the process ends, so a file without a lock is stale and can be reused. Stealing replaces
the holder's file by a new one; the previous holder checks `is_ours` before each write and stops.

A holder that waits for its first prompt yields to another child of its parent process: some clients resume a session,
and then start a second engine for it without ending the first. The first write ends that, with the directory locked.

A file is only removed while its directory is locked. Otherwise a holder that has just checked that the file is its own
could remove the new file of a process that steals the session.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from parley._launched import launched_parent_pid, launched_pid
from parley.errors import SessionBusy, SessionError
from parley.protocol.base import Json
from parley.workspace import private_files

START_TIME = 19
"""The index of the start time in `/proc/<pid>/stat`, counted from the field after the name."""
STARTED = "begun"
"""The key of the start time in a lease. Sessions that an earlier build holds must be seen as held: it stays."""
BELOW = 1
"""Leases are in one directory below the one that the user named."""


class Lease:
    """A held session. Use it as a context manager, or call `release`."""

    _yields = False
    """Whether another child of our parent process may take the session. The first write ends it."""

    def __init__(self, path: Path, file: int, *, yields: bool = False) -> None:
        self._path = path
        self._name = str(path)
        self._file = file
        self._yields = yields
        status = os.fstat(file)
        self._identity = status.st_dev, status.st_ino

    def is_ours(self) -> bool:
        """Whether the session was not taken over."""
        try:
            found = os.stat(self._name, follow_symlinks=False)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def may_write(self) -> bool:
        """Whether the session is ours. From the first call on, it no longer yields."""
        if self._yields:
            # If the directory cannot be locked, no other process can take the session either.
            with suppress(OSError), open_locked_folder(self._path.parent):
                write_holder(self._file)
            self._yields = False
        return self.is_ours()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    def release(self) -> None:
        # If the directory cannot be locked, the file stays. It is stale, because nothing locks it.
        with suppress(OSError), open_locked_folder(self._path.parent) as folder:
            if self.is_ours():
                os.unlink(self._path.name, dir_fd=folder)
        os.close(self._file)


class BorrowedLease(Lease):
    """A lease for logs that the session's own lease covers."""

    def __init__(self) -> None:
        pass

    def is_ours(self) -> bool:
        return True

    def release(self) -> None:
        pass


WAIT_SECONDS = 0.5
PAUSE_SECONDS = 0.01


def acquire(
    path: Path,
    session_id: str,
    *,
    steal: bool = False,
    takes: bool = False,
    yields: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> Lease:
    """Hold a session. Raises SessionBusy, or SessionError if the file cannot be created.

    `yields`: until the first write, another child of our parent process may take the session. `takes`: it may be taken
    from a holder that yields to us.

    A holder that was killed between fork and exec leaves its lock to the child until the exec. So if the holder is
    dead, this waits up to `WAIT_SECONDS` for the lock.
    """
    attempts = round(WAIT_SECONDS / PAUSE_SECONDS)
    try:
        while True:
            file = private_files.open_file(path, os.O_RDWR | os.O_CREAT, below=BELOW)
            try:
                if private_files.lock(file, timeout_seconds=0):
                    lease = Lease(path, file, yields=yields)
                    if lease.is_ours():  # otherwise its holder released it between our two calls
                        with suppress(OSError):  # the lock is enough; on a full disk, deleting sessions must work
                            write_holder(file, yields=yields)
                        file = -1
                        return lease
                elif not steal and attempts and not is_leased(path):
                    attempts -= 1
                    pause(PAUSE_SECONDS)
                elif steal:
                    steal_file(path, pause)
                elif not (takes and take_yielded(path, pause)):
                    raise SessionBusy(session_id, read_holder(file))
            finally:
                if file >= 0:
                    os.close(file)
    except private_files.UnsafeFile as exc:
        raise SessionError(f"cannot hold the session: {exc.strerror}") from None
    except OSError as exc:
        raise SessionError(
            f"cannot write to the folder of sessions {path.parent.parent}: {exc.strerror}. Make it writable, choose "
            "another with CLAUDE_CONFIG_DIR, or give --no-session-persistence to keep nothing"
        ) from None


def steal_file(path: Path, pause: Callable[[float], None]) -> None:
    """Remove the file of another holder. Raises OSError."""
    try:
        with open_locked_folder(path.parent, pause) as folder, suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=folder)
    except NoFolderLocks:
        # Directories cannot be locked here, so no holder removes its file on release.
        with suppress(FileNotFoundError):
            private_files.remove(path, below=BELOW)


def take_yielded(path: Path, pause: Callable[[float], None]) -> bool:
    """Remove the file of a holder that yields to us; returns False if it does not yield."""
    try:
        with open_locked_folder(path.parent, pause) as folder:
            owner: Any = msgspec.json.decode(private_files.read(path, below=BELOW))
            is_sibling = owner["host"] == os.uname().nodename and owner["pid"] != launched_pid()
            if not is_sibling or owner.get("yields_to") != launched_parent_pid():
                return False
            os.unlink(path.name, dir_fd=folder)
    except FileNotFoundError:
        return True  # it was released in the meantime
    except (OSError, msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return False
    return True


class NoFolderLocks(OSError):
    """The file system does not support locks on directories."""


@contextmanager
def open_locked_folder(path: Path, pause: Callable[[float], None] = time.sleep) -> Iterator[int]:
    """Yield a descriptor of the locked directory. Raises OSError; BlockingIOError if it stays locked by others."""
    with private_files.open_folder(path, below=BELOW, to_list=True) as (folder, _):
        try:
            is_locked = private_files.lock(folder, timeout_seconds=WAIT_SECONDS, pause=pause)
        except OSError as exc:
            raise NoFolderLocks(exc.errno, exc.strerror) from None
        if not is_locked:
            raise BlockingIOError(errno.EAGAIN, f"{path} is locked by another process", str(path))
        yield folder


def is_leased(path: Path) -> bool:
    """Whether the process named in the file is alive. Does not try the lock, which would briefly block others."""
    try:
        owner: Any = msgspec.json.decode(private_files.read(path, below=BELOW))
        if owner["host"] == os.uname().nodename:
            with suppress(PermissionError):  # a live process of another user
                os.kill(owner["pid"], 0)
            return bool(process_start_time(owner["pid"]) == owner.get(STARTED))
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return False
    return True


def process_start_time(pid: int) -> int | None:
    """The start time of a process in clock ticks, to detect a reused pid; None if unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[START_TIME])
    except (OSError, IndexError, ValueError):
        return None


def write_holder(file: int, *, yields: bool = False) -> None:
    """Write our pid, host and start time to the file, and the process whose children we yield to. Raises OSError."""
    pid = launched_pid()
    owner: Json = {"pid": pid, "host": os.uname().nodename, STARTED: process_start_time(pid)}
    if yields:
        owner["yields_to"] = launched_parent_pid()
    os.ftruncate(file, 0)
    os.pwrite(file, msgspec.json.encode(owner), 0)


def read_holder(file: int) -> str:
    """Describe the holder, for error messages."""
    try:
        owner: Any = msgspec.json.decode(os.pread(file, 4096, 0))
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(os.fstat(file).st_mtime))
        return f"process {owner['pid']} on {owner['host']} since {since}"
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return "another process"
