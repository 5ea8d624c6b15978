"""Content blocks, with the classes of the official SDK.

A block without an official class (an image, a document, or a type of a newer engine) is an
`OtherBlock` with the whole object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from parley.protocol import blocks as wire
from parley.protocol.base import Json

ServerToolName = Literal[
    "advisor",
    "web_search",
    "web_fetch",
    "code_execution",
    "bash_code_execution",
    "text_editor_code_execution",
    "tool_search_tool_regex",
    "tool_search_tool_bm25",
]


@dataclass
class TextBlock:
    """Text of the model."""

    text: str


@dataclass
class ThinkingBlock:
    """What the model thought before it answered."""

    thinking: str
    signature: str


@dataclass
class ToolUseBlock:
    """A tool call of the model."""

    id: str
    name: str
    input: Json


@dataclass
class ToolResultBlock:
    """The result of a tool call."""

    tool_use_id: str
    content: str | list[Json] | None = None
    is_error: bool | None = None


@dataclass
class ServerToolUseBlock:
    """A tool call that the model's backend runs."""

    id: str
    name: str
    input: Json


@dataclass
class ServerToolResultBlock:
    """The result of a tool call that the model's backend ran."""

    tool_use_id: str
    content: Any


@dataclass
class OtherBlock:
    """A block without its own class: an image, a document, or a type of a newer engine."""

    type: str
    data: Json
    """The whole object."""


ContentBlock = (
    TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock | ServerToolUseBlock | ServerToolResultBlock | OtherBlock
)

READERS: dict[type[wire.Block], Callable[[Any], ContentBlock]] = {
    wire.Text: lambda block: TextBlock(block.text),
    wire.Thinking: lambda block: ThinkingBlock(block.thinking, block.signature),
    wire.ToolUse: lambda block: ToolUseBlock(block.id, block.name, block.input),
    wire.ToolResult: lambda block: ToolResultBlock(block.tool_use_id, block.content, block.json.get("is_error")),
    wire.ServerToolUse: lambda block: ServerToolUseBlock(block.id, block.name, block.input),
    wire.ServerToolResult: lambda block: ServerToolResultBlock(block.tool_use_id, block.content),
}


def read_block(block: wire.Block) -> ContentBlock:
    reader = READERS.get(type(block))
    return OtherBlock(block.type, block.json) if reader is None else reader(block)


def read_content(content: wire.Content) -> str | list[ContentBlock]:
    return content if isinstance(content, str) else [read_block(block) for block in content]
