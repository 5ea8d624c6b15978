"""One tool call's life: find the tool, check the input, decide, run, tell."""

from __future__ import annotations

from collections.abc import Mapping

from parley.models.growth import is_unreadable
from parley.protocol.blocks import ToolUse
from parley.tools.base import Output, Tool


def refusal(call: ToolUse, tools: Mapping[str, Tool]) -> str | None:
    """Why a call cannot even be tried, in words for the model."""
    if call.name not in tools:
        return f"No such tool available: {call.name}. Available tools: {', '.join(tools) or 'none'}."
    if is_unreadable(call):
        return f"The input of {call.name} is not a JSON object. Send the call again with valid JSON."
    return None


def error_output(text: str) -> Output:
    """What the model reads and the host sees of a call that failed before it ran."""
    return Output(content=f"<tool_use_error>Error: {text}</tool_use_error>", detail=f"Error: {text}", is_error=True)
