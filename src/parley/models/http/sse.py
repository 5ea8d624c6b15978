"""Server-sent events: bytes in, the `data` of each event out.

Only what the model APIs use: `data` lines (several are joined), comments and other
fields skipped, LF or CRLF. A server that does not stream, though asked to, sends one JSON
object: that is the data of one event.
"""

from __future__ import annotations


class EventReader:
    """Cuts a byte stream into events, however the bytes arrive."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        """What came of an event that is not complete; joined once, as it may be of any size."""
        self._last_was_cr = False
        self._is_fresh = True
        self._is_whole = False
        """Whether what comes is no stream of events but one object."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this chunk completes."""
        if not chunk:
            return []
        if b"\r" in chunk or self._last_was_cr:
            chunk = self._without_cr(chunk)
        if self._is_fresh and (begin := chunk.lstrip()):
            self._is_fresh, self._is_whole = False, begin.startswith(b"{")
        pieces = self._pieces
        pieces.append(chunk)
        if self._is_whole or (b"\n\n" not in chunk and not self._ends_at(chunk)):
            return []
        *events, rest = b"".join(pieces).split(b"\n\n")
        self._pieces = [rest] if rest else []
        return [data for event in events if (data := data_of(event)) is not None]

    def end(self) -> list[bytes]:
        """The last event, if the stream ended without its blank line."""
        rest, self._pieces = b"".join(self._pieces).strip(b"\n"), []
        data = rest or None if self._is_whole else data_of(rest)
        return [] if data is None else [data]

    def _ends_at(self, chunk: bytes) -> bool:
        """Whether this last piece begins with the second half of a blank line."""
        return chunk.startswith(b"\n") and len(self._pieces) > 1 and self._pieces[-2].endswith(b"\n")

    def _without_cr(self, chunk: bytes) -> bytes:
        """CRLF and lone CR become LF, also where a chunk ends between the two."""
        if self._last_was_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._last_was_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def data_of(event: bytes) -> bytes | None:
    """The data field of one event; None if it has none."""
    first = event.find(b"data:")
    if first < 0:
        return None
    if event.find(b"\ndata:", first) < 0 and (first == 0 or event[first - 1] == 0x0A):
        # The usual case: one data line, and nothing behind it.
        end = event.find(b"\n", first)
        return event[first + 5 : end if end >= 0 else None].strip()
    lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
