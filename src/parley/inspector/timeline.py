"""Pair the requests of a conversation with their answers, and prompts with their results.

    row = timeline.add(record)          # row.request and row.latency_ms if it answers one
    timeline.open                       # the rows that wait, oldest first

`src/parley/console/wire.js` does the same in a browser.
"""

from __future__ import annotations

from typing import Any

from parley.inspector.records import Direction, Record
from parley.protocol.base import Struct

OPPOSITE = {Direction.IN: Direction.OUT, Direction.OUT: Direction.IN}
NOT_JSON, NOT_AN_OBJECT = "not JSON", "not an object"


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
    waits: bool = False

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
                self._wait(row, (other, hashable(line.get("request_id"))))
            case "control_response":
                response = line.get("response")
                self._answer(row, (own, hashable(response.get("request_id") if isinstance(response, dict) else None)))
            case "control_cancel_request":
                self._answer(row, (other, hashable(line.get("request_id"))))
            case "jsonrpc" if "method" in line and "id" in line:
                self._wait(row, (other, hashable(line["id"])))
            case "jsonrpc" if "id" in line:
                self._answer(row, (own, hashable(line["id"])))
            case "user" if own is Direction.IN:
                self._wait(row, ("prompt", hashable(line.get("uuid") or row.number)))
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

    def _wait(self, row: WireRow, key: tuple[str, Any]) -> None:
        row.waits = True
        self._open[key] = row

    def _answer(self, row: WireRow, key: tuple[str, Any]) -> None:
        asked = self._open.pop(key, None)
        if asked is None:
            return
        asked.waits = False
        asked.latency_ms = row.latency_ms = (row.time - asked.time) * 1000
        row.request = asked


def hashable(value: Any) -> str | int | None:
    """An id. What cannot be one is no id, and is never answered."""
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
