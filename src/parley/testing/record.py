"""Record a conversation in this process, in the format of `inspector/recording.py`, without secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from parley.inspector.clean_lines import CleanLines, KeptLine
from parley.inspector.conversation import decode
from parley.inspector.records import Direction
from parley.transports.base import Transport


class LineRecorder:
    """Writes the bytes of one direction line by line."""

    def __init__(self, lines: CleanLines, direction: Direction, now: Callable[[], float]) -> None:
        self._lines = lines
        self._direction = direction
        self._now = now
        self._half = b""

    def feed(self, data: bytes) -> None:
        *lines, self._half = (self._half + data).split(b"\n")
        for line in lines:
            self._add(line)

    def end(self) -> None:
        if self._half:
            self._add(self._half, eol=False)
        self._lines.add(KeptLine(record=(0, self._now(), self._direction, 0, None), data=b"", eof=True))

    def _add(self, line: bytes, *, eol: bool = True) -> None:
        record = (0, self._now(), self._direction, len(line), decode(line, self._direction))
        self._lines.add(KeptLine(record=record, data=line, eol=eol))


class RecordedTransport:
    """The engine's end of a transport. What passes is recorded."""

    def __init__(self, inner: Transport, lines: CleanLines, now: Callable[[], float]) -> None:
        """`now` returns the seconds since the start."""
        self._inner = inner
        self._client = LineRecorder(lines, Direction.IN, now)
        self._engine = LineRecorder(lines, Direction.OUT, now)
        self._closed = False

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            self._client.feed(chunk)
            yield chunk
        self._client.end()

    def write(self, data: bytes) -> None:
        self._engine.feed(data)
        self._inner.write(data)

    async def drain(self) -> None:
        await self._inner.drain()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._engine.end()
            self._inner.close()
