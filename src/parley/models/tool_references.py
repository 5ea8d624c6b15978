"""`tool_reference` blocks: the tools that a search has found, as the Messages API spells them. Pure.

    {"type": "tool_result", "content": [{"type": "tool_reference", "tool_name": "mcp__git__log"}]}

The API replaces a reference by the definition of the tool, which the request marks with `defer_loading`. A request
with a reference to a tool that it does not list is rejected. Other servers get the same as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from parley.models.base import REFERENCE
from parley.protocol.base import Json

CALLABLE = (
    "Loaded. Call it with ToolSearch: its name as `call`, and the arguments that this definition asks for as `input`."
)
"""Before a definition, for servers that do not take references."""


def replace_references(messages: list[Json]) -> list[Json]:
    """The messages with references as text."""
    return [
        {**message, "content": [replace_in_result(block) for block in message["content"]]}
        if message["role"] == "user" and any(map(has_references, message["content"]))
        else message
        for message in messages
    ]


def replace_in_result(
    block: Json, keeps: Callable[[str], bool] = lambda name: False, definitions: Mapping[str, Json] = {}
) -> Json:
    """A result with references as text, unless `keeps` is true of all of them. The text has the definitions."""
    if not has_references(block) or all(keeps(part["tool_name"]) for part in block["content"] if is_reference(part)):
        return block
    return {**block, "content": [as_text(part, definitions) for part in block["content"]]}


def as_text(part: Json, definitions: Mapping[str, Json]) -> Json:
    if not is_reference(part):
        return part
    known = definitions.get(part["tool_name"])
    text = f"Loaded: {part['tool_name']}" if known is None else f"{CALLABLE}\n{msgspec.json.encode(known).decode()}"
    return {"type": "text", "text": text}


def has_references(block: object) -> bool:
    return (
        isinstance(block, dict)
        and block.get("type") == "tool_result"
        and isinstance(block.get("content"), list)
        and any(map(is_reference, block["content"]))
    )


def is_reference(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == REFERENCE and isinstance(part.get("tool_name"), str)
