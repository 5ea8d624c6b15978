"""Server-sent events: bytes in, the `data` of each event out.

Only what the model APIs use: `data` lines (several are joined), comments and other
fields skipped, LF or CRLF.
"""

from __future__ import annotations


class EventReader:
    """Cuts a byte stream into events, however the bytes arrive."""

    def __init__(self) -> None:
        self._rest = b""
        self._last_was_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this chunk completes."""
        if not chunk:
            return []
        if b"\r" in chunk or self._last_was_cr:
            chunk = self._without_cr(chunk)
        *events, self._rest = (self._rest + chunk).split(b"\n\n")
        return [data for event in events if (data := data_of(event)) is not None]

    def end(self) -> list[bytes]:
        """The last event, if the stream ended without its blank line."""
        data, self._rest = data_of(self._rest.strip(b"\n")), b""
        return [] if data is None else [data]

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
