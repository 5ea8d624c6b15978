"""The numbered lines of a session, in a file.

    log.append(line)          the number of the line
    log.read(after, ...)      the lines after a number

Line n of the file has the number n, so a number is a cursor that stays valid for as long as the file exists. A line is
in the file before any client receives it. It survives the death of the process, but is not synced to the device: after
a power failure, the missing lines are copied from the transcript of the session.
"""

from __future__ import annotations

import os
from pathlib import Path

from parley.errors import SessionError

INDEX_EVERY = 256
"""The position of every 256th line is kept in memory."""
READ_BYTES = 256 * 1024


class LineLog:
    def __init__(self, path: Path) -> None:
        """Open the file, or create it. Raises SessionError."""
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise SessionError(f"cannot open {path}: {exc.strerror}") from None
        self._positions = [0]
        """Where the lines 1, 257, 513, ... begin."""
        self.last = 0
        """The number of the last line."""
        self._size = 0
        self._scan()

    def _scan(self) -> None:
        """Count the lines. A last line without its end was never sent: remove it."""
        position = 0
        while chunk := os.pread(self._file, READ_BYTES, position):
            start = 0
            while (end := chunk.find(b"\n", start)) >= 0:
                start = end + 1
                self._count(position + start)
            position += len(chunk)
        if position != self._size:
            os.ftruncate(self._file, self._size)

    def _count(self, size: int) -> None:
        self.last += 1
        self._size = size
        if self.last % INDEX_EVERY == 0:
            self._positions.append(size)

    def append(self, line: bytes) -> int:
        """Write a line, without its end, and return its number. Raises SessionError."""
        data = line + b"\n"
        try:
            written = os.write(self._file, data)
            if written != len(data):
                os.ftruncate(self._file, self._size)
                raise OSError(None, "the device is full")
        except OSError as exc:
            raise SessionError(f"cannot write {self._path}: {exc.strerror}") from None
        self._count(self._size + len(data))
        return self.last

    def read(self, after: int, max_bytes: int = READ_BYTES) -> list[tuple[int, bytes]]:
        """Lines after a number, at least one if there is one, up to about `max_bytes`. Raises SessionError."""
        after = max(after, 0)
        if after >= self.last:
            return []
        block, skip = divmod(after, INDEX_EVERY)
        position, number, size, rest = self._positions[block], block * INDEX_EVERY, 0, b""
        found: list[tuple[int, bytes]] = []
        while number < self.last and (size < max_bytes or not found):
            try:
                chunk = os.pread(self._file, READ_BYTES, position)
            except OSError as exc:
                raise SessionError(f"cannot read {self._path}: {exc.strerror}") from None
            if not chunk:
                break
            position += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                number += 1
                if skip:
                    skip -= 1
                elif size < max_bytes or not found:
                    found.append((number, line))
                    size += len(line)
        return found

    def close(self) -> None:
        """A later use fails, and does not reach the file that gets this descriptor next."""
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)
