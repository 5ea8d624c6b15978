"""A conversation line by line: what each line is, what waits for an answer, how long answers took, what is unknown.

seen = conversation.add(number, at_seconds, Direction.OUT, b'{"type": ...}')
conversation.summarize()                    # the same of all lines together, as JSON
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import msgspec

from parley.inspector.records import Direction, Record
from parley.inspector.schema_check import SchemaCheck
from parley.inspector.timeline import NOT_JSON, Timeline, WireRow
from parley.protocol.base import Json, Struct

LISTED_LINES = 10
INDEX = re.compile(r"\[\d+\]")


class SeenLine(Struct, frozen=True):
    """A line and what is unknown in it."""

    record: Record
    row: WireRow
    unknown: list[str]


class UnknownName(Struct, kw_only=True):
    """A message or field that the schema does not have."""

    message: str
    """The message that has it, or the unknown message itself."""
    path: str
    count: int = 0
    """How many lines have it."""
    lines: list[int] = []
    """The numbers of the first of them."""


class Latencies(Struct):
    """How long the answers to one kind of request took."""

    ms: list[float] = []

    def summarize(self) -> Json:
        found = sorted(self.ms)
        return {"count": len(found), "median_ms": found[len(found) // 2], "most_ms": found[-1]}


class Conversation:
    """Everything here is about the lines so far."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.lines = 0
        self.last_at = 0.0
        self.sizes = {Direction.IN: 0, Direction.OUT: 0, Direction.ERR: 0}
        self.counts = {Direction.IN: 0, Direction.OUT: 0, Direction.ERR: 0}
        self.latencies: dict[str, Latencies] = {}
        self.unknown: dict[tuple[str, str], UnknownName] = {}
        self.not_json: list[int] = []
        """The numbers of lines of the protocol that are not JSON."""

    @cached_property
    def _check(self) -> SchemaCheck:
        from parley.protocol.schema import build_schema

        return SchemaCheck(build_schema())

    def add(self, number: int, at: float, direction: Direction, data: bytes) -> SeenLine:
        """A line without its newline, and its number in the recording."""
        self.lines += 1
        self.last_at = at
        record: Record = (number, at, direction, len(data) + 1, decode(data, direction))
        row = self.timeline.add(record)
        self.counts[direction] += 1
        self.sizes[direction] += row.bytes
        if row.request is not None and row.latency_ms is not None:
            self.latencies.setdefault(name_request(row.request), Latencies()).ms.append(row.latency_ms)
        if row.kind == NOT_JSON:
            self.not_json.append(row.number)
        unknown = self._check.find_unknown(row.line, row.request.line if row.request else None)
        for path in unknown:
            self._count_unknown(row, path)
        return SeenLine(record, row, unknown)

    def _count_unknown(self, row: WireRow, path: str) -> None:
        key = name_message(row), INDEX.sub("[]", path)
        found = self.unknown.get(key)
        if found is None:
            found = self.unknown[key] = UnknownName(message=key[0], path=key[1])
        found.count += 1
        if len(found.lines) < LISTED_LINES:
            found.lines.append(row.number)

    def summarize(self) -> Json:
        """The figures as one JSON object."""
        return {
            "lines": {str(direction): count for direction, count in self.counts.items()},
            "bytes": {str(direction): size for direction, size in self.sizes.items()},
            "seconds": round(self.last_at, 3),
            "waiting": [
                {
                    "line": row.number,
                    "message": row.title,
                    "from": str(row.direction),
                    "seconds": self.last_at - row.time,
                }
                for row in self.timeline.open
            ],
            "latencies": {name: found.summarize() for name, found in sorted(self.latencies.items())},
            "unknown": msgspec.to_builtins(list(self.unknown.values())),
            "not_json": self.not_json,
        }


def decode(data: bytes, direction: Direction) -> Any:
    """The JSON of a line, or its text if it is not JSON."""
    if direction is not Direction.ERR:
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    return data.decode(errors="replace")


def name_request(row: WireRow) -> str:
    return "prompt" if row.kind == "user" else row.detail or row.kind


def name_message(row: WireRow) -> str:
    """The name by which the schema knows a message."""
    if row.kind in ("system", "control_request"):
        return f"{row.kind}/{row.detail}"
    if row.kind == "control_response" and row.request is not None:
        return f"answer to {row.request.detail}"
    return row.kind
