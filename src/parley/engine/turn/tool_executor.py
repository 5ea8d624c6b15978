"""One tool call's life: find the tool, check the input, decide, note the intent, run, tell.

Whatever goes wrong becomes an output with `is_error` for the model; only a cancellation
leaves a call without one, and then the turn writes it.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from parley.engine.approval.gate import Asker
from parley.engine.approval.input_digest import digest
from parley.engine.hooks.registry import Listeners
from parley.engine.turn.in_flight import Course
from parley.engine.turn.tool_outcome import Called, Decided, refused, unusable
from parley.errors import ToolError
from parley.models.accumulator import is_unreadable
from parley.permissions.base import Allow, Ask, Deny, Request
from parley.protocol.base import Json
from parley.protocol.blocks import Block, ToolUse
from parley.tools.base import (
    BadInput,
    Context,
    Preparing,
    Result,
    Tool,
    always_asks,
    read_input,
    runs_elsewhere,
    server_name,
)
from parley.tools.registry import Shelf
from parley.tools.selection import canonical
from parley.workspace.base import Files

if TYPE_CHECKING:
    from parley.engine.approval.hook_opinion import Opinion
    from parley.engine.hooks.dispatcher import Hooking


ACCEPTED = {"host": "user_temporary", "hook": "hook"}
"""Who let a call run, as the line says it."""
ALTERED = "The input is not the one that was approved"


class Caller:
    """Runs the tool calls of a session."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        asker: Asker,
        context: Context,
        note: Callable[[str, Json], None],
        complain: Callable[[str], None],
        agent: Json | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        self.tools = tools
        self.asker = asker
        self._complain = complain
        self._context = context
        self._note = note
        """Keeps a record in the session's log."""
        self.agent = agent
        """Who calls, as hooks are told: its `agent_id` and `agent_type`; None for the session's own model."""
        self._listeners = listeners or Listeners()
        self.course = Course()

    def reads_only(self, call: ToolUse) -> bool:
        """Whether a call changes nothing here, so that others may run beside it."""
        return self.is_harmless(call.name) or self.runs_elsewhere(call.name)

    def runs_elsewhere(self, name: str) -> bool:
        tool = self._find(name)
        return tool is not None and runs_elsewhere(tool)

    def is_harmless(self, name: str) -> bool:
        tool = self._find(name)
        return tool is not None and tool.reads_only and not always_asks(tool)

    def prepared(self, call: ToolUse) -> ToolUse:
        """The call with its input as it is shown, allowed and run."""
        tool = self._find(call.name)
        if not isinstance(tool, Preparing) or is_unreadable(call):
            return call
        return ToolUse({**call.json, "input": tool.prepare(call.input, self._context)})

    def call_meta(self, block: Block) -> list[Json] | None:
        """How a client may show a call, where its tool says so."""
        tool = self._find(block.name) if isinstance(block, ToolUse) else None
        meta: Json | None = getattr(tool, "call_meta", None)
        return None if meta is None or not isinstance(block, ToolUse) else [{"id": block.id, **meta}]

    def _absence(self, name: str) -> str:
        """Why there is no such tool, or what there is instead."""
        why = self.tools.absence(name) if isinstance(self.tools, Shelf) else ""
        return why or f"Available tools: {', '.join(self.tools) or 'none'}"

    def _find(self, name: str) -> Tool | None:
        return self.tools.get(name) or self.tools.get(canonical(name))

    async def run(self, call: ToolUse, mode: Callable[[], str]) -> Called:
        """The whole life of one call, decided on in the mode of that moment.

        If it is cancelled, `course` has what is known of it.
        """
        try:
            called = await self._lived(call, mode)
        finally:
            self.course.leave(call.id)
        self.course.end(call.id)
        return called

    async def _lived(self, call: ToolUse, mode: Callable[[], str]) -> Called:
        tool = self._find(call.name)
        if tool is None:
            return Called(result=unusable(f"Error: No such tool available: {call.name}. {self._absence(call.name)}"))
        if is_unreadable(call):
            return Called(result=unusable(f"InputValidationError: {call.name} was called with input that is no JSON"))
        # What it is prepared with may have changed since the call was told: a plan was written just before.
        call = self.prepared(call)
        try:
            read_input(tool, call.input)
        except BadInput as flaw:
            return Called(result=unusable(f"InputValidationError: {flaw}"))
        if self._listeners.live is not None:
            return await self._run_hooked(self._listeners.live, call, tool, mode)
        return await self._carry_out(tool, await self._decide(call, tool, mode()))

    async def _run_hooked(self, live: Hooking, call: ToolUse, tool: Tool, mode: Callable[[], str]) -> Called:
        """The same with hooks around it. They are over before anything is decided, and before anything runs."""
        before = await live.calls.before(call, tool, self.agent)
        opinions = [before.opinion] if before.opinion is not None else []
        if before.updated_input is not None:
            # A rule that denies what the model wanted denies it, whatever a hook makes of it.
            if not self.asker.is_denied_by_rule(request_of(tool, call.input, self._context), mode()):
                call = ToolUse({**call.json, "input": before.updated_input})
            try:
                read_input(tool, call.input)
            except BadInput as flaw:
                return Called(result=unusable(f"InputValidationError: the input a hook gave: {flaw}"))
        decided = await self._decide(call, tool, mode(), *opinions)
        if live.calls.guard_output(call, tool, self.agent):
            self.course.guard(call.id)
        begun = self._context.clock()
        called = await self._carry_out(tool, decided)
        contexts, result = before.contexts, called.result
        stopped = before.stopped if before.stopped is not None else called.stopped
        if called.ran is not None:
            seconds = self._context.clock() - begun
            after = await live.calls.after(call, tool, called.ran, result, seconds, self.agent)
            contexts, stopped, result = (*contexts, *after.contexts), after.stopped, after.result
        return msgspec.structs.replace(called, result=result, contexts=contexts, stopped=stopped)

    async def _carry_out(self, tool: Tool, decided: Decided) -> Called:
        if isinstance(decided.decision, Deny):
            return refused(decided.decision)
        return await self._execute(tool, decided.decision, decided)

    async def _decide(self, call: ToolUse, tool: Tool, mode: str, *opinions: Opinion) -> Decided:
        context = self._context
        begun, shown = context.clock(), digest(call.input)
        request = request_of(tool, call.input, context)
        decision = self.asker.judge(request, mode, *opinions)
        asked = isinstance(decision, Ask)
        if isinstance(decision, Ask):
            with context.observer.permission(call.name, call.id) as watch:
                decision = await self.asker.ask(decision, request, call, tool, self.agent)
                watch.note(decision="allow" if isinstance(decision, Allow) else "deny", source=decision.source)
        # An input as it was shown is bound to what was shown then, not to what has become of it while we waited.
        changed = isinstance(decision, Allow) and decision.input is not call.input
        decided = Decided(
            call=call,
            decision=decision,
            input_sha256=digest(decision.input) if isinstance(decision, Allow) and changed else shown,
            mode=mode,
            cwd=request.cwd,
            asked=asked,
            seconds=context.clock() - begun,
        )
        self._record(decided)
        return decided

    async def _execute(self, tool: Tool, decision: Allow, decided: Decided) -> Called:
        meta = {"decision": "accept", "source": ACCEPTED.get(decision.source, "config")}
        if decision.source != "host":
            meta["reason_type"] = decision.reason_type
        id = self._context.tool_use_id = decided.call.id
        self.course.begin(id)
        try:
            async with watched(self._context.files, tool):
                # What was allowed is what runs, byte for byte; nothing waits between this line and the next.
                if digest(decision.input) != decided.input_sha256:
                    return self._altered(decision, decided)
                result = await self._result(tool, decision, id)
                called = Called(result=result, meta={"permission_decision": meta}, ran=decision.input)
                self.course.ran(id, called)
                return called
        except Exception as bug:
            return Called(result=self._failed(tool, bug), meta={"permission_decision": meta}, ran=decision.input)

    async def _result(self, tool: Tool, decision: Allow, id: str) -> Result:
        """What the tool gives, or what became of it instead."""
        reach = msgspec.structs.replace(decision.reach, call=id)
        try:
            return await tool.run(read_input(tool, decision.input), self._context, reach)
        except BadInput as flaw:
            return unusable(f"InputValidationError: {flaw}")
        except ToolError as flaw:
            return Result(content=str(flaw), detail=f"Error: {flaw}", is_error=True)
        except Exception as bug:
            return self._failed(tool, bug)

    def _failed(self, tool: Tool, bug: Exception) -> Result:
        """A fault of ours costs this call, not the turn."""
        self._complain("".join(traceback.format_exception(bug)))
        text = f"{tool.name} failed with an internal error: {type(bug).__name__}: {bug}"
        return Result(content=text, detail=f"Error: {text}", is_error=True)

    def _altered(self, decision: Allow, decided: Decided) -> Called:
        """An input that is not the approved one: a fault of ours, and the call does not run."""
        name = decided.call.name
        self._complain(f"INTERNAL ERROR: the input of {name} ({decided.call.id}) is not the one that was approved")
        text = f"{name} was not run: its input changed after it was approved. This is a fault of the engine."
        denial = Deny(message=text, source="internal", reason=ALTERED, reason_type="other")
        self._record(msgspec.structs.replace(decided, decision=denial, input_sha256=digest(decision.input)))
        return refused(denial)

    def _record(self, decided: Decided) -> None:
        """Nothing runs without a recorded decision for exactly this input."""
        tool = self._find(decided.call.name)
        record = decided.json(reads_only=tool is not None and tool.reads_only)
        if self.agent is not None:
            record["agent_id"] = self.agent["agent_id"]
        self._note("permission", record)


def request_of(tool: Tool, input: Json, context: Context) -> Request:
    """What the decision on a call is about."""
    return Request(
        tool=tool.name,
        input=input,
        cwd=context.cwd,
        reads_only=tool.reads_only,
        asks_person=always_asks(tool),
        plan_file=context.plan_file,
        runs_elsewhere=runs_elsewhere(tool),
        worktree=context.worktree,
        server=server_name(tool),
        path=context.environment.get("PATH", ""),
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
