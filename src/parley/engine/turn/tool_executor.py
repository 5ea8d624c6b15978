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

from parley.engine.approval.gate import ApprovalGate
from parley.engine.approval.input_digest import input_digest
from parley.engine.hooks.registry import HookRegistry
from parley.engine.turn.in_flight import InFlightCalls
from parley.engine.turn.tool_outcome import DecisionRecord, ToolOutcome, denied_outcome, unusable_call
from parley.errors import ToolError
from parley.models.accumulator import is_unreadable
from parley.permissions.base import Allow, Ask, Deny, ToolRequest
from parley.protocol.base import Json
from parley.protocol.blocks import Block, ToolUse
from parley.tools.base import (
    Context,
    InvalidInput,
    PreparesInput,
    Tool,
    ToolOutput,
    always_asks,
    read_input,
    runs_elsewhere,
    server_name,
)
from parley.tools.registry import ToolRegistry
from parley.tools.selection import canonical_name
from parley.workspace.base import Files

if TYPE_CHECKING:
    from parley.engine.approval.hook_opinion import HookOpinion
    from parley.engine.hooks.dispatcher import HookDispatcher


ACCEPTED = {"host": "user_temporary", "hook": "hook"}
"""Who let a call run, as the line says it."""
ALTERED = "The input is not the one that was approved"


