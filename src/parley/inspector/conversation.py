"""A conversation line by line: what each line is, what waits for an answer, how long answers took, what is unknown.

    row = conversation.add(number, at_seconds, Direction.OUT, b'{"type": ...}')
    row.request, row.latency_ms                 # the request that the line answers
    conversation.timeline.open                  # the rows that wait, oldest first
    conversation.summarize()                    # the same of all lines together, as JSON

`Timeline` pairs requests with their answers, and prompts with their results; `src/parley/console/wire.js` does the same
in a browser. `TextView` formats rows and a summary: not the content of messages, only what they are; text that is not
JSON is shown without secrets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import msgspec

from parley.inspector.schema_check import SchemaCheck
from parley.protocol.base import Json, Struct
from parley.stores.wire_recording import Direction, Record, decode_line

OPPOSITE = {Direction.IN: Direction.OUT, Direction.OUT: Direction.IN}
NOT_JSON, NOT_AN_OBJECT = "not JSON", "not an object"
LISTED_LINES = 10
INDEX = re.compile(r"\[\d+\]")
ARROWS = {Direction.IN: "→", Direction.OUT: "←", Direction.ERR: "!"}
WAITING_FOR = {Direction.IN: "the engine", Direction.OUT: "the client", Direction.ERR: ""}
SHOWN_CHARS = 100
SHOWN_FIELDS = 4
SHOWN_ROWS = 20
"""How many rows of each kind a summary has."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class WireRow(Struct, kw_only=True, eq=False):
    """A line, and what it has to do with others."""

    number: int
    time: float
    direction: Direction
    bytes: int
    kind: str
    """The type of the message."""
    detail: str
    """What it is about: its subtype, or the kinds of its content."""
    line: Any
    request: WireRow | None = None
    """The row that this one answers."""
    latency_ms: float | None = None
    """From the request to its answer, in both rows."""
    unknown: list[str] = []
    """What the schema does not have."""

    @property
    def record(self) -> Record:
        return self.number, self.time, self.direction, self.bytes, self.line

    @property
    def title(self) -> str:
        return f"{self.kind} {self.detail}".strip()


class Timeline:
    def __init__(self) -> None:
        self._open: dict[tuple[str, Any], WireRow] = {}

    @property
    def open(self) -> list[WireRow]:
        """The rows without an answer, oldest first."""
        return list(self._open.values())

    def add(self, record: Record) -> WireRow:
        number, time, direction, size, line = record
        kind, detail = describe(line, direction)
        row = WireRow(number=number, time=time, direction=direction, bytes=size, kind=kind, detail=detail, line=line)
        if isinstance(line, dict) and direction in OPPOSITE:
            self._pair(row, line)
        return row

    def _pair(self, row: WireRow, line: dict[str, Any]) -> None:
        own, other = row.direction, OPPOSITE[row.direction]
        match row.kind:
            case "control_request":
                self._open[other, hashable(line.get("request_id"))] = row
            case "control_response":
                response = line.get("response")
                self._answer(row, (own, hashable(response.get("request_id") if isinstance(response, dict) else None)))
            case "control_cancel_request":
                self._answer(row, (other, hashable(line.get("request_id"))))
            case "jsonrpc" if "method" in line and "id" in line:
                self._open[other, hashable(line["id"])] = row
            case "jsonrpc" if "id" in line:
                self._answer(row, (own, hashable(line["id"])))
            case "user" if own is Direction.IN:
                self._open["prompt", hashable(line.get("uuid") or row.number)] = row
            case "result" if own is Direction.OUT:
                self._answer_prompts(row, line)

    def _answer_prompts(self, row: WireRow, line: dict[str, Any]) -> None:
        """A result names its prompts. Without names, it answers all that are not still queued."""
        waiting = [key for key in self._open if key[0] == "prompt"]
        named = line.get("user_message_uuids")
        queued = line.get("queued_turn_count")
        kept = queued if isinstance(queued, int) and queued > 0 else 0
        answered = waiting[: len(waiting) - kept] if waiting and kept < len(waiting) else []
        if isinstance(named, list) and named:
            answered = [key for key in waiting if key[1] in named or isinstance(key[1], int)]
        for key in answered:
            self._answer(row, key)

    def _answer(self, row: WireRow, key: tuple[str, Any]) -> None:
        asked = self._open.pop(key, None)
        if asked is None:
            return
        asked.latency_ms = row.latency_ms = (row.time - asked.time) * 1000
        row.request = asked


def hashable(value: Any) -> str | int | None:
    """An id. What cannot be one is ignored, and never answered."""
    return value if isinstance(value, str | int) else None


def describe(line: Any, direction: Direction) -> tuple[str, str]:
    """The names by which a line is known: its type, and what it is about."""
    if direction is Direction.ERR:
        return "stderr", ""
    if not isinstance(line, dict):
        return (NOT_JSON if isinstance(line, str) else NOT_AN_OBJECT), ""
    kind = line.get("type")
    if not isinstance(kind, str):
        kind = "jsonrpc" if "jsonrpc" in line else "without a type"
    found = (
        find_text(line, "request", "subtype")
        or find_text(line, "subtype")
        or find_text(line, "response", "subtype")
        or find_text(line, "event", "type")
        or find_text(line, "method")
        or list_blocks(line)
    )
    return kind, found


