"""Record a conversation in this process, in the format of `inspector/recording.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from parley.inspector.recording import Sender, WireRecorder
from parley.transports.base import Transport


class LineRecorder:
    """Writes the bytes of one sender line by line."""

    def __init__(self, recorder: WireRecorder, sender: Sender, now_ms: Callable[[], float]) -> None:
        self._recorder = recorder
        self._sender = sender
        self._now_ms = now_ms
        self._half = b""

    def feed(self, data: bytes) -> None:
        *lines, self._half = (self._half + data).split(b"\n")
        for line in lines:
            self._recorder.line(self._now_ms(), self._sender, line)

    def end(self) -> None:
        if self._half:
            self._recorder.line(self._now_ms(), self._sender, self._half, eol=False)
        self._recorder.eof(self._now_ms(), self._sender)


class RecordedTransport:
    """The engine's end of a transport. What passes is recorded."""

    def __init__(self, inner: Transport, recorder: WireRecorder, now_ms: Callable[[], float]) -> None:
        self._inner = inner
        self._client = LineRecorder(recorder, "client", now_ms)
        self._engine = LineRecorder(recorder, "engine", now_ms)
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
