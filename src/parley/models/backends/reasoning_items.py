"""Reasoning items of the Responses API, kept in thinking blocks.

A reasoning item is only useful to the model that made it, and must go back to it as it was. The item is packed into
the signature of its thinking block (the data of a redacted one), so it is part of the transcript and survives resume:

    signature = pack("gpt-5", item)
    unpack(block, "gpt-5")              -> item
    unpack(block, "another model")      -> None

Other backends leave such blocks out. `responses.py` sends and receives the items.
"""

from __future__ import annotations

import binascii

import msgspec

from parley.protocol.base import Json, Struct

PREFIX = "openai-responses:"
PHASE = "parley_phase"
"""A field of a text block: the phase of its message (`commentary` or `final_answer`), which goes back to the model."""
FIELDS = ("id", "summary", "content", "encrypted_content")


class _Packed(Struct, frozen=True):
    model: str
    item: Json


def pack(model: str, item: Json) -> str:
    """The signature for an item; empty if the server cannot use the item again, because it holds no reasoning."""
    if not (item.get("encrypted_content") or item.get("content")):
        return ""
    from base64 import b64encode

    kept = {name: item[name] for name in FIELDS if item.get(name) is not None}
    packed = _Packed(model, {"type": "reasoning", "summary": [], **kept})
    return PREFIX + b64encode(msgspec.json.encode(packed)).decode()


def unpack(block: Json, model: str) -> Json | None:
    """The item in a thinking block; None if it has none, or if another model made it."""
    if not is_packed(block):
        return None
    from base64 import b64decode

    try:
        packed = msgspec.json.decode(b64decode(packed_text(block).removeprefix(PREFIX)), type=_Packed)
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return packed.item if packed.model == model else None


def is_packed(block: Json) -> bool:
    return block.get("type") in ("thinking", "redacted_thinking") and packed_text(block).startswith(PREFIX)


def packed_text(block: Json) -> str:
    return str(block.get("signature") or block.get("data") or "")


def without_reasoning_items(message: Json) -> list[Json]:
    """The message without what only the Responses API takes back."""
    blocks = list_blocks(message)
    if not any(map(is_ours, blocks)):
        return [message]
    return [{**message, "content": [without_phase(block) for block in blocks if not is_packed(block)]}]


def is_ours(block: Json) -> bool:
    return PHASE in block or is_packed(block)


def without_phase(block: Json) -> Json:
    return {name: value for name, value in block.items() if name != PHASE} if PHASE in block else block


def list_blocks(message: Json) -> list[Json]:
    """The blocks of a message; none if its content is a text."""
    content = message.get("content")
    return content if isinstance(content, list) else []
