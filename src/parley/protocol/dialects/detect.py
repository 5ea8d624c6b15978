"""Which dialect a host speaks, by its first line."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from parley.protocol.base import mend_surrogates, too_deep

BROUGHT = frozenset({"system_prompt", "mcp_servers", "environment"})
"""What only a prompt of miriad brings along."""
OURS = frozenset({"control_request", "control_response", "control_cancel_request"})
OPENING = re.compile(rb'[\[\s]*\{\s*"jsonrpc"\s*:')
"""How a line begins whose sender wants errors of JSON-RPC, though it is too long or no JSON."""


def recognise(line: bytes, otherwise: str) -> str:
    """The name of the dialect; `otherwise` where the line could be said in several."""
    match first_value(line):
        case {"jsonrpc": _} | [{"jsonrpc": _}, *_]:  # a batch is refused, but in words that its sender reads
            return "jsonrpc"
        case {"type": "control"}:
            return "miriad"
        case {"type": str() as kind} if kind in OURS:
            return "stream-json"
        case {"type": "user", **fields} if BROUGHT & fields.keys():
            return "miriad"
        case {"type": "user", **fields} if is_spec001(fields):
            return "spec001"
        case None if OPENING.match(line):
            return "jsonrpc"
    return otherwise


def is_spec001(fields: dict[Any, Any]) -> bool:
    """Whether a prompt has the time and no ids, or its content where only spec 001 has it."""
    if "message" not in fields:
        return "content" in fields
    return "timestamp" in fields and not {"uuid", "parent_tool_use_id"} & fields.keys()


def first_value(line: bytes) -> Any:
    if too_deep(line):
        return None
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        mended = mend_surrogates(line)
        return None if mended is None else first_value(mended)
