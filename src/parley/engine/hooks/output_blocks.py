"""Convert tool output that hooks or clients provide into content blocks of the model API.

A block that a backend does not accept would fail every later request.
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
"""The block types that a result can hold, with the field that each requires."""


def to_content(given: Any) -> str | list[Json]:
    """A string, or content blocks; any other value becomes JSON text."""
    if isinstance(given, str):
        return given
    blocks = find_blocks(given)
    return blocks if blocks is not None else encode_json(given).decode()


def find_blocks(given: Any) -> list[Json] | None:
    """The value as content blocks, or None. MCP blocks are converted."""
    from parley.mcp.content import BLOCKS, convert_block

    listed = given.get("content") if isinstance(given, dict) else given
    if not isinstance(listed, list) or not all(isinstance(block, dict) for block in listed):
        return None
    if not all(is_model_block(block) or str(block.get("type")) in BLOCKS for block in listed):
        return None
    return [block if is_model_block(block) else convert_block(block) for block in listed]


def is_model_block(block: Json) -> bool:
    """Whether a block is valid in the model API."""
    key, wanted = REQUIRED_FIELDS.get(str(block.get("type")), ("", object))
    return bool(key) and isinstance(block.get(key), wanted)
