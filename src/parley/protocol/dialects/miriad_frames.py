"""The lines of the dialect miriad as objects, made from a message alone. State is kept in miriad.py."""

from __future__ import annotations

from typing import Any

from parley.protocol.base import UNSET, Json
from parley.protocol.blocks import Block, Text, ToolResult
from parley.protocol.messages.control import Success
from parley.protocol.messages.conversation import User
from parley.protocol.messages.dialects import Consolidation, Injected, SystemFault
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import ApiRetry, Informational


def system(subtype: str, **fields: Any) -> Json:
    return {"type": "system", "subtype": subtype, **fields}


def fault(text: str) -> Json:
    return system("error", message=text)


def with_one_text(content: str | list[Block]) -> str | list[Block]:
    """A prompt with adjacent texts joined by newlines. Other blocks keep their places."""
    if isinstance(content, str):
        return content
    found: list[Block] = []
    for block in content:
        last = found[-1] if found else None
        if isinstance(last, Text) and isinstance(block, Text):
            found[-1] = Text({**last.json, **block.json, "text": f"{last.text}\n{block.text}"})
        else:
            found.append(block)
    return found


def is_tool_result(message: User) -> bool:
    """Whether a line of the client is the output of a client tool, not a prompt."""
    content = message.message.content
    return not isinstance(content, str) and any(isinstance(block, ToolResult) for block in content)


def outcome(block: ToolResult) -> Json:
    """The output of a tool; only a failure has `is_error`."""
    found = {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": block.content}
    return {**found, "is_error": True} if block.is_error else found


def subtype(message: Result) -> str:
    if isinstance(message.terminal_reason, str) and message.terminal_reason.startswith("aborted_"):
        return "cancelled"
    return "error" if message.is_error is True or message.subtype != "success" else "success"


def text_of(message: Result) -> str:
    if isinstance(message.result, str):
        return message.result
    is_told = subtype(message) == "error" and isinstance(message.errors, list)
    return "\n".join(message.errors) if is_told and isinstance(message.errors, list) else ""


def failed_servers(answer: Success) -> bool:
    return isinstance(answer.response, dict) and isinstance(answer.response.get("errors"), dict)


def encode_injected(message: Injected) -> list[Json]:
    return [system("injected", message_count=message.message_count, content_length=message.content_length)]


def encode_consolidation(message: Consolidation) -> list[Json]:
    more = {"entries_archived": message.entries_archived, "summary": message.summary}
    return [
        system(
            "consolidation",
            entries_created=message.entries_created,
            entries_updated=message.entries_updated,
            **{name: value for name, value in more.items() if value is not UNSET},
        )
    ]


def encode_fault(message: SystemFault) -> list[Json]:
    return [fault(message.message)] if isinstance(message.message, str) else []


def encode_retry(message: ApiRetry) -> list[Json]:
    seconds = message.retry_delay_ms / 1000
    tries = f"attempt {message.attempt} of {message.max_retries}"
    return [fault(f"The model call failed ({message.error}); {tries} follows in {seconds:.1f} s")]


def encode_informational(message: Informational) -> list[Json]:
    return [fault(message.content)] if message.level in ("warning", "error") else []
