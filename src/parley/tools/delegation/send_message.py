"""SendMessage: send a message to a subagent; a finished one continues (engine/agents/subagents.py)."""

from __future__ import annotations

from typing import Any, ClassVar

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.tools.base import Context, ToolOutput
from parley.tools.delegation.calls import SEND, MessageInput, MessageShown
from parley.workspace.base import Scope


class SendMessage:
    name: ClassVar[str] = SEND
    # As with Agent, whatever comes of it is decided call by call.
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = MessageInput
    shown: ClassVar[type[Struct]] = MessageShown
    description: ClassVar[str] = (
        "Sends a message to an agent. A running agent reads it before its next step; a finished one resumes with it, "
        "in the background, and knows all it knew."
    )

    async def run(self, call: Any, context: Context, reach: Scope) -> ToolOutput:
        if context.session.open_agents is None:
            raise ToolError("Agents are not available in this session.")
        return await context.session.open_agents().send(call.to, call.message, reach.call)
