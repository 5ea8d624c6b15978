"""Record the bytes between a client and an engine without secrets.

    recorder = ConversationRecorder(path, make_header(command, redactor, cwd=cwd), redactor)
    recorder.feed(Direction.OUT, b'{"type": ...}\\n')       # half lines wait for the rest
    recorder.end(exit_code)

Lines wait while the model's stream is inside a block: a secret may span several of its events. A line in which nothing
was found keeps its bytes.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from parley.stores.wire_recording import Direction, KeptLine, Record, WireHeader, WireRecorder, decode_line
from parley.stores.wire_redaction import WireRedactor, clean_command
from parley.transports.base import Transport
from parley.version import __version__

MOST_HELD = 5000
"""How many lines wait at most; a block of the model is shorter."""


def make_header(command: Sequence[str], redactor: WireRedactor, *, cwd: str, env: Sequence[str] = ()) -> WireHeader:
    """The header of a recording that starts now."""
    return WireHeader(
        command=tuple(clean_command(command, redactor.redact_text)),
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        cwd=cwd,
        env=tuple(env),
        recorder=f"parley {__version__}",
    )


class CleanLines:
    """Delivers lines in order, without secrets, as they may be kept."""

    def __init__(self, redactor: WireRedactor, deliver: Callable[[KeptLine], None]) -> None:
        self._redactor = redactor
        self._deliver = deliver
        self._held: list[KeptLine] = []
        self._blocks: set[tuple[Any, Any]] = set()
        """The blocks that are streamed, by agent and index."""

    def add(self, line: KeptLine) -> None:
        self._held.append(line)
        self._follow_blocks(line.record)
        if not self._blocks or len(self._held) >= MOST_HELD:
            self.flush()

    def flush(self) -> None:
        held, self._held = self._held, []
        for line, record in zip(held, self._redactor.redact([line.record for line in held]), strict=True):
            self._deliver(make_clean(line, record))

    def _follow_blocks(self, record: Record) -> None:
        _, _, direction, _, line = record
        if direction is not Direction.OUT or not isinstance(line, dict):
            return
        event = line.get("event") if line.get("type") == "stream_event" else None
        if line.get("type") == "result":
            self._blocks.clear()
        if not isinstance(event, dict):
            return
        block = repr(line.get("parent_tool_use_id")), repr(event.get("index"))
        match event.get("type"):
            case "content_block_start" | "content_block_delta":
                self._blocks.add(block)
            case "content_block_stop":
                self._blocks.discard(block)
            case "message_start" | "message_stop":
                self._blocks = {other for other in self._blocks if other[0] != block[0]}


def make_clean(line: KeptLine, record: Record) -> KeptLine:
    """The line as its redacted record has it."""
    if line.eof or record[4] == line.record[4]:
        return line
    clean = record[4]
    data = clean.encode() if isinstance(clean, str) else msgspec.json.encode(clean)
    return KeptLine(record=record, data=data, eol=line.eol)


class LineFeed(CleanLines):
    """The same for the bytes of each direction, which it cuts into lines."""

    def __init__(self, redactor: WireRedactor, deliver: Callable[[KeptLine], None]) -> None:
        super().__init__(redactor, deliver)
        self._halves = {direction: bytearray() for direction in Direction}

    def receive(self, direction: Direction, at: float, data: bytes) -> None:
        """Take bytes; empty bytes are the end of the stream."""
        half = self._halves[direction]
        whole, newline, rest = data.rpartition(b"\n")
        if newline:
            for line in (bytes(half) + whole).split(b"\n"):
                self._add_line(direction, at, line)
            half.clear()
        half += rest if newline else data
        if not data:
            self._end_line(direction, at)
            self.add(KeptLine(record=self._number((0, at, direction, 0, None)), data=b"", eof=True))

    def _end_line(self, direction: Direction, at: float) -> None:
        """The rest of a stream that has ended, which has no newline."""
        half = self._halves[direction]
        if half:
            self._add_line(direction, at, bytes(half), eol=False)
            half.clear()

    def _add_line(self, direction: Direction, at: float, data: bytes, *, eol: bool = True) -> None:
        record = self._number((0, at, direction, len(data), decode_line(data, direction)))
        self.add(KeptLine(record=record, data=data, eol=eol))

    def _number(self, record: Record) -> Record:
        return record


class ConversationRecorder(LineFeed):
    """Writes a recording of what is fed to it."""

    def __init__(
        self, path: Path, header: WireHeader, redactor: WireRedactor, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` returns seconds. Raises UsageError."""
        self._file = WireRecorder(path, header)
        super().__init__(redactor, self._file.add)
        self._clock, self._started = clock, clock()
        self._is_open = True

    def feed(self, direction: Direction, data: bytes) -> None:
        """Raises OSError."""
        if self._is_open and data:
            self.receive(direction, self._clock() - self._started, data)

    def end_stream(self, direction: Direction) -> None:
        """Raises OSError."""
        if self._is_open:
            self.receive(direction, self._clock() - self._started, b"")

    def end(self, exit_code: int | None) -> None:
        """Close the recording; without an exit code it is a cut one. Raises OSError."""
        if self._is_open:
            self._is_open = False
            self.flush()
            if exit_code is not None:
                self._file.end(self._clock() - self._started, exit_code)
            self._file.close()


class RecordedTransport:
    """The engine's end of a transport. What passes is recorded."""

    def __init__(self, inner: Transport, recorder: ConversationRecorder) -> None:
        self._inner = inner
        self._recorder = recorder
        self._closed = False

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            self._recorder.feed(Direction.IN, chunk)
            yield chunk
        self._recorder.end_stream(Direction.IN)

    def write(self, data: bytes) -> None:
        self._recorder.feed(Direction.OUT, data)
        self._inner.write(data)

    async def drain(self) -> None:
        await self._inner.drain()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._recorder.end_stream(Direction.OUT)
            self._inner.close()
