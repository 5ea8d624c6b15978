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
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import SessionError
from parley.protocol.base import Struct

READ_BYTES = 256 * 1024
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
        end = min(before, self.last + 1)
        number = max(0, end - 1 - limit)
        found: deque[tuple[int, bytes]] = deque()
        size = 0
        while number < end - 1 and (lines := self.read(number)):
            for number, line in lines:
                if number >= end:
                    break
                found.append((number, line))
                size += len(line)
                while size > max_bytes and len(found) > 1:
                    size -= len(found.popleft()[1])
        return list(found)

    def find(self, uuid: str) -> int | None:
        """The number of the first message with an id. May be called in a thread. Raises SessionError."""
        wanted = uuid.encode(errors="replace")
        try:
            with open(self._path, "rb") as file:
                for number, line in enumerate(file, 1):
                    if wanted in line and line.endswith(b"\n") and read_uuid(line) == uuid:
                        return number
        except OSError as exc:
            raise SessionError(f"cannot read {self._path}: {exc.strerror}") from None
        return None

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
