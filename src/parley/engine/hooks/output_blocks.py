"""What others put in the place of a tool's output, as a model can read it: hooks, and clients that run tools.

A block that a backend cannot read would spoil every request that follows.
"""

from __future__ import annotations

from typing import Any

from parley.protocol.base import Json, spell

NEEDED: dict[str, tuple[str, type]] = {
    "text": ("text", str),
    "image": ("source", dict),
    "document": ("source", dict),
    "search_result": ("source", str),
    "tool_reference": ("tool_name", str),
}
"""The blocks that a result may hold, and what each must have."""


def content_of(given: Any) -> str | list[Json]:
    """A text, or content blocks; of anything else its JSON."""
    if isinstance(given, str):
        return given
    blocks = blocks_in(given)
    return blocks if blocks is not None else spell(given).decode()


def blocks_in(given: Any) -> list[Json] | None:
    """Content blocks, if that is what it is. Those of MCP servers look different, and become ours."""
    from parley.mcp.content import BLOCKS, block_of

    listed = given.get("content") if isinstance(given, dict) else given
    if not isinstance(listed, list) or not all(isinstance(block, dict) for block in listed):
        return None
    if not all(is_readable(block) or str(block.get("type")) in BLOCKS for block in listed):
        return None
    return [block if is_readable(block) else block_of(block) for block in listed]


def is_readable(block: Json) -> bool:
    """Whether it is a block of the model API."""
    key, wanted = NEEDED.get(str(block.get("type")), ("", object))
    return bool(key) and isinstance(block.get(key), wanted)
