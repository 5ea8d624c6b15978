"""The numbered lines of a session, in a file.

    log.append(line)              the number of the line
    log.read(after, ...)          the lines after a number
    log.read_before(before, ...)  the lines before a number
    log.times(first, last)        when lines were written

Line n of the file has the number n, so a number is a cursor that stays valid for as long as the file exists. A line is
in the file before any client receives it. It survives the death of the process, but is not synced to the device: after
a power failure, the missing lines are copied from the transcript of the session. The times are in a second file, eight
bytes per line.
"""

from __future__ import annotations

import os
import struct
import time
from array import array
from bisect import bisect_left, bisect_right
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import SessionError
from parley.protocol.base import Struct

READ_BYTES = 256 * 1024
SEARCH_BYTES = 32 * 1024 * 1024
"""How much is searched at a time for a message, so that others can read in between."""
TIME = struct.Struct("<d")
TIMES = ".times"
"""The suffix of the file with the times."""


class MessageId(Struct):
    uuid: Any = ""


_decoder = msgspec.json.Decoder(MessageId)


class LineLog:
    def __init__(self, path: Path) -> None:
        """Open the file, or create it. Raises SessionError."""
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise SessionError(f"cannot open {path}: {exc.strerror}") from None
        self._positions = array("Q", [0])
        """Where each line begins. A line may be long, so none is read to find another."""
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
        self._write_time()
        return self.last

    def _write_time(self) -> None:
        """Not kept open: a server has many sessions. A line without its time is as good as one with it."""
        with suppress(OSError):
            file = os.open(self._path.with_suffix(TIMES), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, TIME.pack(time.time()), (self.last - 1) * TIME.size)
            finally:
                os.close(file)

    def times(self, first: int, last: int) -> list[float | None]:
        """When the lines from one number to another were written; None where that is not known."""
        data = b""
        with suppress(OSError), open(self._path.with_suffix(TIMES), "rb") as file:
            file.seek((first - 1) * TIME.size)
            data = file.read((last - first + 1) * TIME.size)
        found = [at or None for (at,) in TIME.iter_unpack(data[: len(data) // TIME.size * TIME.size])]
        return [*found, *[None] * (last - first + 1 - len(found))]

    def read(self, after: int, max_bytes: int = READ_BYTES) -> list[tuple[int, bytes]]:
        """Lines after a number, at least one if there is one, up to about `max_bytes`. Raises SessionError."""
        after = max(after, 0)
        if after >= self.last:
            return []
        position, number, size = self._positions[after], after, 0
        found: list[tuple[int, bytes]] = []
        started: list[bytes] = []
        """The parts of a line whose end was not read."""
        while number < self.last and (size < max_bytes or not found):
            try:
                chunk = os.pread(self._file, READ_BYTES, position)
            except OSError as exc:
                raise SessionError(f"cannot read {self._path}: {exc.strerror}") from None
            if not chunk:
                break
            position += len(chunk)
            first, *others = chunk.split(b"\n")
            started.append(first)
            if not others:
                continue
            *lines, rest = b"".join(started), *others
            started = [rest]
            for line in lines:
                if size < max_bytes or not found:
                    number += 1
                    found.append((number, line))
                    size += len(line)
        return found

    def read_before(self, before: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """The last lines before a number, at least one if there is one, up to `max_bytes`. Raises SessionError."""
        last = min(before, self.last + 1) - 1
        if last < 1:
            return []
        end = self._positions[last]
        first = bisect_left(self._positions, end - max_bytes, max(0, last - limit), last - 1)
        return [(number, line) for number, line in self.read(first, end - self._positions[first]) if number <= last]

    def find(self, uuid: str, start: int = 0) -> tuple[int | None, int | None]:
        """The number of the first message with an id, and where to continue the search if there is more to be read.

        `start`: where an earlier call says. May be called in a thread. Raises SessionError.
        """
        wanted, position, stop = uuid.encode(errors="replace"), start, start + SEARCH_BYTES
        overlap = len(wanted) - 1
        try:
            with open(self._path, "rb") as file:
                while position < stop:
                    file.seek(position)
                    chunk, at, checked = file.read(READ_BYTES + overlap), 0, 0
                    if not chunk:
                        return None, None
                    while (at := chunk.find(wanted, at)) >= 0:
                        number = bisect_right(self._positions, position + at)
                        begin, checked = self._positions[number - 1], self._positions[min(number, self.last)]
                        if begin >= checked:  # the line is being written
                            return None, None
                        file.seek(begin)
                        if read_uuid(file.read(checked - begin)) == uuid:
                            return number, None
                        at, stop = checked - position, stop - (checked - begin)
                    position = max(position + READ_BYTES, checked)
        except OSError as exc:
            raise SessionError(f"cannot read {self._path}: {exc.strerror}") from None
        return None, position

    def close(self) -> None:
        """A later use fails, and does not reach the file that gets this descriptor next."""
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)


def read_uuid(line: bytes) -> str:
    """The id of a message; empty if it has none."""
    return str(_decoder.decode(line).uuid)


def remove_log(path: Path) -> None:
    """Delete the files of a log."""
    path.unlink(missing_ok=True)
    path.with_suffix(TIMES).unlink(missing_ok=True)
