"""A conversation as text: a line for each line of it, what waits, and a summary at the end.

The content of messages is not shown, only what they are; text that is not JSON is shown without secrets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from parley.inspector.conversation import NOT_JSON, Conversation, SeenLine, UnknownName, WireRow
from parley.inspector.recording import Direction

ARROWS = {Direction.IN: "→", Direction.OUT: "←", Direction.ERR: "!"}
WAITING_FOR = {Direction.IN: "the engine", Direction.OUT: "the client", Direction.ERR: ""}
SHOWN_CHARS = 100
SHOWN_FIELDS = 4
SHOWN_ROWS = 20
"""How many rows of each kind a summary has."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class TextView:
    """Formats lines. `redact` removes secrets from what others wrote."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact

    def clean(self, text: str) -> str:
        """At most a line, without secrets and without what would change a terminal."""
        shown = CONTROL.sub("·", self._redact(text[: SHOWN_CHARS * 10]))
        return shown if len(shown) <= SHOWN_CHARS else f"{shown[:SHOWN_CHARS]}…"

    def format_line(self, seen: SeenLine) -> str:
        row = seen.row
        start = f"{row.time:9.3f} s {ARROWS[row.direction]} #{row.number}"
        if row.kind in (NOT_JSON, "stderr"):
            return f"{start} {row.kind}: {self.clean(str(row.line))}"
        parts = [start, self.clean(row.title), format_bytes(row.bytes)]
        if row.request is not None and row.latency_ms is not None:
            parts.append(f"{format_ms(row.latency_ms)} after #{row.request.number}")
        if seen.unknown:
            more = f", and {len(seen.unknown) - SHOWN_FIELDS} more" if len(seen.unknown) > SHOWN_FIELDS else ""
            parts.append(f"unknown: {self.clean(', '.join(seen.unknown[:SHOWN_FIELDS]))}{more}")
        return "  ".join(parts)

    def format_waiting(self, row: WireRow, now: float) -> str:
        target = WAITING_FOR[row.direction]
        return f"{now:9.3f} s … #{row.number} {self.clean(row.title)} has waited {now - row.time:.0f} s for {target}"

    def format_summary(self, conversation: Conversation, ending: str) -> Iterator[str]:
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
