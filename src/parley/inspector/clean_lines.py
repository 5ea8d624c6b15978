"""Lines without secrets, in order, as they may be kept.

Lines wait while the model's stream is inside a block: a secret may span several of its events. A line in which nothing
was found keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from parley.inspector.records import Direction, Record
from parley.inspector.redaction import WireRedactor, hide_named, names_secret
from parley.models.redaction import REDACTED
from parley.protocol.base import Struct

MOST_HELD = 5000
"""How many lines wait at most; a block of the model is shorter."""


class KeptLine(Struct, frozen=True, kw_only=True):
    """A line without secrets, or the end of a stream."""

    record: Record
    data: bytes
    """Without the newline."""
    eol: bool = True
    eof: bool = False


class CleanLines:
    def __init__(self, redactor: WireRedactor, deliver: Callable[[KeptLine], None]) -> None:
        self._redactor = redactor
        self._deliver = deliver
        self._held: list[KeptLine] = []
        self._blocks: set[tuple[Any, Any]] = set()
        """The blocks that are streamed, by agent and index."""

    def add(self, line: KeptLine) -> None:
        self._held.append(line)
        self._follow_blocks(line.record)
        if not self._blocks or len(self._held) >= MOST_HELD:
            self.flush()

    def flush(self) -> None:
        held, self._held = self._held, []
        for line, record in zip(held, self._redactor.redact([line.record for line in held]), strict=True):
            self._deliver(make_clean(line, record))

    def _follow_blocks(self, record: Record) -> None:
        _, _, direction, _, line = record
        if direction is not Direction.OUT or not isinstance(line, dict):
            return
        event = line.get("event") if line.get("type") == "stream_event" else None
        if line.get("type") == "result":
            self._blocks.clear()
        if not isinstance(event, dict):
            return
        block = repr(line.get("parent_tool_use_id")), repr(event.get("index"))
        match event.get("type"):
            case "content_block_start" | "content_block_delta":
                self._blocks.add(block)
            case "content_block_stop":
                self._blocks.discard(block)
            case "message_start" | "message_stop":
                self._blocks = {other for other in self._blocks if other[0] != block[0]}


def make_clean(line: KeptLine, record: Record) -> KeptLine:
    """The line as its redacted record has it."""
    if line.eof or record[4] == line.record[4]:
        return line
    clean = record[4]
    data = clean.encode() if isinstance(clean, str) else msgspec.json.encode(clean)
    return KeptLine(record=record, data=data, eol=line.eol)


def clean_command(words: Sequence[str], redact: Callable[[str], str]) -> Iterable[str]:
    """The words of a command without secrets: values of flags such as `--api-key`, and in JSON such as `--settings`."""
    is_secret = False
    for word in words:
        name, joined, _ = word.partition("=")
        if is_secret and not word.startswith("-"):
            yield REDACTED
        elif joined and word.startswith("-"):
            value = word.removeprefix(f"{name}=")
            yield f"{name}={REDACTED}" if names_secret(name) else f"{name}={redact(clean_json(value))}"
        else:
            yield redact(clean_json(word))
        is_secret = word.startswith("-") and not joined and names_secret(word)


def clean_json(word: str) -> str:
    if not word.startswith("{"):
        return word
    try:
        found = msgspec.json.decode(word)
        return msgspec.json.encode(hide_named(found)).decode()
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return word
