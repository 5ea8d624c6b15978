"""Replace files in a folder that other processes may write to.

    with open_folder("/home/me/project", (".claude",)) as folder, folder.lock():
        folder.replace("settings.local.json", data)

Names below the base folder are never followed if they are links. A file is replaced atomically. The lock
is on the folder itself, so no lock file remains; on file systems without such locks, a file in it is locked.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from parley.settings import safe_read
from parley.settings.base import SettingsWriteError
from parley.workspace import private_files

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
        with ExitStack() as stack:
            try:
                try:
                    is_locked = private_files.lock(self._descriptor, timeout_seconds=LOCK_SECONDS)
                except OSError:  # the file system cannot lock folders
                    own = private_files.open_in(self._descriptor, os.getuid(), LOCK_FILE, os.O_RDWR | os.O_CREAT)
                    stack.callback(os.close, own)
                    is_locked = private_files.lock(own, timeout_seconds=LOCK_SECONDS)
            except OSError as exc:
                raise SettingsWriteError(f"cannot lock {self.path}: {exc.strerror}") from None
            if not is_locked:
                raise SettingsWriteError(f"{self.path} is locked by another process; try again")
            yield

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
        try:
            mode = self._mode(name)
            with private_files.replacing(self._descriptor, name, sync=True) as file:
                private_files.write_all(file, data)
                os.fchmod(file, mode)
        except OSError as exc:
            raise SettingsWriteError(f"cannot write {self.path}/{name}: {exc.strerror}") from None

    def _mode(self, name: str) -> int:
        try:
            old = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return private_files.PRIVATE_FILE
        if not stat.S_ISREG(old.st_mode):
            raise SettingsWriteError(f"{self.path}/{name} is not a regular file; left unchanged")
        return stat.S_IMODE(old.st_mode) & 0o777


@contextmanager
def open_folder(base: Path | str, names: tuple[str, ...] = ()) -> Iterator[SafeFolder]:
    """Open a folder below `base`, creating it if it is missing. Raises SettingsWriteError.

    The folders of a project may belong to others, so their owner is not checked.
    """
    path = str(base)
    with ExitStack() as stack:
        try:
            descriptor, _ = stack.enter_context(private_files.open_folder(path, make=not names, to_list=True))
        except OSError as exc:
            raise SettingsWriteError(f"cannot open the folder {path}: {exc.strerror}") from None
        for name in names:
            path = f"{path}/{name}"
            try:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=descriptor)
                descriptor = os.open(name, private_files.LIST | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError as exc:
                raise SettingsWriteError(
                    f"cannot open the folder {path}, or it is a symbolic link: {exc.strerror}"
                ) from None
            stack.callback(os.close, descriptor)
        yield SafeFolder(descriptor, path)
