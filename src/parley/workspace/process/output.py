"""Collect the output of commands: the start in memory, all of it (up to a limit) in a file.

`CommandOutput` is for a foreground command; the file is created when the memory limit is reached. `OutputRecord` is
the file; a background command uses it alone, so that its output can be read while it runs. If the disk is full, the
rest of the file is lost and the command continues.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from parley.errors import ToolError
from parley.workspace import private_files

BELOW = 4
"""How many folders above an output file are ours, in the configuration folder and in the temporary folder."""
FILE_CAP_BYTES = 256 * 1024 * 1024
"""The size limit of an output file. Further output is counted and dropped."""


class OutputRecord:
    """An output file, private to the user. `again` appends to an existing one. Raises OSError."""

    def __init__(self, path: Path, *, again: bool = False) -> None:
        self.path = path
        self.total_bytes = 0
        self.problem = ""
        """Why the file is incomplete; "" if it is complete."""
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if again else os.O_EXCL)
        self._file: int | None = private_files.open_file(path, flags, below=BELOW)

    def take(self, data: bytes) -> None:
        before, self.total_bytes = self.total_bytes, self.total_bytes + len(data)
        if self._file is None or self.problem:
            return
        left = memoryview(data)[: FILE_CAP_BYTES - before]
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as exc:
            self.problem = f"the rest could not be saved: {exc.strerror}"
        if self.total_bytes > FILE_CAP_BYTES:
            self.problem = f"the output after {FILE_CAP_BYTES >> 20} MB was dropped"

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            try:
                os.close(file)
            except OSError as exc:  # delayed writes report their errors here
                self.problem = self.problem or f"the rest could not be saved: {exc.strerror}"


class CommandOutput:
    """The start of a command's output, and the file with all of it if it exceeds `keep_bytes`."""

    def __init__(self, keep_bytes: int, spill_to: Callable[[], Path]) -> None:
        self.kept = bytearray()
        self.total_bytes = 0
        self.problem = ""
        self._keep_bytes = keep_bytes
        self._spill_to = spill_to
        self._record: OutputRecord | None = None

    @property
    def path(self) -> Path | None:
        return self._record.path if self._record is not None else None

    def take(self, data: bytes) -> None:
        self.total_bytes += len(data)
        room = self._keep_bytes - len(self.kept)
        if self._record is None and len(data) > room and not self.problem:
            self._spill()
        if self._record is not None:
            self._record.take(data)
            self.problem = self._record.problem
        if room > 0:
            self.kept += data[:room]

    def close(self) -> None:
        if self._record is not None:
            self._record.close()

    def _spill(self) -> None:
        try:
            self._record = OutputRecord(self._spill_to())
        except OSError as exc:
            self.problem = f"it could not be saved: {exc.strerror}"
            return
        self._record.take(bytes(self.kept))


def private_folder(parent: Path, *names: str) -> Path:
    """Create private folders in a shared folder such as /tmp. Raises ToolError if another user owns one of them."""
    folder = parent
    for name in names:
        folder = folder / name
        try:
            with private_files.open_folder(folder, below=1, make=True, to_list=True) as (opened, _):
                found = os.fstat(opened)
                if found.st_uid != os.geteuid():
                    raise ToolError(f"{folder} belongs to another user")
                if found.st_mode & 0o077:
                    os.fchmod(opened, 0o700)
        except private_files.UnsafeFile as exc:
            raise ToolError(exc.strerror) from None
        except OSError as exc:
            raise ToolError(f"cannot create the folder {folder}: {exc.strerror}") from None
    return folder
