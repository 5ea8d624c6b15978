"""A stretch of a conversation, as a curator reads it. Pure.

Each message stands under its number, so that what is learned can name where it comes from.
Bodies of results are cut: knowledge is in what people and models make of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from parley.memory.base import Line
from parley.protocol.base import Json
from parley.stores.base import Entry

SAID = ("user", "assistant")
RESULT_CHARS, INPUT_CHARS = 600, 300


def lines(entries: Iterable[Entry]) -> Iterator[Line]:
    """What was said in the records of a log, without what stands for it in short."""
    for entry in entries:
        if entry.kind in SAID and not entry.context.get("isCompactSummary"):
            inner = entry.message.get("message")
            text = "\n".join(texts(inner.get("content"))) if isinstance(inner, dict) else ""
            if text:
                uuid = str(entry.message.get("uuid"))
                yield Line(seq=entry.seq, kind=entry.kind, at=entry.at, uuid=uuid, text=text)


def texts(content: object) -> Iterator[str]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and (told := block_text(block)):
            yield told


def block_text(block: Json) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text") or "").strip()
        case "tool_use":
            given = cut(msgspec.json.encode(block.get("input")).decode(), INPUT_CHARS)
            return f"[calls {block.get('name')} with {given}]"
        case "tool_result":
            content = block.get("content")
            inner = content if isinstance(content, str) else "\n".join(texts(content))
            return f"[result: {cut(inner, RESULT_CHARS)}]"
        case "thinking" | "redacted_thinking":
            return ""
        case kind:
            return f"[{kind}]"


def cut(text: str, most_chars: int) -> str:
    return text if len(text) <= most_chars else f"{text[:most_chars]}… ({len(text)} characters)"


def told(line: Line) -> str:
    return f"[#{line.seq} {line.kind}, {line.at[:10]}]\n{line.text}"


def pieces(lines: Iterable[Line], most_chars: int) -> Iterator[list[Line]]:
    """Cut where a piece would be too long; a message that is too long by itself is one."""
    piece: list[Line] = []
    size = 0
    for line in lines:
        chars = len(told(line))
        if piece and size + chars > most_chars:
            yield piece
            piece, size = [], 0
        piece.append(line)
        size += chars
    if piece:
        yield piece
