"""One tool call's life: find the tool, check the input, decide, note the intent, run, tell.

Whatever goes wrong becomes an output with `is_error` for the model; only a cancellation
leaves a call without one, and then the turn writes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec

from parley.errors import ToolError
from parley.host import AnswerIsError, Host, HostGone
from parley.models.growth import is_unreadable
from parley.permissions.base import Allow, Ask, Decision, Deny
from parley.protocol.base import UNSET, Json, Struct, convert
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.requests import CanUseTool, PermissionAnswer
from parley.tools.base import BadInput, Context, Preparing, Result, Tool, always_asks, read_input
from parley.tools.offer import canonical
from parley.workspace.base import Files


class Rules(Protocol):
    """Who decides, before anybody is asked."""

    def decide(self, tool: str, input: Json, mode: str) -> Decision: ...


class Called(Struct, frozen=True, kw_only=True):
    """How a call ended."""

    result: Result
    denied: bool = False
    asked: bool = False
    stops_turn: bool = False
    decision: Json | None = None
    """For the line's `tool_result_meta`."""


class Caller:
    """Runs the tool calls of a session."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        rules: Rules,
        context: Context,
        note: Callable[[str, Json], None],
        ask_host: Host | None,
    ) -> None:
        self.tools = tools
        self._rules = rules
        self._context = context
        self._note = note
        """Keeps a record in the session's log."""
        self._ask_host = ask_host
        """Who answers can_use_tool; None if nobody does."""

    def reads_only(self, call: ToolUse) -> bool:
        """Whether a call changes nothing, so that others may run beside it."""
        tool = self._find(call.name)
        return tool is not None and tool.reads_only and not always_asks(tool)

    def prepared(self, call: ToolUse) -> ToolUse:
        """The call with its input as it is shown, allowed and run."""
        tool = self._find(call.name)
        if not isinstance(tool, Preparing) or is_unreadable(call):
            return call
        return ToolUse({**call.json, "input": tool.prepare(call.input, self._context)})

    def _find(self, name: str) -> Tool | None:
        return self.tools.get(name) or self.tools.get(canonical(name))

    async def run(self, call: ToolUse, mode: str) -> Called:
        """The whole life of one call."""
        tool = self._find(call.name)
        if tool is None:
            names = ", ".join(self.tools) or "none"
            return Called(result=unusable(f"Error: No such tool available: {call.name}. Available tools: {names}"))
        if is_unreadable(call):
            return Called(result=unusable(f"InputValidationError: {call.name} was called with input that is no JSON"))
        # What it is prepared with may have changed since the call was told: a plan was written just before.
        call = self.prepared(call)
        try:
            read_input(tool, call.input)
        except BadInput as flaw:
            return Called(result=unusable(f"InputValidationError: {flaw}"))
        decision = self._rules.decide(call.name, call.input, mode)
        if always_asks(tool) and isinstance(decision, Allow):
            decision = Ask(reason="only a person can answer this")
        asked = isinstance(decision, Ask)
        if isinstance(decision, Ask):
            decision = await self._ask(call, tool)
        self._record(call, decision)
        if isinstance(decision, Deny):
            return Called(
                result=Result(content=decision.message, detail=f"Error: {decision.message}", is_error=True),
                denied=True,
                asked=asked,
                stops_turn=decision.interrupt,
            )
        return await self._execute(tool, decision, call.id)

    async def _execute(self, tool: Tool, decision: Allow, tool_use_id: str) -> Called:
        meta = {"decision": "accept", "source": DECISION_SOURCES[decision.source]}
        if decision.source != "host":
            meta["reason_type"] = decision.source
        self._context.tool_use_id = tool_use_id
        try:
            # What was allowed is what runs: the host may have changed the input.
            async with watched(self._context.files, tool):
                result = await tool.run(read_input(tool, decision.input), self._context, decision.reach)
        except BadInput as flaw:
            result = unusable(f"InputValidationError: {flaw}")
        except ToolError as flaw:
            result = Result(content=str(flaw), detail=f"Error: {flaw}", is_error=True)
        return Called(result=result, decision=meta)

    async def _ask(self, call: ToolUse, tool: Tool) -> Allow | Deny:
        if self._ask_host is None:
            text = f"Permission to use {call.name} was not given: there is nobody to ask."
            return Deny(message=text, source="nobody")
        request = CanUseTool(
            tool_name=call.name,
            display_name=call.name,
            input=call.input,
            description=call.input["description"] if isinstance(call.input.get("description"), str) else UNSET,
            permission_suggestions=UNSET if always_asks(tool) else [],
            tool_use_id=call.id,
            requires_user_interaction=True if always_asks(tool) else UNSET,
        )
        try:
            answer = await self._ask_host.ask(request)
        except HostGone:
            return Deny(message="Permission could not be asked for: the stream was closed.", source="host")
        except AnswerIsError as flaw:
            return Deny(message=f"Permission could not be asked for: {flaw}", source="host")
        return judged(answer, call.input, tool)

    def _record(self, call: ToolUse, decision: Allow | Deny) -> None:
        """Nothing runs without a recorded decision for exactly this input."""
        allowed = isinstance(decision, Allow)
        input = decision.input if isinstance(decision, Allow) else call.input
        self._note(
            "permission",
            {
                "tool_use_id": call.id,
                "tool": call.name,
                "decision": "allow" if allowed else "deny",
                "source": decision.source,
                "input_sha256": digest(input),
            },
        )


@asynccontextmanager
async def watched(files: Files, tool: Tool) -> AsyncIterator[None]:
    """What a tool changes past `files`, by a command, can be rewound too where that is wanted."""
    if tool.reads_only or not files.watches_commands:
        yield
        return
    await asyncio.to_thread(files.before_command)
    try:
        yield
    finally:
        await asyncio.to_thread(files.after_command)


DECISION_SOURCES = {"mode": "config", "rule": "config", "host": "user_temporary"}


def digest(input: Json) -> str:
    import hashlib

    return hashlib.sha256(msgspec.json.encode(input, order="sorted")).hexdigest()


def unusable(text: str) -> Result:
    """A call that could not even be tried."""
    return Result(content=f"<tool_use_error>{text}</tool_use_error>", detail=text, is_error=True)


def judged(answer: Any, input: Json, tool: Tool) -> Allow | Deny:
    """What the host's answer means. Whatever is not clearly an allow is a denial."""
    try:
        told: PermissionAnswer = convert(answer, PermissionAnswer)
    except msgspec.ValidationError as flaw:
        return Deny(message=f"The host's answer to the permission request was invalid: {flaw}", source="host")
    if told.behavior == "allow":
        input = told.updatedInput if isinstance(told.updatedInput, dict) else input
        # Seed 003 answers questions beside the input, not inside it.
        if isinstance(told.selectedOptions, list) and "selectedOptions" in tool.input.__struct_fields__:
            input = {**input, "selectedOptions": told.selectedOptions}
        return Allow(input=input, source="host")
    if told.behavior == "deny" and isinstance(told.message, str):
        return Deny(message=told.message, source="host", interrupt=told.interrupt is True)
    return Deny(message="The host's answer to the permission request was neither allow nor deny.", source="host")
