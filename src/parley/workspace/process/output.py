"""What a command writes: as much as is wanted in memory, all of it (up to a cap) in a file.

`Output` is for a command that is waited for: the file begins when the memory is full.
`Record` is the file; by itself it serves a command in the background, whose output is
wanted while it runs. A disk that is full costs the rest of the file, not the command.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from parley.errors import ToolError
from parley.workspace import private_files

BELOW = 4
"""The folders above a file of output that are ours: four in the config folder and in the one for temporary files."""
FILE_CAP_BYTES = 256 * 1024 * 1024
"""A file of output is not written further than this; what comes behind is counted and dropped."""


class Record:
    """A file of output, for its owner only; `again` goes on with one. Raises OSError if it cannot be made."""

    def __init__(self, path: Path, *, again: bool = False) -> None:
        self.path = path
        self.total_bytes = 0
        self.flaw = ""
        """Why the file is not complete, if it is not."""
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if again else os.O_EXCL)
        self._file: int | None = private_files.open_file(path, flags, below=BELOW)

    def take(self, data: bytes) -> None:
        before, self.total_bytes = self.total_bytes, self.total_bytes + len(data)
        if self._file is None or self.flaw:
            return
        left = memoryview(data)[: FILE_CAP_BYTES - before]
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as flaw:
            self.flaw = f"the rest could not be saved: {flaw.strerror}"
        if self.total_bytes > FILE_CAP_BYTES:
            self.flaw = f"the rest behind {FILE_CAP_BYTES >> 20} MB was dropped"

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            try:
                os.close(file)
            except OSError as flaw:  # where writes are done later, this is the place to fail
                self.flaw = self.flaw or f"the rest could not be saved: {flaw.strerror}"


class Output:
    """The beginning of what a command writes, and where the whole of it is if that is too much."""

    def __init__(self, keep_bytes: int, spill_to: Callable[[], Path]) -> None:
        self.kept = bytearray()
        self.total_bytes = 0
        self.flaw = ""
        self._keep_bytes = keep_bytes
        self._spill_to = spill_to
        self._record: Record | None = None

    @property
    def path(self) -> Path | None:
        return self._record.path if self._record is not None else None

    def take(self, data: bytes) -> None:
        self.total_bytes += len(data)
        room = self._keep_bytes - len(self.kept)
        if self._record is None and len(data) > room and not self.flaw:
            self._spill()
        if self._record is not None:
            self._record.take(data)
            self.flaw = self._record.flaw
        if room > 0:
            self.kept += data[:room]

    def close(self) -> None:
        if self._record is not None:
            self._record.close()

    def _spill(self) -> None:
        try:
            self._record = Record(self._spill_to())
        except OSError as flaw:
            self.flaw = f"it could not be saved: {flaw.strerror}"
            return
        self._record.take(bytes(self.kept))


def private_folder(parent: Path, *names: str) -> Path:
    """A folder in a place that others can write to, which only we can enter. Raises ToolError if somebody took it."""
    folder = parent
    for name in names:
        folder = folder / name
        try:
            with private_files.opened_folder(folder, below=1, make=True, to_list=True) as (opened, _):
                found = os.fstat(opened)
                if found.st_uid != os.geteuid():
                    raise ToolError(f"{folder} is not a folder of ours")
                if found.st_mode & 0o077:
                    os.fchmod(opened, 0o700)
        except private_files.Unsafe as exc:
            raise ToolError(f"{folder} is not a folder of ours: {exc.strerror}") from None
        except OSError as flaw:
            raise ToolError(f"the folder {folder} cannot be made: {flaw.strerror}") from None
    return folder
