r"""Merge HTTP chunks that arrive together, before the HTTP library parses them.

A server sends each event as its own chunk, and the library spends as much time on a chunk as all other work on its
event. Complete chunks from one read are passed on as one:

    5\r\nfirst\r\n6\r\nsecond\r\n    ->    b\r\nfirstsecond\r\n

Nothing is delayed: data is passed on immediately, an incomplete chunk unchanged. Anything that is not plainly a chunk
(another framing, extensions, trailers, invalid data) is passed on unchanged for the library to handle.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

BLANK_LINE = re.compile(rb"\n\r?\n")
CHUNKED = re.compile(rb"HTTP/1\.1 [2-5][^\n]*\n(?:[^\n]*\n)*?(?i:transfer-encoding):[ \t]*(?i:chunked)[ \t]*\r?\n")
"""A response head with chunked encoding, except for interim responses (1xx)."""
SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})\r\n")
UNFINISHED_SIZE = re.compile(rb"[0-9A-Fa-f]{0,16}\r?")
LONGEST_HEAD_BYTES = 16 * 1024


class ChunkMerger:
    """Merges the chunks of one connection, response by response."""

    def __init__(self) -> None:
        self._head: bytes | None = b""
        """The head so far; None after it."""
        self._is_chunked = False
        self._held = b""
        """An incomplete chunk size line."""
        self._left_bytes = 0
        """The rest of a chunk whose start was already passed on."""

    def begin(self) -> None:
        """A request was sent, so the next data is a response head."""
        self._head, self._is_chunked, self._held, self._left_bytes = b"", False, b"", 0

    def feed(self, data: bytes) -> bytes:
        """The data to pass on. Empty only if all that arrived is an incomplete size line."""
        if self._head is None:
            return self._merge(data) if self._is_chunked else data
        head = self._head + data
        end = BLANK_LINE.search(head)
        if end is None:
            self._head = head if len(head) <= LONGEST_HEAD_BYTES else None
            return data
        body = head[end.end() :]
        self._head, self._is_chunked = None, CHUNKED.match(head, 0, end.end()) is not None
        if not self._is_chunked or not body:
            return data
        return data[: -len(body)] + self._merge(body)

    def end(self) -> bytes:
        """The held data, when the connection ends."""
        held, self._held = self._held, b""
        return held

    def _merge(self, data: bytes) -> bytes:
        data = self.end() + data
        at = min(self._left_bytes, len(data))
        self._left_bytes -= at
        before = data[:at]
        pieces: list[bytes] = []
        while size := SIZE.match(data, at):
            begin = size.end()
            end = begin + int(size[1], 16)
            if end == begin:
                break
            if end + 2 > len(data):
                self._left_bytes = end + 2 - len(data)
                return before + encode_chunk(pieces) + data[at:]
            if data[end : end + 2] != b"\r\n":
                break
            pieces.append(data[begin:end])
            at = end + 2
        rest = data[at:]
        if UNFINISHED_SIZE.fullmatch(rest):
            self._held, rest = rest, b""
        else:
            self._is_chunked = False  # The last chunk, or one that we do not parse.
        return before + encode_chunk(pieces) + rest


def encode_chunk(pieces: list[bytes]) -> bytes:
    """One chunk with all pieces; empty if there are none."""
    data = b"".join(pieces)
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class MergingStream:
    """A connection of the HTTP library with merged chunks. Arguments are passed through."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._merger = ChunkMerger()

    async def read(self, *args: Any, **kwargs: Any) -> bytes:
        while data := await self._inner.read(*args, **kwargs):
            if merged := self._merger.feed(data):
                return merged
        return self._merger.end()

    async def write(self, *args: Any, **kwargs: Any) -> None:
        self._merger.begin()
        await self._inner.write(*args, **kwargs)

    async def start_tls(self, *args: Any, **kwargs: Any) -> MergingStream:
        return MergingStream(await self._inner.start_tls(*args, **kwargs))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class MergingBackend:
    """A network backend of the HTTP library with merged chunks."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def connect_tcp(self, *args: Any, **kwargs: Any) -> MergingStream:
        return MergingStream(await self._inner.connect_tcp(*args, **kwargs))

    async def connect_unix_socket(self, *args: Any, **kwargs: Any) -> MergingStream:
        return MergingStream(await self._inner.connect_unix_socket(*args, **kwargs))

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


def merge_chunks(client: httpx2.AsyncClient) -> None:
    """Merge chunks on all connections of a client.

    The library below `httpx2` takes a network backend as an argument, but `httpx2` does not expose it, so a private
    attribute is set. If a new version moves that attribute, calls stay correct and become slower.
    """
    for transport in (client._transport, *client._mounts.values()):
        pool: Any = getattr(transport, "_pool", None)
        if (backend := getattr(pool, "_network_backend", None)) is not None:
            pool._network_backend = MergingBackend(backend)
