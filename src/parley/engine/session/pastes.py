"""The pasted texts that a client sends along with a prompt. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parley.protocol.base import Json

OPENING, CLOSING = "<pasted_content>\n", "\n</pasted_content>"
MAX_PARTS = 1000
"""Entries and blocks of `pasted_content`; a longer list is ignored."""
MAX_INLINE = 100


def add_pastes(content: list[Json], pasted: Any, inline: Any, warn: Callable[[str], None]) -> list[Json]:
    """The content of a prompt with its pasted texts."""
    marked = mark_inline(content, inline if isinstance(inline, list) else [])
    return [*marked, *appended_texts(pasted if isinstance(pasted, list) else [], warn)]


def appended_texts(pasted: list[Any], warn: Callable[[str], None]) -> list[Json]:
    parts = sum(1 + (len(entry) if isinstance(entry, list) else 0) for entry in pasted)
    if parts > MAX_PARTS:
        warn(
            f"pasted_content of a prompt is ignored: it has {parts} entries and blocks; at most {MAX_PARTS} are allowed"
        )
        return []
    texts = ["\n".join(texts_of(entry)) for entry in pasted]
    return [{"type": "text", "text": f"{OPENING}{text}{CLOSING}"} for text in texts if text.strip()]


def texts_of(entry: Any) -> list[str]:
    """The texts of an entry: a text, or content blocks. Other blocks are ignored."""
    if isinstance(entry, str):
        return [entry]
    blocks = entry if isinstance(entry, list) else []
    found = (block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text")
    return [text for text in found if isinstance(text, str)]


def mark_inline(content: list[Json], inline: list[Any]) -> list[Json]:
    """Mark texts where they stand in the last text block, each once and from left to right."""
    last = next((at for at in reversed(range(len(content))) if content[at].get("type") == "text"), None)
    pastes = [paste for paste in inline if isinstance(paste, str) and paste.strip()][:MAX_INLINE]
    if last is None or not pastes:
        return content
    text, done = str(content[last]["text"]), ""
    for paste in pastes:
        before, found, after = text.partition(paste)
        if found:
            done, text = f"{done}{before}{OPENING}{paste}{CLOSING}", after
    return [*content[:last], {**content[last], "text": done + text}, *content[last + 1 :]]
