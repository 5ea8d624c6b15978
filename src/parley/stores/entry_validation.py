"""Validate entries from files that other programs wrote.

The engine's own entries are valid. A foreign entry that cannot be sent to a model, or cannot be folded into the
session's state, would break every later turn, so it is not loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from parley.protocol import blocks
from parley.protocol.base import Json
from parley.stores.base import Entry
from parley.stores.files.entry_codec import OWN


def find_problem(entry: Entry) -> str | None:
    """What is wrong with an entry; None if it is valid."""
    try:
        if entry.seq < 0:
            raise msgspec.ValidationError(f"`seq` is {entry.seq}, expected 0 or more")
        if not OWN.isdisjoint(entry.context):
            raise msgspec.ValidationError("`context` contains reserved field names")
        CHECKS.get(entry.kind, accept_any)(entry.message)
    except msgspec.ValidationError as exc:
        return str(exc)
    return None


def accept_any(message: Json) -> None:
    """Kinds that are never shown or sent; the code that folds them skips invalid values."""


def check_conversation(message: Json) -> None:
    """Raises msgspec.ValidationError."""
    require(message, "uuid", str)
    inner = require(message, "message", dict)
    content = require(inner, "content", str, list)
    if not isinstance(inner.get("id"), str | None):
        raise msgspec.ValidationError("`message.id` must be a string")
    for block in content if isinstance(content, list) else ():
        within = blocks.read(block)
        if isinstance(within, blocks.ToolResult) and isinstance(within.content, list):
            for part in within.content:
                blocks.read(part)


def check_boundary(message: Json) -> None:
    """Raises msgspec.ValidationError."""
    require(message, "uuid", str)
    metadata = optional(message, "compact_metadata", dict) or {}
    optional(metadata, "preserved_segment", dict)
    kept = optional(metadata, "preserved_messages", dict) or {}
    for names in (optional(kept, "uuids", list), optional(kept, "all_uuids", list)):
        if not all(isinstance(uuid, str) for uuid in names or ()):
            raise msgspec.ValidationError("`preserved_messages` must list uuids as strings")
    optional(metadata, "cumulative_dropped_tokens", int)
    optional(metadata, "distilled", list)


def check_title(message: Json) -> None:
    """Raises msgspec.ValidationError."""
    require(message, "title", str)


def require(json: Json, name: str, *types: type[Any]) -> Any:
    if not isinstance(json.get(name), types):
        raise msgspec.ValidationError(f"`{name}` is missing or has the wrong type")
    return json[name]


def optional(json: Json, name: str, kind: type[Any]) -> Any:
    return None if json.get(name) is None else require(json, name, kind)


CHECKS: dict[str, Callable[[Json], None]] = {
    "user": check_conversation,
    "assistant": check_conversation,
    "system": check_boundary,
    "conversation_reset": check_boundary,
    "title": check_title,
}
