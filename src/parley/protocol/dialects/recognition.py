"""Which dialect a host speaks, by its first line."""

from __future__ import annotations

from typing import Any

import msgspec

from parley.protocol.base import too_deep

BROUGHT = frozenset({"system_prompt", "mcp_servers", "environment"})
"""What only a prompt of miriad brings along."""
OURS = frozenset({"control_request", "control_response", "control_cancel_request"})


def recognise(line: bytes, otherwise: str) -> str:
    """The name of the dialect; `otherwise` where the line could be said in several."""
    match first_object(line):
        case {"jsonrpc": _}:
            return "jsonrpc"
        case {"type": "control"}:
            return "miriad"
        case {"type": str() as kind} if kind in OURS:
            return "stream-json"
        case {"type": "user", **fields} if BROUGHT & fields.keys():
            return "miriad"
        case {"type": "user", **fields} if is_spec001(fields):
            return "spec001"
    return otherwise


def is_spec001(fields: dict[Any, Any]) -> bool:
    """Whether a prompt has the time and no ids, or its content where only spec 001 has it."""
    if "message" not in fields:
        return "content" in fields
    return "timestamp" in fields and not {"uuid", "parent_tool_use_id"} & fields.keys()


def first_object(line: bytes) -> Any:
    if too_deep(line):
        return None
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
