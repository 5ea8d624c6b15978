"""The agent of an agent hook: it reads and searches files, then answers.

It has the read-only file tools of the session and nothing else. Its calls go through a gate that asks no one: what
rules and mode do not allow is denied. Hooks see its calls, except agent hooks, which would start it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from parley.engine.hooks.dispatcher import HOOK_AGENT
from parley.engine.turn.tool_executor import ToolExecutor
from parley.errors import ModelError
from parley.hooks.output import HookFailed
from parley.models.catalog import ModelRef
from parley.protocol.base import Json
from parley.protocol.blocks import ToolResult, ToolUse
from parley.tools.base import AgentState, tool_schema

if TYPE_CHECKING:
    from parley.engine.approval.gate import ApprovalGate
    from parley.engine.context.conversation import Conversation
    from parley.engine.side.query import SideQuery

TOOLS = ("Read", "Grep", "Glob")
MAX_CALLS = 50
"""Model calls of one run."""
SYSTEM = (
    "You check whether a condition is met. Look at files with your tools if you need to; you cannot change anything. "
    "When you know, answer as the user says."
)


async def run_verifier(
    conversation: Conversation, side_query: SideQuery, gate: ApprovalGate, choice: ModelRef, prompt: str
) -> str:
    """The final text of the agent. Raises ModelError, HookFailed."""
    config = conversation.config
    tools = {name: config.tools[name] for name in TOOLS if name in config.tools}
    agent = {"agent_id": f"hook-{config.clock.new_uuid()}", "agent_type": HOOK_AGENT}
    context = conversation.tool_context
    context = msgspec.structs.replace(context, state=AgentState(cwd=context.state.cwd))
    executor = ToolExecutor(tools, gate, context, conversation.hooks, config.warn, agent=agent)
    schemas = [tool_schema(tool) for tool in tools.values()]
    messages: list[Json] = [{"role": "user", "content": [{"type": "text", "text": prompt}]}]
    for _ in range(MAX_CALLS):
        blocks = await side_query.converse(choice, SYSTEM, messages, schemas)
        calls = [ToolUse(block) for block in blocks if block.get("type") == "tool_use"]
        if not calls:
            text = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text").strip()
            if not text:
                raise ModelError("the model's answer has no text")
            return text
        results = []
        for call in calls:
            outcome = await executor.run(call, conversation.mode)
            results.append(ToolResult.of(call.id, outcome.output.content, outcome.output.is_error).json)
        messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
    raise HookFailed(f"the agent of the hook did not answer within {MAX_CALLS} model calls")
