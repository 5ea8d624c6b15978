"""What a stored line says about its session."""

from __future__ import annotations

from typing import Any

import msgspec

from parley.protocol.base import UNSET, Json, Struct
from parley.stores.search_text import first_prompt

LONGEST_TEXT = 100_000
"""How many characters of a message are searched."""
LONGEST_PREVIEW = 200
SYNTHETIC = "<synthetic>"
"""The model of messages that no model wrote."""


class StoredLine(Struct):
    """The fields of a line that are looked at."""

    type: Any = UNSET
    subtype: Any = UNSET
    uuid: Any = UNSET
    message: Any = UNSET
    parent_tool_use_id: Any = None
    model: Any = UNSET
    permissionMode: Any = UNSET
    is_replay: Any = msgspec.field(name="isReplay", default=False)
    is_synthetic: Any = msgspec.field(name="isSynthetic", default=False)
    is_error: Any = False
    errors: Any = UNSET
    result: Any = UNSET
    terminal_reason: Any = UNSET
    duration_ms: Any = None
    duration_api_ms: Any = None
    model_usage: Any = msgspec.field(name="modelUsage", default=UNSET)
    model_usage_since_last_result: Any = UNSET

    @property
    def blocks(self) -> list[Json]:
        """The content of a message."""
        content = self.message.get("content") if isinstance(self.message, dict) else None
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


decode_line = msgspec.json.Decoder(StoredLine).decode


def read_prompt(line: StoredLine) -> str | None:
    """The start of a prompt; None if the line is not one. A prompt of images alone has no text."""
    if line.type != "user" or line.parent_tool_use_id is not None or line.is_replay or line.is_synthetic:
        return None
    text = first_prompt("user", {"message": line.message})
    if text is None and any(block.get("type") in ("image", "document") for block in line.blocks):
        return ""
    return text


def read_said(line: StoredLine) -> str:
    """The text of a message, without tool calls and their results."""
    if line.type not in ("user", "assistant") or line.is_replay or line.is_synthetic:
        return ""
    texts = [block["text"] for block in line.blocks if isinstance(block.get("text"), str)]
    return "\n".join(texts)[:LONGEST_TEXT]


def read_model(line: StoredLine) -> str | None:
    """The model that a line names as that of the session."""
    found = line.model if line.subtype == "init" else None
    if line.type == "assistant" and line.parent_tool_use_id is None and isinstance(line.message, dict):
        found = line.message.get("model")
    return found if isinstance(found, str) and found != SYNTHETIC else None


def read_error(line: StoredLine) -> str | None:
    """Why a turn failed; None if it did not, or if a person stopped it."""
    if not line.is_error or str(line.terminal_reason).startswith("aborted_"):
        return None
    errors = [str(error) for error in line.errors] if isinstance(line.errors, list) else []
    return "; ".join(errors) or (line.result if isinstance(line.result, str) and line.result else str(line.subtype))


def shorten(text: str, most: int = LONGEST_PREVIEW) -> str:
    flat = " ".join(text[: most * 4].split())
    return flat if len(flat) <= most else flat[:most].rstrip() + "…"
