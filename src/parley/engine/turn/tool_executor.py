"""The life of one tool call: find the tool, check the input, decide, run, report.

    outcome = await executor.run(call, mode)

Every failure becomes an output with `is_error` for the model. Only a cancelled call has no outcome; `in_flight` then
knows whether it ran.

See also: `approval/gate.py` decides, `turn.py` runs the calls of one answer.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress

import msgspec

from parley.engine.approval.gate import Approval, ApprovalGate, CallDeferred
from parley.engine.approval.request import input_digest
from parley.engine.hooks.registry import HookRegistry
from parley.errors import ToolError
from parley.models.accumulator import UNREADABLE, is_unreadable
from parley.permissions.base import Allow, Deny
from parley.protocol.base import Json, Struct
from parley.protocol.blocks import Block, ToolUse
from parley.tools.base import (
    Context,
    InvalidInput,
    Tool,
    ToolOutput,
    ToolRegistry,
    read_input,
    tool_schema,
)
from parley.tools.catalog import BUILT_IN, canonical_name, model_name, names_of
from parley.workspace.base import Files

TOOL_SEARCH = "ToolSearch"
ACCEPTED = {"host": "user_temporary", "hook": "hook"}
"""Who allowed a call, as `tool_result_meta` spells it."""
NOT_RUN = {"host": ("permission-rule", "user_reject"), "nobody": ("user-rejected", "config")}
"""How and by whom a call was denied, as `tool_result_meta` spells it, by the source of the denial."""
BY_RULE = ("permission-rule", "config")
BY_HOOK = ("permission-rule", "hook")
STOPPED_TEXT = "The user did not want this tool call and ended the turn. Wait for what they say next."
CUT_OFF = "the turn was cut off before the required hooks ran"
ALTERED = "The input is not the one that was approved"


class ToolOutcome(Struct, frozen=True, kw_only=True):
    """How a call ended, whether it ran or not."""

    output: ToolOutput
    denied: Deny | None = None
    meta: Json | None = None
    """For the `tool_result_meta` of the message."""
    contexts: tuple[str, ...] = ()
    """Messages of hooks to the model."""
    stop_reason: str | None = None
    """Why a hook ends the turn, if one does."""
    executed_input: Json | None = None
    """The input that it ran with, if it ran."""
    deferred: ToolUse | None = None
    """The call, if a hook deferred it. It has no result yet."""

    @property
    def stops_turn(self) -> bool:
        return self.denied is not None and self.denied.interrupt


class InFlightCalls:
    """The calls that have started and are not reported yet, so that an interrupt can report what ran."""

    def __init__(self) -> None:
        self._started: set[str] = set()
        self._ran: dict[str, ToolOutcome] = {}
        self._guarded: set[str] = set()
        """Calls whose output is withheld until a hook that must not fail has seen it."""

    @property
    def has_started(self) -> bool:
        """Whether a call has started whose hooks have not finished."""
        return bool(self._started)

    @contextmanager
    def track(self, call: str) -> Iterator[None]:
        """The body is the life of a call. If it is cancelled, its output stays for `pop_output`."""
        try:
            yield
        finally:
            self._started.discard(call)
        self._ran.pop(call, None)
        self._guarded.discard(call)

    def guard(self, call: str) -> None:
        self._guarded.add(call)

    def start(self, call: str) -> None:
        self._started.add(call)

    def record_output(self, call: str, outcome: ToolOutcome) -> None:
        """The call ran; its hooks have not."""
        self._ran[call] = outcome

    def pop_output(self, call: str) -> ToolOutcome | None:
        """The outcome of a call that ran and was cut off.

        A hook that was cut off counts as failed: if it must not fail, the output is withheld.
        """
        outcome, is_guarded = self._ran.pop(call, None), call in self._guarded
        self._guarded.discard(call)
        if outcome is None or not is_guarded or outcome.output.is_error:
            return outcome
        return msgspec.structs.replace(outcome, output=withhold_output(CUT_OFF))


class ToolExecutor:
    """Runs the tool calls of a conversation."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        gate: ApprovalGate,
        context: Context,
        hooks: HookRegistry,
        warn: Callable[[str], None],
        agent: Json | None = None,
    ) -> None:
        self.tools = tools
        self._gate = gate
        self.context = context
        self._hooks = hooks
        self._warn = warn
        self.agent = agent
        """The `agent_id` and `agent_type` of the subagent that calls; None for the session's own model."""
        self.in_flight = InFlightCalls()
        self.aliases: Mapping[str, str] = {}
        """Other names for tools, which the client declares: a call of the key runs the tool that is its value."""

    def is_read_only(self, call: ToolUse) -> bool:
        """Whether a call changes nothing here, so that others may run at the same time."""
        return self.is_harmless(call.name) or self.runs_elsewhere(call.name)

    def runs_elsewhere(self, name: str) -> bool:
        tool = self._find(name)
        return tool is not None and tool.runs_elsewhere

    def is_harmless(self, name: str) -> bool:
        tool = self._find(name)
        return tool is not None and tool.reads_only and not tool.always_asks

    def resolve_alias(self, call: ToolUse) -> ToolUse:
        """The call of the tool that an alias stands for. One step: an alias of an alias is not followed."""
        name = self.aliases.get(call.name)
        return call if name is None else ToolUse({**call.json, "name": name})

    def repair(self, call: ToolUse) -> tuple[ToolUse, list[str]]:
        """The call as the model meant it, and what was changed; the same object if it is valid, or not clear."""
        input, changes = call.input, list[str]()
        name = self._find_meant(call.name) or call.name
        if name != call.name:
            changes.append(f"{call.name!r:.100} -> {name}")
        if is_unreadable(call):
            from parley.engine.repair.arguments import NotRepairable, read_arguments

            with suppress(NotRepairable):
                input, repaired = read_arguments(input[UNREADABLE]["raw"])
                changes += repaired
        tool = self._find(name)
        if tool is not None and UNREADABLE not in input:
            input, fitted = self._fit_input(tool, input)
            changes += fitted
        return (ToolUse({**call.json, "name": name, "input": input}), changes) if changes else (call, [])

    def _fit_input(self, tool: Tool, input: Json) -> tuple[Json, list[str]]:
        """The input as the schema of the tool wants it, if it is invalid and that is clear."""
        own = tool.input_schema
        if own is None and self._is_valid(tool, input):
            return input, []
        from parley.engine.repair.arguments import fit_arguments

        if own is not None:
            return fit_arguments(input, own)
        schema = tool_schema(tool)["input_schema"]
        fitted, changes = fit_arguments(input, schema, is_built_in=canonical_name(tool.name) in BUILT_IN)
        return (fitted, changes) if self._is_valid(tool, fitted) else (input, [])

    def _is_valid(self, tool: Tool, input: Json) -> bool:
        try:
            read_input(tool, tool.prepare(input, self.context))
        except InvalidInput:
            return False
        return True

    def prepare(self, call: ToolUse) -> ToolUse:
        """The call with its input as it is shown, allowed and run. ToolSearch can call another tool."""
        if call.name == TOOL_SEARCH and isinstance(called := call.input.get("call"), str) and called:
            given = call.input.get("input")
            call = ToolUse({**call.json, "name": called, "input": given if isinstance(given, dict) else {}})
        return self._prepare(self._find(call.name), call)

    def _prepare(self, tool: Tool | None, call: ToolUse) -> ToolUse:
        given = call.input
        prepared = given if tool is None or is_unreadable(call) else tool.prepare(given, self.context)
        return call if prepared is given else ToolUse({**call.json, "input": prepared})

    def call_meta(self, block: Block) -> list[Json] | None:
        """How a client may show a call, if its tool says so."""
        tool = self._find(block.name) if isinstance(block, ToolUse) else None
        meta = None if tool is None else tool.call_meta
        return None if meta is None or not isinstance(block, ToolUse) else [{"id": block.id, **meta}]

    def _explain_absence(self, name: str) -> str:
        return self.tools.explain_absence(name) if isinstance(self.tools, ToolRegistry) else ""

    def _explain_missing(self, name: str) -> str:
        """Why there is no such tool, or which tools there are."""
        return self._explain_absence(name) or f"Available tools: {', '.join(map(model_name, self.tools)) or 'none'}"

    def has_tool(self, name: str) -> bool:
        return self._find(name) is not None

    def means_tool(self, name: str) -> bool:
        """Whether a tool has this name, or is meant by it."""
        return self._find_meant(name) is not None

    def _find_meant(self, name: str) -> str | None:
        """The tool that is meant by a name; None if there is none, or more than one."""
        if self._find(name) is not None:
            return name
        if self._explain_absence(name):
            return None
        from parley.engine.repair.arguments import find_name

        return find_name(name, {spelling: tool for tool in self.tools for spelling in names_of(tool)})

    def _find(self, name: str) -> Tool | None:
        name = self.aliases.get(name, name)
        return self.tools.get(name) or self.tools.get(canonical_name(name))

    async def run(self, call: ToolUse, mode: Callable[[], str], *, may_defer: bool = False) -> ToolOutcome:
        """Run one call from lookup to hooks. `mode` gives the permission mode at the time of the decision.

        `may_defer`: a hook may defer the call, because it is the only one of its answer.
        """
        with self.in_flight.track(call.id):
            # Find the tool and check the input. Rules, hooks and the client see the tool, not its alias.
            tool, call = self._find(call.name), self.resolve_alias(call)
            if tool is None:
                why = self._explain_missing(call.name)
                return unusable_call(f"Error: No such tool available: {call.name}. {why}")
            if is_unreadable(call):
                return unusable_call(f"InputValidationError: {explain_unreadable(call)}")
            call = self._prepare(tool, call)  # again: a plan may have been written since the call was sent
            try:
                read_input(tool, call.input)
                # Decide: rules, hooks, the client. The decision is journalled.
                approval = await self._gate.decide(call, tool, self.context, mode, self.agent, may_defer=may_defer)
            except InvalidInput as exc:
                return unusable_call(f"InputValidationError: {exc}")
            except CallDeferred as exc:
                return ToolOutcome(output=ToolOutput(content=""), deferred=exc.call)

            # Run, if allowed.
            if self._hooks.events.guards_output(approval.call, tool, self.agent):
                self.in_flight.guard(call.id)
            started_at, cwd = self.context.clock(), self.context.state.cwd
            if isinstance(approval.decision, Deny):
                outcome = denied_outcome(approval.decision)
            else:
                outcome = await self._execute(tool, approval.decision, approval)
            seconds = self.context.clock() - started_at
            return await self._run_hooks_after(tool, approval, outcome, seconds, cwd)

    async def _run_hooks_after(
        self, tool: Tool, approval: Approval, outcome: ToolOutcome, seconds: float, old_cwd: str
    ) -> ToolOutcome:
        events, call, context = self._hooks.events, approval.call, self.context
        contexts, output = approval.contexts, outcome.output
        stop_reason = outcome.stop_reason if approval.stop_reason is None else approval.stop_reason
        if isinstance(approval.decision, Deny):
            contexts = (*contexts, *await events.tool_denied(call, tool, approval.decision, self.agent, context))
        if outcome.executed_input is not None:
            if context.state.cwd != old_cwd:
                await events.cwd_changed(old_cwd, context.state.cwd, self.agent)
            ran = ToolUse({**call.json, "input": outcome.executed_input})
            after = await events.after_tool(ran, tool, output, seconds, self.agent, context)
            contexts, stop_reason, output = (*contexts, *after.contexts), after.stop_reason, after.output or output
        return msgspec.structs.replace(outcome, output=output, contexts=contexts, stop_reason=stop_reason)

    async def _execute(self, tool: Tool, decision: Allow, approval: Approval) -> ToolOutcome:
        permission = {"decision": "accept", "source": ACCEPTED.get(decision.source, "config")}
        if decision.source != "host":
            permission["reason_type"] = decision.reason_type
        meta: Json = {"permission_decision": permission}
        id = approval.call.id
        self.in_flight.start(id)
        try:
            async with track_changes(self.context.files, tool):
                # The approved input runs, byte for byte. Nothing is awaited between this line and the next.
                if input_digest(decision.input) != approval.input_sha256:
                    return self._deny_altered(tool, decision, approval)
                output = await self._call_tool(tool, decision, id)
                outcome = ToolOutcome(output=output, meta=meta, executed_input=decision.input)
                self.in_flight.record_output(id, outcome)
                return outcome
        except Exception as exc:
            return ToolOutcome(output=self._report_bug(tool, exc), meta=meta, executed_input=decision.input)

    async def _call_tool(self, tool: Tool, decision: Allow, id: str) -> ToolOutput:
        reach = msgspec.structs.replace(decision.scope, call=id)
        try:
            await self._hooks.events.check_task(tool, decision.input, self.context, self.agent)
            return await tool.run(read_input(tool, decision.input), self.context, reach)
        except InvalidInput as exc:
            return unusable_output(f"InputValidationError: {exc}")
        except ToolError as exc:
            return ToolOutput(content=str(exc), detail=f"Error: {exc}", is_error=True)
        except Exception as exc:
            return self._report_bug(tool, exc)

    def _report_bug(self, tool: Tool, bug: Exception) -> ToolOutput:
        """A bug of ours fails the call, not the turn."""
        self._warn("".join(traceback.format_exception(bug)))
        text = f"{tool.name} failed with an internal error: {type(bug).__name__}: {bug}"
        return ToolOutput(content=text, detail=f"Error: {text}", is_error=True)

    def _deny_altered(self, tool: Tool, decision: Allow, approval: Approval) -> ToolOutcome:
        """The input is not the approved one. That is a bug of ours, and the call does not run."""
        name = approval.call.name
        self._warn(f"INTERNAL ERROR: the input of {name} ({approval.call.id}) is not the one that was approved")
        text = f"{name} was not run: its input changed after it was approved. This is a bug in Parley."
        denial = Deny(message=text, source="internal", reason=ALTERED, reason_type="other")
        altered = msgspec.structs.replace(approval, decision=denial, input_sha256=input_digest(decision.input))
        self._gate.record(altered, tool, self.agent)
        return denied_outcome(denial)


