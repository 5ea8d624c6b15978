"""Detect the dialect of a client by its first line."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from parley.protocol.base import is_too_deep, replace_lone_surrogates

BROUGHT = frozenset({"system_prompt", "mcp_servers", "environment"})
"""Fields that only a miriad prompt has."""
OURS = frozenset({"control_request", "control_response", "control_cancel_request"})
OPENING = re.compile(rb'[\[\s]*\{\s*"jsonrpc"\s*:')
"""How a line starts whose sender expects JSON-RPC errors, even if it is too long or not valid JSON."""


def detect(line: bytes, otherwise: str) -> str:
    """The name of the dialect; `otherwise` if the line is valid in several."""
    match first_value(line):
        case {"jsonrpc": _} | [{"jsonrpc": _}, *_]:  # a batch is refused, with a JSON-RPC error
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
    """Whether a prompt has a timestamp and no ids, or its content where only spec001 has it."""
    if "message" not in fields:
        return "content" in fields
    return "timestamp" in fields and not {"uuid", "parent_tool_use_id"} & fields.keys()


def first_value(line: bytes) -> Any:
    if is_too_deep(line):
        return None
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        mended = replace_lone_surrogates(line)
        return None if mended is None else first_value(mended)
