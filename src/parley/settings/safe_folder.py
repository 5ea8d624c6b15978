"""A folder in which we replace files, safe from whoever may write beside us.

    with opened("/home/me/project", (".claude",)) as folder, folder.locked():
        folder.replace("settings.local.json", data)

The names below the first are never followed if they are links. A file is at every moment
the old one or the new one. The lock is on the folder itself, so that nothing is left
behind; where a file system cannot do that, it is on a file in it.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from parley.settings import safe_read
from parley.settings.base import NotWritten

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PRIVATE = 0o600
LOCK_SECONDS = 2.0
LOCK_FILE = ".settings.lock"


class Folder:
    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else of us writes here until the folder is closed. Raises NotWritten."""
        try:
            own = self._lock()
        except BlockingIOError:
            raise NotWritten(f"{self.path} is locked by another process") from None
        except OSError as flaw:
            raise NotWritten(f"{self.path} cannot be locked: {flaw.strerror}") from None
        try:
            yield
        finally:
            if own is not None:
                os.close(own)

    def _lock(self) -> int | None:
        """None, or the descriptor of the file that is locked instead. Raises OSError."""
        try:
            self._wait_for(self._descriptor)
        except BlockingIOError:
            raise
        except OSError:
            own = os.open(LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE, dir_fd=self._descriptor)
        else:
            return None
        try:
            self._wait_for(own)
        except BaseException:
            os.close(own)
            raise
        return own

    def _wait_for(self, descriptor: int) -> None:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return

    def read(self, name: str) -> bytes | None:
        """A file; None if there is none. Raises NotWritten for a link or anything else that is no file."""
        try:
            descriptor = os.open(name, safe_read.FLAGS | os.O_NOFOLLOW, dir_fd=self._descriptor)
        except FileNotFoundError:
            return None
        except OSError as flaw:
            raise NotWritten(f"{self.path}/{name} is a link or cannot be read: {flaw.strerror}") from None
        try:
            safe_read.must_be_regular(os.fstat(descriptor).st_mode)
            return safe_read.drained(descriptor, safe_read.MOST_BYTES)
        except safe_read.Unfit as flaw:
            raise NotWritten(f"{self.path}/{name} {flaw}") from None
        finally:
            os.close(descriptor)

    def replace(self, name: str, data: bytes) -> None:
        """Make `data` the content; a file keeps its mode, a new one is private. Raises NotWritten."""
        beside = f".{name}.{os.getpid()}.{os.urandom(6).hex()}"
        try:
            mode = self._mode(name)
            descriptor = os.open(beside, NEW, PRIVATE, dir_fd=self._descriptor)
            try:
                self._fill(descriptor, data, mode)
                os.rename(beside, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
            except BaseException:
                with suppress(OSError):
                    os.unlink(beside, dir_fd=self._descriptor)
                raise
            os.fsync(self._descriptor)
        except OSError as flaw:
            raise NotWritten(f"{self.path}/{name} cannot be written: {flaw.strerror}") from None

    def _mode(self, name: str) -> int:
        try:
            old = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return PRIVATE
        if not stat.S_ISREG(old.st_mode):
            raise NotWritten(f"{self.path}/{name} is no regular file, and is left alone")
        return stat.S_IMODE(old.st_mode) & 0o777

    def _fill(self, descriptor: int, data: bytes, mode: int) -> None:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def opened(base: Path | str, names: tuple[str, ...] = ()) -> Iterator[Folder]:
    """A folder below `base`, made where it is missing. Raises NotWritten."""
    path = str(base)
    try:
        if not names:
            os.makedirs(path, mode=0o700, exist_ok=True)
        descriptor = os.open(path, FOLDER)
    except OSError as flaw:
        raise NotWritten(f"{path} cannot be used: {flaw.strerror}") from None
    try:
        for name in names:
            path = f"{path}/{name}"
            try:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=descriptor)
                inner = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError as flaw:
                raise NotWritten(f"{path} is a link or cannot be used: {flaw.strerror}") from None
            os.close(descriptor)
            descriptor = inner
        yield Folder(descriptor, path)
    finally:
        os.close(descriptor)
