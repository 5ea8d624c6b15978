"""A bounded file of what a session and its engine said to each other.

    wire.add(Direction.IN, data)   lines to the engine
    wire.add(Direction.OUT, data)  lines of the engine
    wire.read(after, limit, ...)   the records after a number

Lines are collected in memory and written a second later, so that a stream costs nothing but a place in a list. After a
crash the last second is missing. The records are in files of a folder, named after the number of their first record;
when they are too large together, the oldest is deleted. Lines are written as they are, after a head with the number of
the first of them, the time in milliseconds and the direction:

    #17 1794893109123 out
    {"type":"stream_event",...}
    {"type":"stream_event",...}
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from parley.stores.wire_recording import Direction, Record

log = logging.getLogger(__name__)


WIRE_BYTES = 16 * 1024 * 1024
"""How large the files of a session may be together."""
FILES = 8
"""In how many files they are kept."""
DELAY_SECONDS = 1.0
BUFFER_BYTES = 1024 * 1024
"""How much is collected at most before it is written."""
HEAD = re.compile(rb"#(\d+) (\d+) (in|out)")


class WireLog:
    def __init__(self, folder: Path, max_bytes: int = WIRE_BYTES) -> None:
        """`max_bytes`: 0 to keep nothing."""
        self.is_kept = max_bytes > 0
        self._folder = folder
        self._file_bytes = max_bytes // FILES
        self._waiting: list[tuple[float, Direction, bytes]] = []
        self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._last: int | None = None
        """The number of the last written record; None before the files were looked at."""

    def add(self, direction: Direction, data: bytes) -> None:
        """Add whole lines. Never waits."""
        if not self.is_kept:
            return
        self._waiting.append((time.time(), direction, data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes > BUFFER_BYTES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELAY_SECONDS, self.flush)

    def flush(self) -> None:
        """Write what was collected. If the device is full, it is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not waiting:
            return
        first = self.last() + 1
        number, parts = first, []
        said: tuple[int, Direction] | None = None
        for at, direction, data in waiting:
            now = int(at * 1000), direction
            if now != said:
                said = now
                parts.append(b"#%d %d %b\n" % (number, now[0], direction.encode()))
            parts.append(data)
            number += data.count(b"\n")
        try:
            self._write(first, b"".join(parts))
            self._last = number - 1
        except OSError as exc:
            self._last = None
            log.warning("cannot write %s: %s", self._folder, exc.strerror)

    def _write(self, first: int, data: bytes) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        files = self._files()
        path = files[-1][1] if files else None
        if path is None or path.stat().st_size > self._file_bytes:
            path = self._folder / f"{first:012d}.jsonl"
            for _, old in files[: len(files) + 1 - FILES]:
                old.unlink()
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab") as file:
            file.write(data)

    def last(self) -> int:
        """The number of the last written record."""
        if self._last is None:
            files = self._files()
            self._last = find_last(files[-1][1]) if files else 0
        return self._last

    def read(self, after: int, limit: int, max_bytes: int) -> list[Record]:
        """Records after a number, at least one if there is one, up to about `max_bytes`. Call `flush` before."""
        found: list[Record] = []
        files = self._files()
        size = 0
        for at, (_, path) in enumerate(files):
            if at + 1 < len(files) and files[at + 1][0] <= after + 1:
                continue
            for number, at_ms, direction, line in read_file(path):
                if number <= after:
                    continue
                if len(found) == limit or (found and size > max_bytes):
                    return found
                size += len(line)
                with suppress(msgspec.DecodeError, RecursionError):  # nested too deeply
                    found.append((number, at_ms / 1000, direction, len(line) + 1, msgspec.json.decode(line)))
        return found

    def _files(self) -> list[tuple[int, Path]]:
        """The files, oldest first, each with the number of its first record."""
        try:
            return sorted((int(path.stem), path) for path in self._folder.iterdir() if path.stem.isdecimal())
        except FileNotFoundError:
            return []

    def remove(self) -> None:
        """Delete everything."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting = []
        shutil.rmtree(self._folder, ignore_errors=True)


def read_file(path: Path) -> Iterator[tuple[int, int, Direction, bytes]]:
    """The number, the time in milliseconds, the direction and the line of every record. Nothing if it was deleted."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return
    number, at_ms, direction = 0, 0, Direction.OUT
    for line in lines:
        if found := HEAD.fullmatch(line):
            number, at_ms, direction = int(found[1]), int(found[2]), Direction(found[3].decode())
        else:
            yield number, at_ms, direction, line
            number += 1


def find_last(path: Path) -> int:
    """The number of the last record in a file. What a crash left of another one is removed."""
    data = path.read_bytes()
    size = data.rfind(b"\n") + 1
    if size != len(data):
        os.truncate(path, size)
    numbers = [number for number, *_ in read_file(path)]
    return numbers[-1] if numbers else int(path.stem) - 1
