"""Whether an entry has the shape that its kind must have.

What the engine keeps has it. Files from elsewhere may hold anything, and one line that cannot be
sent to any model, or that nobody can fold, would be in the way for ever: it must not come in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from parley.protocol import blocks
from parley.protocol.base import Json
from parley.stores.base import Entry
from parley.stores.files.entry_codec import OWN


def oddity(entry: Entry) -> str | None:
    """What is odd about an entry; None if nothing is."""
    try:
        if entry.seq < 0:
            raise msgspec.ValidationError(f"its number is {entry.seq}")
        if not OWN.isdisjoint(entry.context):
            raise msgspec.ValidationError("its context has fields of a line")
        CHECKS.get(entry.kind, anything)(entry.message)
    except msgspec.ValidationError as found:
        return str(found)
    return None


def anything(message: Json) -> None:
    """Kinds that nobody shows or sends: whoever folds them skips what is odd."""


def spoken(message: Json) -> None:
    """Raises msgspec.ValidationError."""
    need(message, "uuid", str)
    inner = need(message, "message", dict)
    content = need(inner, "content", str, list)
    if not isinstance(inner.get("id"), str | None):
        raise msgspec.ValidationError("`id` of its message must be a string")
    for block in content if isinstance(content, list) else ():
        within = blocks.read(block)
        if isinstance(within, blocks.ToolResult) and isinstance(within.content, list):
            for part in within.content:
                blocks.read(part)


def boundary(message: Json) -> None:
    """Raises msgspec.ValidationError."""
    need(message, "uuid", str)
    metadata = optional(message, "compact_metadata", dict) or {}
    optional(metadata, "preserved_segment", dict)
    kept = optional(metadata, "preserved_messages", dict) or {}
    for names in (optional(kept, "uuids", list), optional(kept, "all_uuids", list)):
        if not all(isinstance(uuid, str) for uuid in names or ()):
            raise msgspec.ValidationError("a boundary preserves lines by their uuids")
    optional(metadata, "cumulative_dropped_tokens", int)
    optional(metadata, "distilled", list)


def title(message: Json) -> None:
    """Raises msgspec.ValidationError."""
    need(message, "title", str)


def need(json: Json, name: str, *types: type[Any]) -> Any:
    if not isinstance(json.get(name), types):
        raise msgspec.ValidationError(f"it has no `{name}` that could be one")
    return json[name]


def optional(json: Json, name: str, kind: type[Any]) -> Any:
    return None if json.get(name) is None else need(json, name, kind)


CHECKS: dict[str, Callable[[Json], None]] = {
    "user": spoken,
    "assistant": spoken,
    "system": boundary,
    "conversation_reset": boundary,
    "title": title,
}
