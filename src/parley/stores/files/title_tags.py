"""Keep the title and tag of a transcript near its end, where programs that list sessions look for them.

Titles and tags are lines of their own, read from the first and the last 64 KiB of a file (session_summary.py). The
writer repeats them after enough other lines; otherwise an older title would be found, or none.

    labels.feed(data, at)           # data that was read from, or written at, offset `at`
    labels.lines_to_repeat(end)     # the lines to append to a file of `end` bytes
"""

from __future__ import annotations

from typing import Any

import msgspec

from parley.protocol.base import Json, Struct, encode_json

TAIL_BYTES = 65536
FIELDS = {"custom-title": "customTitle", "ai-title": "aiTitle", "tag": "tag"}
LABEL_PREFIXES = tuple(b'{"type":"%b",' % kind.encode() for kind in FIELDS)


class LabelLine(Struct, frozen=True):
    line: bytes
    end: int
    """The offset of the end of the line."""


class LabelTracker:
    def __init__(self) -> None:
        self._last: dict[str, LabelLine] = {}

    def feed(self, data: bytes, at: int) -> None:
        """Track the labels in a part of the file. Lines without a newline are ignored."""
        for line in data.splitlines(keepends=True):
            at += len(line)
            if line.startswith(LABEL_PREFIXES) and line.endswith(b"\n") and (json := decode_label(line)) is not None:
                self._last[json["type"]] = LabelLine(encode_json(json) + b"\n", at)

    def lines_to_repeat(self, end: int) -> bytes:
        """The lines to append to a file of `end` bytes; empty if no label is too far from the end."""
        return b"".join(
            label.line for label in self._last.values() if label.end > TAIL_BYTES and end - label.end > TAIL_BYTES // 2
        )


def decode_label(line: bytes) -> Json | None:
    """A label line without its sequence number and checksums, which are not repeated."""
    try:
        found: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    field = FIELDS[found["type"]]
    if not isinstance(found.get(field), str):
        return None
    return {"type": found["type"], field: found[field], "sessionId": found.get("sessionId")}
