"""An excerpt of a conversation for the curator. Pure functions.

Each message is shown with its number, so that entries can name their sources. Tool results are cut: the knowledge is
in what users and models make of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from parley.memory.base import LogMessage
from parley.protocol.base import Json
from parley.stores.base import Entry

SAID = ("user", "assistant")
RESULT_CHARS, INPUT_CHARS = 600, 300


def excerpt_lines(entries: Iterable[Entry]) -> Iterator[LogMessage]:
    """The messages of a log, without summaries."""
    for entry in entries:
        if entry.kind in SAID and not entry.context.get("isCompactSummary"):
            inner = entry.message.get("message")
            text = "\n".join(block_texts(inner.get("content"))) if isinstance(inner, dict) else ""
            if text:
                uuid = str(entry.message.get("uuid"))
                yield LogMessage(seq=entry.seq, kind=entry.kind, at=entry.at, uuid=uuid, text=text)


def block_texts(content: object) -> Iterator[str]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and (text := block_text(block)):
            yield text


def block_text(block: Json) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text") or "").strip()
        case "tool_use":
            given = cut(msgspec.json.encode(block.get("input")).decode(), INPUT_CHARS)
            return f"[calls {block.get('name')} with {given}]"
        case "tool_result":
            content = block.get("content")
            inner = content if isinstance(content, str) else "\n".join(block_texts(content))
            return f"[result: {cut(inner, RESULT_CHARS)}]"
        case "thinking" | "redacted_thinking":
            return ""
        case kind:
            return f"[{kind}]"


def cut(text: str, most_chars: int) -> str:
    return text if len(text) <= most_chars else f"{text[:most_chars]}… ({len(text)} characters)"


def format_line(line: LogMessage) -> str:
    return f"[#{line.seq} {line.kind}, {line.at[:10]}]\n{line.text}"


def split_pieces(lines: Iterable[LogMessage], most_chars: int) -> Iterator[list[LogMessage]]:
    """Split into pieces of limited length; a message that is too long is a piece of its own."""
    piece: list[LogMessage] = []
    size = 0
    for line in lines:
        chars = len(format_line(line))
        if piece and size + chars > most_chars:
            yield piece
            piece, size = [], 0
        piece.append(line)
        size += chars
    if piece:
        yield piece
