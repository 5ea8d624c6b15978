"""What a tool is.

One file a tool: an input struct (its schema is made from it), a description for the
model, and `run`. A tool touches the machine only through its context. What it cannot do
it says with a ToolError, whose text helps the model to go on.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from parley.protocol.base import Json, Struct


class Output(Struct, frozen=True, kw_only=True):
    """What a tool gave."""

    content: str | list[Json]
    """For the model."""
    detail: Any = None
    """For the host: the line's `tool_use_result`."""
    is_error: bool | None = None
    """None leaves the field out, as most tools do on success."""


class Context(Protocol):
    """What a tool may use."""

    cwd: str


class Tool(Protocol):
    name: ClassVar[str]
    description: ClassVar[str]
    reads_only: ClassVar[bool]
    input: ClassVar[type[Struct]]

    async def run(self, call: Any, context: Context) -> Output:
        """Do it. Raises ToolError."""
