r"""Split bytes into lines.

A line ends at LF only. A CR before it is dropped, blank lines are skipped, and the separators U+2028 and U+2029 are
ordinary characters. A line over the size cap is discarded as it arrives and reported once as `OverlongLine`.

    framer = Framer()
    framer.feed(b'{"a":1}\n{"b"')    ->  [b'{"a":1}']
    framer.feed(b':2}')             ->  []
    framer.end()                    ->  [b'{"b":2}']     the last line may lack its LF
"""

from __future__ import annotations

from parley.protocol.base import Struct

INBOUND_CAP = 32 * 1024 * 1024
HEAD_BYTES = 1024
BOM = b"\xef\xbb\xbf"


class OverlongLine(Struct, frozen=True):
    """A line that was discarded because it was too long."""

    cap_bytes: int
    head: bytes = b""
    """The start of the line, enough to read its type and ids."""


Line = bytes | OverlongLine


class Framer:
    """Splits a byte stream into lines, wherever the chunks end."""

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
        """Add a piece of an unfinished line. The first piece over the cap reports the line."""
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
        # No piece is empty, so this many pieces contain the head.
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