def find_text(line: Any, *path: str) -> str:
    for name in path:
        line = line.get(name) if isinstance(line, dict) else None
    return line if isinstance(line, str) else ""


def list_blocks(line: dict[str, Any]) -> str:
    """The kinds of the blocks of a message: `text, tool_use`."""
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    kinds = [find_text(block, "type") for block in content] if isinstance(content, list) else []
    return ", ".join(dict.fromkeys(filter(None, kinds)))


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


class WireConversation:
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

    def add(self, number: int, at: float, direction: Direction, data: bytes) -> WireRow:
        """A line without its newline, and its number in the recording."""
        self.lines += 1
        self.last_at = at
        row = self.timeline.add((number, at, direction, len(data) + 1, decode_line(data, direction)))
        self.counts[direction] += 1
        self.sizes[direction] += row.bytes
        if row.request is not None and row.latency_ms is not None:
            asked = "prompt" if row.request.kind == "user" else row.request.detail or row.request.kind
            self.latencies.setdefault(asked, Latencies()).ms.append(row.latency_ms)
        if row.kind == NOT_JSON:
            self.not_json.append(row.number)
        row.unknown = self._check.find_unknown(row.line, row.request.line if row.request else None)
        for path in row.unknown:
            self._count_unknown(row, path)
        return row

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


def name_message(row: WireRow) -> str:
    """The name by which the schema knows a message."""
    if row.kind in ("system", "control_request"):
        return f"{row.kind}/{row.detail}"
    if row.kind == "control_response" and row.request is not None:
        return f"answer to {row.request.detail}"
    return row.kind


class TextView:
    """Formats lines. `redact` removes secrets from what others wrote."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact

    def clean(self, text: str) -> str:
        """At most a line, without secrets and without what would change a terminal."""
        shown = CONTROL.sub("·", self._redact(text[: SHOWN_CHARS * 10]))
        return shown if len(shown) <= SHOWN_CHARS else f"{shown[:SHOWN_CHARS]}…"

    def format_line(self, row: WireRow) -> str:
        start = f"{row.time:9.3f} s {ARROWS[row.direction]} #{row.number}"
        if row.kind in (NOT_JSON, "stderr"):
            return f"{start} {row.kind}: {self.clean(str(row.line))}"
        parts = [start, self.clean(row.title), format_bytes(row.bytes)]
        if row.request is not None and row.latency_ms is not None:
            parts.append(f"{format_ms(row.latency_ms)} after #{row.request.number}")
        if row.unknown:
            more = f", and {len(row.unknown) - SHOWN_FIELDS} more" if len(row.unknown) > SHOWN_FIELDS else ""
            parts.append(f"unknown: {self.clean(', '.join(row.unknown[:SHOWN_FIELDS]))}{more}")
        return "  ".join(parts)

    def format_waiting(self, row: WireRow, now: float) -> str:
        target = WAITING_FOR[row.direction]
        return f"{now:9.3f} s … #{row.number} {self.clean(row.title)} has waited {now - row.time:.0f} s for {target}"

    def format_summary(self, conversation: WireConversation, ending: str) -> Iterator[str]:
        counts, sizes = conversation.counts, conversation.sizes
        yield (
            f"{count(conversation.lines, 'line')} in {conversation.last_at:.1f} s: "
            f"{counts[Direction.IN]} to the engine ({format_bytes(sizes[Direction.IN])}), "
            f"{counts[Direction.OUT]} from it ({format_bytes(sizes[Direction.OUT])}); {ending}"
        )
        for name, found in sorted(conversation.latencies.items()):
            figures: Any = found.summarize()
            times = f"{count(figures['count'], 'time')}, median {format_ms(figures['median_ms'])}"
            yield f"  answered: {self.clean(name)}, {times}, most {format_ms(figures['most_ms'])}"
        for row in conversation.timeline.open[:SHOWN_ROWS]:
            age = conversation.last_at - row.time
            yield f"  without an answer: #{row.number} {self.clean(row.title)}, {age:.1f} s, from {source(row)}"
        for unknown in list(conversation.unknown.values())[:SHOWN_ROWS]:
            yield f"  not in the schema: {self.format_unknown(unknown)}"
        if conversation.not_json:
            numbers = ", ".join(f"#{number}" for number in conversation.not_json[:SHOWN_ROWS])
            yield f"  not JSON: {count(len(conversation.not_json), 'line')} ({numbers})"

    def format_unknown(self, unknown: UnknownName) -> str:
        """`result: mood in 3 lines (#4, #9, #12)`."""
        numbers = ", ".join(f"#{number}" for number in unknown.lines)
        more = ", …" if unknown.count > len(unknown.lines) else ""
        lines = count(unknown.count, "line")
        return f"{self.clean(f'{unknown.message}: {unknown.path}')} in {lines} ({numbers}{more})"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def source(row: WireRow) -> str:
    return "the client" if row.direction is Direction.IN else "the engine"


def format_ms(ms: float) -> str:
    return f"{ms:.1f} ms" if ms < 100 else f"{ms / 1000:.2f} s"


def format_bytes(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"
