"""Look at a copy of what the relay passes on: show it, record it, and keep it for a report.

    observer = Observer(show, sinks, redactor)
    observer.run(line)                  # until the relay is gone

It runs in a process of its own. An error here has no effect on the conversation: it is reported once, and the
rest continues.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from parley.inspector.conversation import TextView, WireConversation, WireRow
from parley.inspector.recorder import LineFeed
from parley.inspector.relay import CHUNK_BYTES, CLIENT, ENDED, ENGINE, FRAME, LOST, NUMBER, STARTED, STDERR
from parley.stores.wire_recording import Direction, KeptLine, Record
from parley.stores.wire_redaction import WireRedactor

DIRECTIONS = {CLIENT: Direction.IN, ENGINE: Direction.OUT, STDERR: Direction.ERR}
AGES_SECONDS = (5.0, 30.0, 120.0, 600.0, 3600.0)
"""When it is said that a request still waits."""


class LineSink(Protocol):
    """Where lines without secrets go: a recording or a report."""

    def add(self, line: KeptLine) -> None:
        """Raises OSError."""

    def end(self, at: float, exit_code: int) -> None:
        """Raises OSError."""

    def close(self) -> None:
        """Raises OSError."""


class CopyReader:
    """Reads frames of the relay."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._data = bytearray()
        self.is_open = True

    def read(self, seconds: float | None) -> Iterator[tuple[int, float, bytes]]:
        """Wait for bytes; the whole frames so far: kind, time, data."""
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        if poll.poll(None if seconds is None else max(0.0, seconds) * 1000):
            data = self._line.recv(CHUNK_BYTES)
            self.is_open = bool(data)
            self._data += data
        while len(self._data) >= FRAME.size:
            kind, at, size = FRAME.unpack_from(self._data)
            if len(self._data) < FRAME.size + size:
                break
            yield kind, at, bytes(self._data[FRAME.size : FRAME.size + size])
            del self._data[: FRAME.size + size]


class LineObserver(LineFeed):
    def __init__(self, show: Callable[[str], None], sinks: list[LineSink], redactor: WireRedactor) -> None:
        """`show` writes a line of text."""
        super().__init__(redactor, lambda line: self._write_to_sinks(lambda sink: sink.add(line)))
        self.conversation = WireConversation()
        self.exit_code: int | None = None
        self._show = show
        self._sinks = sinks
        self._view = TextView(redactor.redact_text)
        self._started = time.monotonic()
        self._last = 1
        """The line of the recording that was written last; the first is its header."""
        self._said: dict[int, int] = {}
        """How many warnings there were about each request without an answer."""

    def run(self, line: socket.socket) -> None:
        """Until the relay has ended."""
        frames = CopyReader(line)
        while frames.is_open:
            for kind, at, data in frames.read(self._next_age()):
                self._handle(kind, at, data)
            self._say_ages()
        self._finish()

    def _handle(self, kind: int, at: float, data: bytes) -> None:
        if kind == STARTED:
            self._started = at
        elif kind == LOST:
            (lost,) = NUMBER.unpack(data)
            self._show(f"{lost} bytes were passed on but not recorded, because they came faster than they are written")
        elif kind == ENDED:
            (self.exit_code,) = NUMBER.unpack(data)
        else:
            self.receive(DIRECTIONS[kind], at - self._started, data)

    def _number(self, record: Record) -> Record:
        self._last += 1
        return (self._last, *record[1:])

    def _add_line(self, direction: Direction, at: float, data: bytes, *, eol: bool = True) -> None:
        self._last += 1
        row = self.conversation.add(self._last, at, direction, data)
        self._show(self._view.format_line(row) + ("" if eol else "  (no newline)"))
        self.add(KeptLine(record=row.record, data=data, eol=eol))

    def _write_to_sinks(self, write: Callable[[LineSink], None]) -> None:
        for sink in list(self._sinks):
            try:
                write(sink)
            except OSError as exc:
                self._sinks.remove(sink)
                self._show(f"cannot record any more: {exc.strerror}; the conversation continues")

    def _finish(self) -> None:
        now = time.monotonic() - self._started
        for direction in Direction:
            self._end_line(direction, now)
        self.flush()
        self.conversation.last_at = now
        if self.exit_code is not None:
            code = self.exit_code
            self._write_to_sinks(lambda sink: sink.end(now, code))
        for line in self._view.format_summary(self.conversation, describe_ending(self.exit_code)):
            self._show(line)

    def _next_age(self) -> float | None:
        """Seconds until the next warning about a request without an answer; None if there is none."""
        due = min(map(self._due, self.conversation.timeline.open), default=float("inf"))
        return due - (time.monotonic() - self._started) if due < float("inf") else None

    def _due(self, row: WireRow) -> float:
        said = self._said.get(row.number, 0)
        return row.time + AGES_SECONDS[said] if said < len(AGES_SECONDS) else float("inf")

    def _say_ages(self) -> None:
        now = time.monotonic() - self._started
        for row in self.conversation.timeline.open:
            if self._due(row) <= now:
                self._said[row.number] = self._said.get(row.number, 0) + 1
                self._show(self._view.format_waiting(row, now))


def describe_ending(exit_code: int | None) -> str:
    if exit_code is None:
        return "its end was not recorded"
    return f"the engine was ended by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
