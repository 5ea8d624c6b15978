"""Replace files in a folder that other processes may write to.

    with open_folder("/home/me/project", (".claude",)) as folder, folder.lock():
        folder.replace("settings.local.json", data)

Names below the base folder are never followed if they are links. A file is replaced atomically. The lock
is on the folder itself, so no lock file remains; on file systems without such locks, a file in it is locked.
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
from parley.settings.base import SettingsWriteError

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PRIVATE = 0o600
LOCK_SECONDS = 2.0
LOCK_FILE = ".settings.lock"


class SafeFolder:
    """An open folder; files in it are accessed through its descriptor."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self.path = path

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other Parley processes from writing here. Raises SettingsWriteError."""
        try:
            own = self._lock()
        except BlockingIOError:
            raise SettingsWriteError(f"{self.path} is locked by another process; try again") from None
        except OSError as exc:
            raise SettingsWriteError(f"cannot lock {self.path}: {exc.strerror}") from None
        try:
            yield
        finally:
            if own is not None:
                os.close(own)

    def _lock(self) -> int | None:
        """Return None, or the descriptor of the lock file if the folder cannot be locked. Raises OSError."""
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

    def read(self, name: str, most_bytes: int = safe_read.MOST_BYTES) -> bytes | None:
        """Read a file; None if it does not exist. Raises SettingsWriteError if it is too large or no regular file."""
        try:
            descriptor = os.open(name, safe_read.FLAGS | os.O_NOFOLLOW, dir_fd=self._descriptor)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise SettingsWriteError(
                f"cannot read {self.path}/{name}, or it is a symbolic link: {exc.strerror}"
            ) from None
        try:
            status = os.fstat(descriptor)
            safe_read.check_regular(status.st_mode)
            if status.st_size > most_bytes:
                raise safe_read.UnreadableFile(f"is too large: {status.st_size:,} bytes (the limit is {most_bytes:,})")
            return safe_read.read_all(descriptor, most_bytes)
        except safe_read.UnreadableFile as exc:
            raise SettingsWriteError(f"{self.path}/{name} {exc}") from None
        finally:
            os.close(descriptor)

    def replace(self, name: str, data: bytes) -> None:
        """Replace a file's content. It keeps its mode; a new file gets mode 0600. Raises SettingsWriteError."""
        temporary = f".{name}.{os.getpid()}.{os.urandom(6).hex()}"
        try:
            mode = self._mode(name)
            descriptor = os.open(temporary, NEW, PRIVATE, dir_fd=self._descriptor)
            try:
                self._fill(descriptor, data, mode)
                os.rename(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=self._descriptor)
                raise
            os.fsync(self._descriptor)
        except OSError as exc:
            raise SettingsWriteError(f"cannot write {self.path}/{name}: {exc.strerror}") from None

    def _mode(self, name: str) -> int:
        try:
            old = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return PRIVATE
        if not stat.S_ISREG(old.st_mode):
            raise SettingsWriteError(f"{self.path}/{name} is not a regular file; left unchanged")
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
def open_folder(base: Path | str, names: tuple[str, ...] = ()) -> Iterator[SafeFolder]:
    """Open a folder below `base`, creating it if it is missing. Raises SettingsWriteError."""
    path = str(base)
    try:
        if not names:
            os.makedirs(path, mode=0o700, exist_ok=True)
        descriptor = os.open(path, FOLDER)
    except OSError as exc:
        raise SettingsWriteError(f"cannot open the folder {path}: {exc.strerror}") from None
    try:
        for name in names:
            path = f"{path}/{name}"
            try:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=descriptor)
                inner = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError as exc:
                raise SettingsWriteError(
                    f"cannot open the folder {path}, or it is a symbolic link: {exc.strerror}"
                ) from None
            os.close(descriptor)
            descriptor = inner
        yield SafeFolder(descriptor, path)
    finally:
        os.close(descriptor)