class ToolExecutor:
    """Runs the tool calls of a session."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        gate: ApprovalGate,
        context: Context,
        append_event: Callable[[str, Json], None],
        warn: Callable[[str], None],
        agent: Json | None = None,
        hooks: HookRegistry | None = None,
    ) -> None:
        self.tools = tools
        self.gate = gate
        self._warn = warn
        self._context = context
        self._append_event = append_event
        """Keeps a record in the session's log."""
        self.agent = agent
        """Who calls, as hooks are told: its `agent_id` and `agent_type`; None for the session's own model."""
        self._hooks = hooks
        self.in_flight = InFlightCalls()

    def is_read_only(self, call: ToolUse) -> bool:
        """Whether a call changes nothing here, so that others may run beside it."""
        return self.is_harmless(call.name) or self.runs_elsewhere(call.name)

    def runs_elsewhere(self, name: str) -> bool:
        tool = self._find(name)
        return tool is not None and runs_elsewhere(tool)

    def is_harmless(self, name: str) -> bool:
        tool = self._find(name)
        return tool is not None and tool.reads_only and not always_asks(tool)

    def prepare(self, call: ToolUse) -> ToolUse:
        """The call with its input as it is shown, allowed and run."""
        tool = self._find(call.name)
        if not isinstance(tool, PreparesInput) or is_unreadable(call):
            return call
        return ToolUse({**call.json, "input": tool.prepare(call.input, self._context)})

    def call_meta(self, block: Block) -> list[Json] | None:
        """How a client may show a call, where its tool says so."""
        tool = self._find(block.name) if isinstance(block, ToolUse) else None
        meta: Json | None = getattr(tool, "call_meta", None)
        return None if meta is None or not isinstance(block, ToolUse) else [{"id": block.id, **meta}]

    def _explain_missing(self, name: str) -> str:
        """Why there is no such tool, or what there is instead."""
        why = self.tools.explain_absence(name) if isinstance(self.tools, ToolRegistry) else ""
        return why or f"Available tools: {', '.join(self.tools) or 'none'}"

    def _find(self, name: str) -> Tool | None:
        return self.tools.get(name) or self.tools.get(canonical_name(name))

    async def run(self, call: ToolUse, mode: Callable[[], str]) -> ToolOutcome:
        """The whole life of one call, decided on in the mode of that moment.

        If it is cancelled, `course` has what is known of it.
        """
        try:
            outcome = await self._run(call, mode)
        finally:
            self.in_flight.discard(call.id)
        self.in_flight.finish(call.id)
        return outcome

    async def _run(self, call: ToolUse, mode: Callable[[], str]) -> ToolOutcome:
        tool = self._find(call.name)
        if tool is None:
            return ToolOutcome(
                output=unusable_call(f"Error: No such tool available: {call.name}. {self._explain_missing(call.name)}")
            )
        if is_unreadable(call):
            return ToolOutcome(
                output=unusable_call(f"InputValidationError: {call.name} was called with input that is no JSON")
            )
        # What it is prepared with may have changed since the call was told: a plan was written just before.
        call = self.prepare(call)
        try:
            read_input(tool, call.input)
        except InvalidInput as exc:
            return ToolOutcome(output=unusable_call(f"InputValidationError: {exc}"))
        if self._hooks is not None and self._hooks.dispatcher is not None:
            return await self._run_with_hooks(self._hooks.dispatcher, call, tool, mode)
        return await self._record_and_run(tool, await self._decide(call, tool, mode()))

    async def _run_with_hooks(
        self, dispatcher: HookDispatcher, call: ToolUse, tool: Tool, mode: Callable[[], str]
    ) -> ToolOutcome:
        """The same with hooks around it. They are over before anything is decided, and before anything runs."""
        before = await dispatcher.tool_hooks.before(call, tool, self.agent)
        opinions = [before.opinion] if before.opinion is not None else []
        if before.updated_input is not None:
            # A rule that denies what the model wanted denies it, whatever a hook makes of it.
            if not self.gate.is_denied_by_rule(permission_request(tool, call.input, self._context), mode()):
                call = ToolUse({**call.json, "input": before.updated_input})
            try:
                read_input(tool, call.input)
            except InvalidInput as exc:
                return ToolOutcome(output=unusable_call(f"InputValidationError: the input a hook gave: {exc}"))
        decision_record = await self._decide(call, tool, mode(), *opinions)
        if dispatcher.tool_hooks.guard_output(call, tool, self.agent):
            self.in_flight.guard(call.id)
        started_at = self._context.clock()
        outcome = await self._record_and_run(tool, decision_record)
        contexts, result = before.contexts, outcome.output
        stopped = before.stop_reason if before.stop_reason is not None else outcome.stop_reason
        if outcome.executed_input is not None:
            seconds = self._context.clock() - started_at
            after = await dispatcher.tool_hooks.after(call, tool, outcome.executed_input, result, seconds, self.agent)
            contexts, stopped, result = (*contexts, *after.contexts), after.stop_reason, after.output
        return msgspec.structs.replace(outcome, output=result, contexts=contexts, stop_reason=stopped)

    async def _record_and_run(self, tool: Tool, decision_record: DecisionRecord) -> ToolOutcome:
        if isinstance(decision_record.decision, Deny):
            return denied_outcome(decision_record.decision)
        return await self._execute(tool, decision_record.decision, decision_record)

    async def _decide(self, call: ToolUse, tool: Tool, mode: str, *opinions: HookOpinion) -> DecisionRecord:
        context = self._context
        started_at, shown = context.clock(), input_digest(call.input)
        request = permission_request(tool, call.input, context)
        decision = self.gate.evaluate(request, mode, *opinions)
        asked = isinstance(decision, Ask)
        if isinstance(decision, Ask):
            with context.observer.permission(call.name, call.id) as observation:
                decision = await self.gate.request_approval(decision, request, call, tool, self.agent)
                observation.set_attributes(
                    decision="allow" if isinstance(decision, Allow) else "deny", source=decision.source
                )
        # An input as it was shown is bound to what was shown then, not to what has become of it while we waited.
        changed = isinstance(decision, Allow) and decision.input is not call.input
        decision_record = DecisionRecord(
            call=call,
            decision=decision,
            input_sha256=input_digest(decision.input) if isinstance(decision, Allow) and changed else shown,
            mode=mode,
            cwd=request.cwd,
            was_asked=asked,
            wait_seconds=context.clock() - started_at,
        )
        self._record(decision_record)
        return decision_record

    async def _execute(self, tool: Tool, decision: Allow, decision_record: DecisionRecord) -> ToolOutcome:
        meta = {"decision": "accept", "source": ACCEPTED.get(decision.source, "config")}
        if decision.source != "host":
            meta["reason_type"] = decision.reason_type
        id = self._context.tool_use_id = decision_record.call.id
        self.in_flight.start(id)
        try:
            async with track_changes(self._context.files, tool):
                # What was allowed is what runs, byte for byte; nothing waits between this line and the next.
                if input_digest(decision.input) != decision_record.input_sha256:
                    return self._deny_altered(decision, decision_record)
                result = await self._call_tool(tool, decision, id)
                outcome = ToolOutcome(output=result, meta={"permission_decision": meta}, executed_input=decision.input)
                self.in_flight.record_output(id, outcome)
                return outcome
        except Exception as exc:
            return ToolOutcome(
                output=self._report_bug(tool, exc), meta={"permission_decision": meta}, executed_input=decision.input
            )

    async def _call_tool(self, tool: Tool, decision: Allow, id: str) -> ToolOutput:
        """What the tool gives, or what became of it instead."""
        reach = msgspec.structs.replace(decision.scope, call=id)
        try:
            return await tool.run(read_input(tool, decision.input), self._context, reach)
        except InvalidInput as exc:
            return unusable_call(f"InputValidationError: {exc}")
        except ToolError as exc:
            return ToolOutput(content=str(exc), detail=f"Error: {exc}", is_error=True)
        except Exception as exc:
            return self._report_bug(tool, exc)

    def _report_bug(self, tool: Tool, bug: Exception) -> ToolOutput:
        """A fault of ours costs this call, not the turn."""
        self._warn("".join(traceback.format_exception(bug)))
        text = f"{tool.name} failed with an internal error: {type(bug).__name__}: {bug}"
        return ToolOutput(content=text, detail=f"Error: {text}", is_error=True)

    def _deny_altered(self, decision: Allow, decision_record: DecisionRecord) -> ToolOutcome:
        """An input that is not the approved one: a fault of ours, and the call does not run."""
        name = decision_record.call.name
        self._warn(f"INTERNAL ERROR: the input of {name} ({decision_record.call.id}) is not the one that was approved")
        text = f"{name} was not run: its input changed after it was approved. This is a fault of the engine."
        denial = Deny(message=text, source="internal", reason=ALTERED, reason_type="other")
        self._record(
            msgspec.structs.replace(decision_record, decision=denial, input_sha256=input_digest(decision.input))
        )
        return denied_outcome(denial)

    def _record(self, decision_record: DecisionRecord) -> None:
        """Nothing runs without a recorded decision for exactly this input."""
        tool = self._find(decision_record.call.name)
        record = decision_record.json(reads_only=tool is not None and tool.reads_only)
        if self.agent is not None:
            record["agent_id"] = self.agent["agent_id"]
        self._append_event("permission", record)


def permission_request(tool: Tool, input: Json, context: Context) -> ToolRequest:
    """What the decision on a call is about."""
    return ToolRequest(
        tool=tool.name,
        input=input,
        cwd=context.cwd,
        reads_only=tool.reads_only,
        asks_user=always_asks(tool),
        plan_file=context.plan_file,
        runs_elsewhere=runs_elsewhere(tool),
        worktree=context.worktree,
        server=server_name(tool),
        search_path=context.environment.get("PATH", ""),
        home=context.environment.get("HOME", ""),
    )


@asynccontextmanager
async def track_changes(files: Files, tool: Tool) -> AsyncIterator[None]:
    """What a tool changes past `files`, by a command, can be rewound too where that is wanted."""
    if tool.reads_only or not files.watches_commands:
        yield
        return
    await asyncio.to_thread(files.before_command)
    try:
        yield
    finally:
        await asyncio.to_thread(files.after_command)
