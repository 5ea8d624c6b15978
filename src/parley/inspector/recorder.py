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

from parley.inspector.recording import Direction, KeptLine, Record, WireHeader, WireRecorder, decode_line
from parley.inspector.redaction import WireRedactor, clean_command
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


class LineSplitter:
    """Cuts the bytes of each direction into lines."""

    def __init__(self) -> None:
        self._halves = {direction: bytearray() for direction in Direction}

    def feed(self, direction: Direction, data: bytes) -> list[bytes]:
        """The lines that the bytes complete, without their newlines."""
        half = self._halves[direction]
        whole, newline, rest = data.rpartition(b"\n")
        if not newline:
            half += data
            return []
        lines = (bytes(half) + whole).split(b"\n")
        half[:] = rest
        return lines

    def end(self, direction: Direction) -> bytes:
        """The rest of a stream that has ended, which has no newline."""
        rest, self._halves[direction] = self._halves[direction], bytearray()
        return bytes(rest)


class ConversationRecorder:
    """Writes a recording of what is fed to it."""

    def __init__(
        self, path: Path, header: WireHeader, redactor: WireRedactor, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` returns seconds. Raises UsageError."""
        self._file = WireRecorder(path, header)
        self._lines = CleanLines(redactor, self._file.add)
        self._splitter = LineSplitter()
        self._clock, self._started = clock, clock()
        self._is_open = True

    def feed(self, direction: Direction, data: bytes) -> None:
        """Raises OSError."""
        for line in self._splitter.feed(direction, data):
            self._add(direction, line)

    def end_stream(self, direction: Direction) -> None:
        """Raises OSError."""
        if rest := self._splitter.end(direction):
            self._add(direction, rest, eol=False)
        self._add(direction, b"", eof=True)

    def end(self, exit_code: int | None) -> None:
        """Close the recording; without an exit code it is a cut one. Raises OSError."""
        if self._is_open:
            self._is_open = False
            self._lines.flush()
            if exit_code is not None:
                self._file.end(self._clock() - self._started, exit_code)
            self._file.close()

    def _add(self, direction: Direction, data: bytes, *, eol: bool = True, eof: bool = False) -> None:
        if self._is_open:
            at = self._clock() - self._started
            record = (0, at, direction, len(data), None if eof else decode_line(data, direction))
            self._lines.add(KeptLine(record=record, data=data, eol=eol, eof=eof))


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