def explain_unreadable(call: ToolUse) -> str:
    """Why the input of a call is not JSON, and where."""
    from parley.engine.repair.arguments import NotRepairable, read_arguments

    text = f"{call.name} was called with input that is not JSON"
    try:
        read_arguments(str(call.input[UNREADABLE].get("raw", "")))
    except NotRepairable as exc:
        return f"{text}: {exc}. The call did not run. Call it again with the whole input."
    return text


def denied_outcome(denial: Deny) -> ToolOutcome:
    if denial.interrupt:
        output = ToolOutput(content=STOPPED_TEXT, detail="User rejected tool use", is_error=True)
        return ToolOutcome(output=output, denied=denial, meta={"non_execution_kind": "user-rejected"})
    kind, source = NOT_RUN.get(denial.source, BY_HOOK if denial.source == "hook" else BY_RULE)
    decision = {"decision": "reject", "source": source}
    if denial.reason_type and denial.source not in NOT_RUN:
        decision["reason_type"] = denial.reason_type
    return ToolOutcome(
        output=ToolOutput(content=denial.message, detail=f"Error: {denial.message}", is_error=True),
        denied=denial,
        meta={"non_execution_kind": kind, "permission_decision": decision},
        stop_reason=denial.stop_reason,
    )


def unusable_call(text: str) -> ToolOutcome:
    """The outcome of a call that cannot be tried."""
    return ToolOutcome(output=unusable_output(text))


def withhold_output(why: str) -> ToolOutput:
    """The error that replaces an output which must not be shown."""
    text = f"The call ran, and its output is withheld: {why}."
    return ToolOutput(content=text, detail=f"Error: {text}", is_error=True)


def unusable_output(text: str) -> ToolOutput:
    return ToolOutput(content=f"<tool_use_error>{text}</tool_use_error>", detail=text, is_error=True)


@asynccontextmanager
async def track_changes(files: Files, tool: Tool) -> AsyncIterator[None]:
    """Record what a command changes, if the session can rewind commands."""
    if tool.reads_only or not files.watches_commands:
        yield
        return
    await asyncio.to_thread(files.before_command)
    try:
        yield
    finally:
        await asyncio.to_thread(files.after_command)
