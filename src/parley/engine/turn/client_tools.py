"""Tools that the client runs: the model calls one, and the client answers with a `tool_result`.

    declared   by `--client-tools`, or `clientTools` of `initialize`: name, description, input_schema
    called     the client reads the assistant message; the decision is journalled as for every call
    waits      journalled as a question, without a deadline; the session's state is `requires_action`
    answered   by a user message with the `tool_result`: several in one message, in any order, or early

An interrupt ends the wait, and so does a client that disconnects. A session that is resumed while a call waits sends
the call again (session/recover.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from parley.engine.context.conversation import Conversation
from parley.engine.hooks.tool_hooks import to_content
from parley.engine.session.config import ClientToolSpec
from parley.engine.session.prompts import RejectedPrompt
from parley.errors import SessionError, ToolError, UsageError
from parley.protocol.base import UNSET, Json
from parley.protocol.blocks import Block, ToolResult
from parley.protocol.messages.conversation import User
from parley.tools.base import Context, Tool, ToolOutput
from parley.workspace.base import Scope

CLIENT = "client"
"""What a journalled question waits for, if it is not about permission."""
CLIENT_CLOSED = "The client closed the stream before it gave the result of this call. It may have run."


class ClientTool(Tool):
    reads_only = False
    runs_elsewhere = True

    def __init__(self, tool: ClientToolSpec, calls: ClientTools) -> None:
        self.name = tool.name
        self.description = tool.description
        self.input_schema = tool.input_schema
        self._calls = calls

    async def run(self, call: Json, context: Context, reach: Scope) -> ToolOutput:
        """Raises ToolError."""
        return await self._calls.wait_result(reach.call)


class ClientTools:
    """The calls that the client of a session answers."""

    def __init__(self, conversation: Conversation, resume_turn: Callable[[], None]) -> None:
        self._tools = conversation.config.tools
        self._journal = conversation.journal
        self._outbox = conversation.parts.outbox
        self._activity = conversation.parts.activity
        self._prompt_queue = conversation.parts.prompt_queue
        self._resume_turn = resume_turn
        self._warn = conversation.config.warn
        self._waiting: dict[str, asyncio.Future[ToolOutput]] = {}
        self._early: dict[str, ToolOutput] = {}
        """Results that arrived before their calls waited for them."""

    def declare(self, tools: Sequence[ClientToolSpec]) -> None:
        """Set the tools of the client. They replace ours of the same name."""
        made = {tool.name: ClientTool(tool, self) for tool in tools}
        self._tools.set_overrides(made)

    async def wait_result(self, call: str) -> ToolOutput:
        """The result that the client gives for a call. Raises ToolError if the client is gone."""
        if call in self._early:
            return self._early.pop(call)
        if self._outbox.is_client_gone:
            raise ToolError(CLIENT_CLOSED)
        self._append_request(call)
        answer: asyncio.Future[ToolOutput] = asyncio.get_running_loop().create_future()
        self._waiting[call] = answer
        try:
            with self._activity.waiting():
                return await answer
        finally:
            del self._waiting[call]

    def _append_request(self, call: str) -> None:
        """Journal that the call waits, so that a resume finds it. Raises ToolError."""
        journal = self._journal
        if call in journal.awaited_calls:
            return
        try:
            journal.append_event("question", {"request_id": call, "tool_use_id": call, "waits_for": CLIENT})
        except SessionError as exc:
            raise ToolError(f"The call was not sent to the client: {exc}") from None

    def receive_results(self, message: User) -> User | None:
        """Deliver the results in a message; the message without them, or None if nothing is left."""
        content = message.message.content
        if isinstance(content, str):
            return message
        left: list[Block] = []
        unfit: list[str] = []
        for block in content:
            if not isinstance(block, ToolResult):
                left.append(block)
            elif not self._deliver(block, message):
                unfit.append(block.tool_use_id)
        if unfit:
            self._refuse_results(unfit, alone=not left)
        if not left:
            return None
        inner = msgspec.structs.replace(message.message, content=left)
        return msgspec.structs.replace(message, message=inner, tool_use_result=UNSET)

    def _deliver(self, block: ToolResult, message: User) -> bool:
        """Whether a call waits, or will wait, for a result."""
        call, result = block.tool_use_id, parse_result(block, message)
        waiting = self._waiting.get(call)
        if waiting is not None and not waiting.done():
            waiting.set_result(result)
            return True
        if waiting is not None or not self._is_open_call(call):
            return False
        self._early[call] = result
        self._resume_turn()
        return True

    def _refuse_results(self, calls: list[str], *, alone: bool) -> None:
        """Results without a waiting call are dropped. A message with nothing else gets a failed result."""
        text = f"a tool_result was dropped: no client tool call waits for it ({', '.join(calls)})"
        self._warn(text)
        if alone and not self._activity.is_running and not self._prompt_queue.has_turns():
            self._prompt_queue.put(RejectedPrompt(text))

    def _is_open_call(self, call: str) -> bool:
        """Whether a call of a client tool was sent and has no result."""
        name = self._journal.history.open_calls().get(call)
        return isinstance(self._tools.get(name or ""), ClientTool)

    def close(self) -> None:
        """The client is gone: fail every call that waits."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ToolError(CLIENT_CLOSED))


def parse_result(block: ToolResult, message: User) -> ToolOutput:
    detail = None if message.tool_use_result is UNSET else message.tool_use_result
    content = block.content
    return ToolOutput(
        content="" if content is None else to_content(content),
        detail=detail,
        is_error=True if block.is_error is True else None,
    )


def parse_client_tools(tools: object) -> list[ClientToolSpec]:
    """Raises UsageError if the declarations are invalid."""
    try:
        found = msgspec.convert(tools, list[ClientToolSpec])
    except msgspec.ValidationError as exc:
        raise UsageError(f"client tools must be a list of {{name, description, input_schema}}: {exc}") from None
    names = [tool.name for tool in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"client tools must have unique names; {', '.join(twice)} is used twice")
    return found


def parse_client_tools_json(text: str) -> list[ClientToolSpec]:
    """Raises UsageError."""
    try:
        return parse_client_tools(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError) as exc:
        raise UsageError(f"client tools are not valid JSON: {exc}") from None
