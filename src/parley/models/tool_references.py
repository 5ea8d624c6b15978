"""`tool_reference` blocks: the tools that a search has found, as the Messages API spells them. Pure.

    {"type": "tool_result", "content": [{"type": "tool_reference", "tool_name": "mcp__git__log"}]}

The API replaces a reference by the definition of the tool, which the request marks with `defer_loading`. A request
with a reference to a tool that it does not list is rejected. Other servers get the same as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from parley.protocol.base import Json

REFERENCE = "tool_reference"
DEFER = "defer_loading"


def find_references(messages: list[Json]) -> Iterator[str]:
    """The tools that results in these messages refer to."""
    for message in messages:
        for block in message["content"] if message["role"] == "user" else ():
            if has_references(block):
                yield from (part["tool_name"] for part in block["content"] if is_reference(part))


def replace_references(messages: list[Json], keeps: Callable[[str], bool] = lambda name: False) -> list[Json]:
    """The messages with references as text, except to tools that `keeps` is true of."""
    return [
        {**message, "content": [replace_in_result(block, keeps) for block in message["content"]]}
        if message["role"] == "user" and any(map(has_references, message["content"]))
        else message
        for message in messages
    ]


def replace_in_result(block: Json, keeps: Callable[[str], bool]) -> Json:
    if not has_references(block) or all(keeps(part["tool_name"]) for part in block["content"] if is_reference(part)):
        return block
    return {**block, "content": [as_text(part) for part in block["content"]]}


def as_text(part: Json) -> Json:
    return {"type": "text", "text": f"Loaded: {part['tool_name']}"} if is_reference(part) else part


def has_references(block: object) -> bool:
    return (
        isinstance(block, dict)
        and block.get("type") == "tool_result"
        and isinstance(block.get("content"), list)
        and any(map(is_reference, block["content"]))
    )


def is_reference(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == REFERENCE and isinstance(part.get("tool_name"), str)
