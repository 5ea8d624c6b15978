"""Tools that the client runs: the model calls one, and the client answers with a `tool_result`.

    declared   `--client-tools`, or `clientTools` of `initialize`: name, description, input_schema
    called     the assistant line tells the client; the decision is on record as for every call
    waits      on record as a question, without a deadline, while the session requires action
    answered   by a user line with the `tool_result`: several in one line, in any order, or early

An interrupt ends the wait, and so does a client that hangs up. A session that is resumed
while a call waits tells the call once more (recovery/pending_approvals.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
from msgspec import Meta

from parley.engine.hooks.output_blocks import to_content
from parley.engine.session.prompt_queue import RejectedPrompt
from parley.errors import SessionError, ToolError, UsageError
from parley.protocol.base import UNSET, Json, Struct
from parley.protocol.blocks import Block, ToolResult
from parley.protocol.messages.conversation import User
from parley.tools.base import Context, Tool, ToolOutput
from parley.workspace.base import Scope

if TYPE_CHECKING:
    from parley.engine.session.session import Session

CLIENT = "client"
"""Whom a question on record waits for, if it is no question of permission."""
CLIENT_CLOSED = "The client closed the stream before it gave the result of this call. It may have run."


class ClientToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as a client declares it; the model API's rules for names are ours."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
    description: str = ""
    input_schema: Json = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})


def parse_client_tools(tools: object) -> list[ClientToolSpec]:
    """Raises UsageError if these are no declarations of tools."""
    try:
        found = msgspec.convert(tools, list[ClientToolSpec])
    except msgspec.ValidationError as exc:
        raise UsageError(f"client tools must be a list of {{name, description, input_schema}}: {exc}") from None
    names = [tool.name for tool in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"client tools must have names of their own; {', '.join(twice)} comes twice")
    return found


def parse_client_tools_json(text: str) -> list[ClientToolSpec]:
    """Raises UsageError."""
    try:
        return parse_client_tools(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError) as exc:
        raise UsageError(f"client tools are no JSON: {exc}") from None


class ClientTool:
    input = dict[str, Any]
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
    """The calls that a session's client answers."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[str, asyncio.Future[ToolOutput]] = {}
        self._early: dict[str, ToolOutput] = {}
        """Results that came before their calls had got so far as to be waited for."""

    def declare(self, tools: Sequence[ClientToolSpec]) -> None:
        """The client's tools from now on; one of a name that we have goes before ours."""
        made = {tool.name: cast(Tool, ClientTool(tool, self)) for tool in tools}
        self._session.config.tools.set_overrides(made)

    async def wait_result(self, call: str) -> ToolOutput:
        """What the client gives for a call. Raises ToolError if it never will."""
        if call in self._early:
            return self._early.pop(call)
        session = self._session
        if session.outbox.is_client_gone:
            raise ToolError(CLIENT_CLOSED)
        self._append_request(call)
        answer: asyncio.Future[ToolOutput] = asyncio.get_running_loop().create_future()
        self._waiting[call] = answer
        try:
            with session.activity.waiting():
                return await answer
        finally:
            del self._waiting[call]

    def _append_request(self, call: str) -> None:
        """Raises ToolError: what waits must be found again."""
        record = self._session.journal
        if call in record.awaited_calls:
            return
        try:
            record.append_event("question", {"request_id": call, "tool_use_id": call, "waits_for": CLIENT})
        except SessionError as exc:
            raise ToolError(f"The call was not handed to the client: {exc}") from None

    def receive_results(self, message: User) -> User | None:
        """Hand out the results in a line; the line without them, or None if nothing is left of it."""
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
        """Whether somebody has a use for a result."""
        call, result = block.tool_use_id, parse_result(block, message)
        waiting = self._waiting.get(call)
        if waiting is not None and not waiting.done():
            waiting.set_result(result)
            return True
        if waiting is not None or not self._is_open_call(call):
            return False
        self._early[call] = result
        self._session.resumed_turn.enqueue()
        return True

    def _refuse_results(self, calls: list[str], *, alone: bool) -> None:
        """Results that nobody waits for are no prompt either. Whoever expects a turn of them hears of it."""
        text = f"no call of a client tool waits for the result of {', '.join(calls)}; it was dropped"
        self._session.config.warn(text)
        if alone and not self._session.is_running and not self._session.prompt_queue.has_turns():
            self._session.prompt_queue.put(RejectedPrompt(text))

    def _is_open_call(self, call: str) -> bool:
        """Whether a call of a client tool was told and has no result."""
        conversation = self._session.conversation
        name = conversation.journal.history.open_calls().get(call)
        return isinstance(conversation.tool_executor.tools.get(name or ""), ClientTool)

    def close(self) -> None:
        """Nobody will answer any more."""
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
