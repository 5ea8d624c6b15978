"""HTTP chunks that came together become one chunk, before the HTTP library sees them.

A backend sends each event of a stream as a chunk of its own, and the library takes as long for a
chunk as everything else we do with its event. When many have arrived by the time we read, they
are handed on as one:

    5\r\nfirst\r\n6\r\nsecond\r\n    ->    b\r\nfirstsecond\r\n

Nothing waits for more: what was read is handed on at once, a chunk that is not complete as it came.
Whatever is not plainly such a chunk (another framing, extensions, trailers, a flaw) stays as it is,
for the library to judge.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

BLANK_LINE = re.compile(rb"\n\r?\n")
CHUNKED = re.compile(rb"HTTP/1\.1 [2-5][^\n]*\n(?:[^\n]*\n)*?(?i:transfer-encoding):[ \t]*(?i:chunked)[ \t]*\r?\n")
"""A head that says so; one of an interim answer (1xx) is not meant."""
SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})\r\n")
UNFINISHED_SIZE = re.compile(rb"[0-9A-Fa-f]{0,16}\r?")
LONGEST_HEAD_BYTES = 16 * 1024


class Merger:
    """The bytes of one connection, answer by answer."""

    def __init__(self) -> None:
        self._head: bytes | None = b""
        """What came of it; None behind it."""
        self._is_chunked = False
        self._held = b""
        """The beginning of a line that says how long a chunk is."""
        self._left_bytes = 0
        """What is still to come of a chunk that was handed on before it was complete."""

    def begin(self) -> None:
        """A request was sent: what comes now is the head of its answer."""
        self._head, self._is_chunked, self._held, self._left_bytes = b"", False, b"", 0

    def feed(self, data: bytes) -> bytes:
        """What to hand on for it; nothing only if the beginning of a line is all that came."""
        if self._head is None:
            return self._merged(data) if self._is_chunked else data
        head = self._head + data
        end = BLANK_LINE.search(head)
        if end is None:
            self._head = head if len(head) <= LONGEST_HEAD_BYTES else None
            return data
        body = head[end.end() :]
        self._head, self._is_chunked = None, CHUNKED.match(head, 0, end.end()) is not None
        if not self._is_chunked or not body:
            return data
        return data[: -len(body)] + self._merged(body)

    def end(self) -> bytes:
        """What was held when the connection ended."""
        held, self._held = self._held, b""
        return held

    def _merged(self, data: bytes) -> bytes:
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
                return before + chunk(pieces) + data[at:]
            if data[end : end + 2] != b"\r\n":
                break
            pieces.append(data[begin:end])
            at = end + 2
        rest = data[at:]
        if UNFINISHED_SIZE.fullmatch(rest):
            self._held, rest = rest, b""
        else:
            self._is_chunked = False  # the last chunk, or one that is not for us to read
        return before + chunk(pieces) + rest


def chunk(pieces: list[bytes]) -> bytes:
    """One chunk of all these; nothing of none."""
    data = b"".join(pieces)
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class Stream:
    """A connection of the HTTP library, whose chunks are merged. Arguments are the library's business."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._merger = Merger()

    async def read(self, *wanted: Any, **how: Any) -> bytes:
        while data := await self._inner.read(*wanted, **how):
            if merged := self._merger.feed(data):
                return merged
        return self._merger.end()

    async def write(self, *what: Any, **how: Any) -> None:
        self._merger.begin()
        await self._inner.write(*what, **how)

    async def start_tls(self, *whom: Any, **how: Any) -> Stream:
        return Stream(await self._inner.start_tls(*whom, **how))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class Backend:
    """What the HTTP library connects with."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def connect_tcp(self, *place: Any, **how: Any) -> Stream:
        return Stream(await self._inner.connect_tcp(*place, **how))

    async def connect_unix_socket(self, *place: Any, **how: Any) -> Stream:
        return Stream(await self._inner.connect_unix_socket(*place, **how))

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


def merge_chunks(client: httpx2.AsyncClient) -> None:
    """Make all connections of a client merge chunks.

    The library underneath takes a backend as an argument, but `httpx2` has none to pass it through. So it is
    set where it is kept; should that place be another one some day, all stays as right as it is, and slower.
    """
    for transport in (client._transport, *client._mounts.values()):
        pool: Any = getattr(transport, "_pool", None)
        if (backend := getattr(pool, "_network_backend", None)) is not None:
            pool._network_backend = Backend(backend)
