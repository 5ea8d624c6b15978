"""The titles and tags in a transcript, which must stay within reach of those who list sessions.

They are lines of their own, and looked for in the first and the last 64 KiB of a file (session_summary.py). Whoever
writes much behind them says them once more, whoever gave them: else an older one would be found, or none.

    labels.hear(data, at)        what stands in the file from a place on
    labels.due(end)              what is to be said again, now that the file ends there
"""

from __future__ import annotations

from typing import Any

import msgspec

from parley.protocol.base import Json, Struct, spell

REACH = 65536
FIELDS = {"custom-title": "customTitle", "ai-title": "aiTitle", "tag": "tag"}
BEGINNINGS = tuple(b'{"type":"%b",' % kind.encode() for kind in FIELDS)


class Label(Struct, frozen=True):
    line: bytes
    end: int
    """Where its line ends in the file."""


class Labels:
    def __init__(self) -> None:
        self._last: dict[str, Label] = {}

    def hear(self, data: bytes, at: int) -> None:
        """Take in a part of the file. Lines without an end are none."""
        for line in data.splitlines(keepends=True):
            at += len(line)
            if line.startswith(BEGINNINGS) and line.endswith(b"\n") and (json := bare(line)) is not None:
                self._last[json["type"]] = Label(spell(json) + b"\n", at)

    def due(self, end: int) -> bytes:
        """The lines to be added to a file that ends there."""
        return b"".join(
            label.line for label in self._last.values() if label.end > REACH and end - label.end > REACH // 2
        )


def bare(line: bytes) -> Json | None:
    """A label without its place in a log, which is not repeated with it."""
    try:
        found: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    field = FIELDS[found["type"]]
    if not isinstance(found.get(field), str):
        return None
    return {"type": found["type"], field: found[field], "sessionId": found.get("sessionId")}
