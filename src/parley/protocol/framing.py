"""Bytes to lines and back.

A line ends at LF, nowhere else: a CR before it is dropped, a blank line means nothing,
and the separators U+2028 and U+2029 are ordinary characters. A line that grows over
the cap is drained, not buffered, and reported once as `OverLong`.

    framer = Framer()
    framer.feed(b'{"a":1}\\n{"b"')   ->  [b'{"a":1}']
    framer.feed(b':2}')             ->  []
    framer.end()                    ->  [b'{"b":2}']     the last line may lack its LF
"""

from __future__ import annotations

from parley.protocol.base import Struct

INBOUND_CAP = 32 * 1024 * 1024
HEAD_BYTES = 1024
BOM = b"\xef\xbb\xbf"


class OverlongLine(Struct, frozen=True):
    """A line was dropped because it was too long."""

    cap_bytes: int
    head: bytes = b""
    """How it began: enough to see what it was and who waits for an answer to it."""


Line = bytes | OverlongLine


class Framer:
    """Cuts a stream of bytes into lines, however the bytes arrive."""

    def __init__(self, cap_bytes: int = INBOUND_CAP) -> None:
        self._cap_bytes = cap_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._draining = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[Line]:
        """The lines that this chunk completes."""
        if b"\n" not in chunk:
            return self._append(chunk)
        first, *middle, last = chunk.split(b"\n")
        lines = self._append(first)
        lines += self._finish()
        for piece in middle:
            lines += self._strip(piece) if len(piece) <= self._cap_bytes else [self._over_long([piece])]
        return lines + self._append(last)

    def end(self) -> list[Line]:
        """The last line, if the stream ended without a line feed."""
        return self._finish()

    def _append(self, piece: bytes) -> list[Line]:
        """Hold a piece of an unfinished line; the first piece that goes over the cap reports the line."""
        if self._draining or not piece:
            return []
        self._size += len(piece)
        self._pieces.append(piece)
        if self._size <= self._cap_bytes:
            return []
        over_long = self._over_long(self._pieces)
        self._pieces.clear()
        self._draining = True
        return [over_long]

    def _finish(self) -> list[Line]:
        line = b"".join(self._pieces)
        drained, self._draining, self._size = self._draining, False, 0
        self._pieces.clear()
        return [] if drained else self._strip(line)

    def _over_long(self, pieces: list[bytes]) -> OverlongLine:
        size = min(HEAD_BYTES, self._cap_bytes)
        # No piece is empty, so this many pieces hold the head at least.
        head = b"".join(piece[:size] for piece in pieces[:size])[:size]
        if self._at_start:
            self._at_start = False
            head = head.removeprefix(BOM)
        return OverlongLine(self._cap_bytes, head)

    def _strip(self, line: bytes) -> list[Line]:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(BOM)
        line = line.strip(b" \t\r")
        return [line] if line else []
