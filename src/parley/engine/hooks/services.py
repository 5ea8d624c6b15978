"""What hooks from settings use of a session: models, agents, MCP servers and the network.

See also: `parley.hooks.base.HookServices`, which this implements.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from parley.engine.approval.gate import ApprovalGate
from parley.engine.context.conversation import Conversation
from parley.engine.hooks.runner import HOOK_AGENT
from parley.engine.turn.tool_executor import ToolExecutor
from parley.errors import ModelError, NotPossible, ToolError
from parley.hooks.base import HttpReply
from parley.hooks.output import HookFailed
from parley.models.catalog import ModelRef
from parley.protocol.base import Json
from parley.protocol.blocks import ToolResult, ToolUse
from parley.tools.base import AgentState, tool_schema

TOOLS = ("Read", "Grep", "Glob")
MAX_CALLS = 50
"""Model calls of one run."""
SYSTEM = (
    "You check whether a condition is met. Look at files with your tools if you need to; you cannot change anything. "
    "When you know, answer as the user says."
)


class SessionHookServices:
    def __init__(self, conversation: Conversation, gate: ApprovalGate) -> None:
        """`gate` asks no one. It decides on the calls of agent hooks."""
        self._conversation = conversation
        self._side_query = conversation.parts.side_query
        self._servers = conversation.parts.servers
        self._gate = gate

    async def ask_model(self, prompt: str, model: str | None) -> str:
        try:
            if model is None:
                return await self._side_query.ask_small(prompt)
            return await self._side_query.ask(self._find_model(model), prompt)
        except ModelError as exc:
            raise HookFailed(f"the model failed: {exc}") from None

    async def run_agent(self, prompt: str, model: str | None) -> str:
        choice = self._conversation.model if model is None else self._find_model(model)
        try:
            return await run_verifier(self._conversation, self._gate, choice, prompt)
        except ModelError as exc:
            raise HookFailed(f"the model failed: {exc}") from None

    def _find_model(self, name: str) -> ModelRef:
        try:
            return self._conversation.find_model(name)
        except NotPossible as exc:
            raise HookFailed(str(exc)) from None

    async def call_mcp_tool(self, server: str, tool: str, input: Json) -> Json:
        found = self._servers.find(server)
        if found is None:
            raise HookFailed(f"there is no MCP server {server!r}")
        if found.status != "connected":
            raise HookFailed(f"the MCP server {server!r} is not connected ({found.status})")
        if tool not in [listed["name"] for listed in found.tools]:
            raise HookFailed(f"the MCP server {server!r} has no tool {tool!r}")
        try:
            # The timeout of the hook applies.
            answer = await found.call(tool, input, meta={}, seconds=None)
        except ToolError as exc:
            raise HookFailed(f"{server}/{tool} failed: {exc}") from None
        content = answer.get("content")
        blocks = content if isinstance(content, list) else []
        if answer.get("isError") is True:
            text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
            raise HookFailed(f"{server}/{tool} failed: {text}")
        return {**answer, "content": blocks}

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, is_listed: bool) -> HttpReply:
        open_web = self._conversation.tool_context.open_web
        if open_web is None:
            raise HookFailed("the network is not available in this session")
        try:
            page = await open_web().post(url, headers, body, own=is_listed)
        except ToolError as exc:
            raise HookFailed(str(exc)) from None
        return HttpReply(status=page.code, body=page.body)


async def run_verifier(conversation: Conversation, gate: ApprovalGate, choice: ModelRef, prompt: str) -> str:
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
        blocks = await conversation.parts.side_query.converse(choice, SYSTEM, messages, schemas)
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
