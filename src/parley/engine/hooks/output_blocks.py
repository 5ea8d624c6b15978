"""What others put in the place of a tool's output, as a model can read it: hooks, and clients that run tools.

A block that a backend cannot read would spoil every request that follows.
"""

from __future__ import annotations

from typing import Any

from parley.protocol.base import Json, encode_json

REQUIRED_FIELDS: dict[str, tuple[str, type]] = {
    "text": ("text", str),
    "image": ("source", dict),
    "document": ("source", dict),
    "search_result": ("source", str),
    "tool_reference": ("tool_name", str),
}
"""The blocks that a result may hold, and what each must have."""


def to_content(given: Any) -> str | list[Json]:
    """A text, or content blocks; of anything else its JSON."""
    if isinstance(given, str):
        return given
    blocks = find_blocks(given)
    return blocks if blocks is not None else encode_json(given).decode()


def find_blocks(given: Any) -> list[Json] | None:
    """Content blocks, if that is what it is. Those of MCP servers look different, and become ours."""
    from parley.mcp.content import BLOCKS, convert_block

    listed = given.get("content") if isinstance(given, dict) else given
    if not isinstance(listed, list) or not all(isinstance(block, dict) for block in listed):
        return None
    if not all(is_model_block(block) or str(block.get("type")) in BLOCKS for block in listed):
        return None
    return [block if is_model_block(block) else convert_block(block) for block in listed]


def is_model_block(block: Json) -> bool:
    """Whether it is a block of the model API."""
    key, wanted = REQUIRED_FIELDS.get(str(block.get("type")), ("", object))
    return bool(key) and isinstance(block.get(key), wanted)
