"""Parse server-sent events: bytes in, the `data` of each event out.

It supports what model APIs use: `data` lines (several are joined) with LF or CRLF; comments and other fields are
skipped. A server that does not stream sends one JSON object instead, which becomes the data of one event.
"""

from __future__ import annotations


class EventReader:
    """Splits a byte stream into events, wherever the chunks end."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        """The pieces of an incomplete event. Joined once, because it may be large."""
        self.pending_bytes = 0
        """The size of the incomplete event."""
        self._last_was_cr = False
        self._is_fresh = True
        self._is_whole = False
        """Whether the body is one JSON object instead of an event stream."""

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
        self.pending_bytes += len(chunk)
        if self._is_whole or (b"\n\n" not in chunk and not self._ends_at(chunk)):
            return []
        *events, rest = b"".join(pieces).split(b"\n\n")
        self._pieces, self.pending_bytes = [rest] if rest else [], len(rest)
        return [data for event in events if (data := event_data(event)) is not None]

    def end(self) -> list[bytes]:
        """The last event, if the stream ended without a blank line."""
        rest, self._pieces = b"".join(self._pieces).strip(b"\n"), []
        data = rest or None if self._is_whole else event_data(rest)
        return [] if data is None else [data]

    def _ends_at(self, chunk: bytes) -> bool:
        """Whether this piece starts with the second newline of a blank line."""
        return chunk.startswith(b"\n") and len(self._pieces) > 1 and self._pieces[-2].endswith(b"\n")

    def _without_cr(self, chunk: bytes) -> bytes:
        """CRLF and lone CR become LF, also if a chunk ends between the two."""
        if self._last_was_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._last_was_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def event_data(event: bytes) -> bytes | None:
    """The data field of one event; None if it has none."""
    before, found, data = event.partition(b"\ndata: ")
    if found and b"\n" not in data and b"data:" not in before:
        return data.strip()  # the usual case: one data line at the end
    first = event.find(b"data:")
    if first < 0:
        return None
    if event.find(b"\n", first) < 0 and (first == 0 or event[first - 1] == 0x0A):
        return event[first + 5 :].strip()
    lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
