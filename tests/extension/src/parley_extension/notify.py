"""Notify: a tool that declares no effect, so every call is asked about."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from parley.tools.base import Context, ToolOutput
from parley.workspace.base import Scope


class NotifyInput(Struct, frozen=True, kw_only=True):
    text: str


class Notify:
    name: ClassVar[str] = "Notify"
    description: ClassVar[str] = "Shows a notification."
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = NotifyInput

    async def run(self, call: NotifyInput, context: Context, reach: Scope) -> ToolOutput:
        return ToolOutput(content=f"shown: {call.text}")
