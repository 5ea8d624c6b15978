"""The tool calls of one answer. Each gets exactly one result.

    is_stopped = await batch.run(calls)     # at the same time if all are read-only, else one after the other
    batch.open_calls                        # calls without a result, after an interrupt or when a hook ends the turn
    batch.close_remaining(text)             # gives each of them a result

See also: `tool_executor.py` runs one call, `turn.py` continues or ends the turn.
"""

from __future__ import annotations

import asyncio
import contextlib

from parley.engine.approval.request import describe_call
from parley.engine.context.conversation import Conversation
from parley.engine.hooks.feedback import HookFeedback
from parley.engine.session.prompt_queue import PromptQueue
from parley.engine.text import sanitize
from parley.engine.turn.heartbeat import ToolHeartbeat
from parley.engine.turn.result_spill import spill_to_file
from parley.errors import SessionError
from parley.permissions.base import Deny
from parley.protocol.base import UNSET, Json, to_builtins
from parley.protocol.blocks import ToolResult, ToolUse
from parley.protocol.messages.dialects import CallDenied
from parley.protocol.messages.result import Denial
from parley.protocol.messages.system import PermissionDenied
from parley.tools.base import ToolOutput
from parley.tools.catalog import find_traits


class ToolBatch:
    def __init__(
        self,
        conversation: Conversation,
        feedback: HookFeedback,
        prompt_queue: PromptQueue,
        resumed_calls: list[ToolUse],
    ) -> None:
        self._conversation = conversation
        self._feedback = feedback
        self._queue = prompt_queue
        """An urgent prompt in it keeps the remaining calls from starting."""
        self.open_calls = list(resumed_calls)
        """Calls without a result."""
        self.denials: list[Denial] = []
        self._batch_size = 0
        self.deferred: ToolUse | None = None
        """The call that a hook deferred; it has no result and ends the turn."""

    async def run(self, calls: list[ToolUse]) -> bool:
        """Run the calls; True if the client or a hook ends the turn."""
        self.open_calls = list(calls)
        self._batch_size = len(calls)
        executor = self._conversation.tool_executor
        if len(calls) > 1 and all(executor.is_read_only(call) for call in calls):
            return await self._run_parallel(calls)
        for call in calls:
            if await self._run_one(call):
                return True
            if self._queue.is_urgent():
                break
        return False

    async def _run_parallel(self, calls: list[ToolUse]) -> bool:
        try:
            async with asyncio.TaskGroup() as group:
                slots = asyncio.Semaphore(self._conversation.limits.max_parallel_tools)
                running = [group.create_task(self._run_one(call, slots)) for call in calls]
        except ExceptionGroup as exc:
            if exc.split(SessionError)[1] is None:
                raise exc.exceptions[0] from None  # a full disk fails all of them alike
            raise
        return any(task.result() for task in running)

    async def _run_one(self, call: ToolUse, slots: asyncio.Semaphore | None = None) -> bool:
        """Run one call and send its result; True if the client or a hook ends the turn."""
        async with slots or contextlib.nullcontext():
            conversation = self._conversation
            if (deferral := conversation.find_deferral()) is not None:
                deferral.load([call.name])
            with (
                conversation.config.observer.tool(call.name, call.id) as observation,
                ToolHeartbeat(conversation.send, call, conversation.limits.heartbeat_seconds),
            ):
                outcome = await conversation.tool_executor.run(call, conversation.mode, may_defer=self._may_defer())
                observation.set_attributes(
                    error_type="denied" if outcome.denied is not None else None, is_error=outcome.output.is_error
                )
        if outcome.deferred is not None:
            self.deferred = outcome.deferred
            return True
        if outcome.denied is not None and outcome.stop_reason is None:
            self._deny(call, outcome.denied)
        if outcome.output.memories:
            from parley.protocol.messages.occasional import MemoryRecall

            conversation.send(MemoryRecall(mode="select", memories=list(outcome.output.memories)))
        if isinstance(change := outcome.output.detail, dict) and "structuredPatch" in change:
            conversation.ledger.count_lines(change)
        self.send_result(call, outcome.output, outcome.meta)
        self._feedback.add_result(call, outcome)
        resolved = conversation.tool_executor.resolve_alias(call)
        if find_traits(resolved.name).opens_folders:
            from parley.engine.context.nested_memory import find_instructions, report_instructions

            found = find_instructions(conversation, resolved, outcome)
            self._feedback.contexts += found
            if found and conversation.hooks.dispatcher is not None:
                await report_instructions(conversation.hooks.dispatcher, resolved, found)
        return outcome.stops_turn or self._feedback.stop_reason is not None

    def _may_defer(self) -> bool:
        """Whether a hook may defer the call: it is the only one, and the session's own."""
        return self._batch_size == 1 and self._conversation.parent_tool_use_id is None

    def _deny(self, call: ToolUse, denial: Deny) -> None:
        self.denials.append(Denial(tool_name=call.name, tool_use_id=call.id, tool_input=call.input))
        if denial.source not in ("host", "reply"):
            self._conversation.send(
                CallDenied(
                    tool_name=call.name,
                    about=describe_call(call, self._conversation.tool_context.state.cwd),
                    reason=denial.message,
                    suggestions=list(denial.suggestions),
                )
            )
        if denial.source in ("host", "reply", "hook"):
            return  # the client knows, or the result says so
        self._conversation.send(
            PermissionDenied(
                tool_name=call.name,
                tool_use_id=call.id,
                decision_reason_type=denial.reason_type or UNSET,
                decision_reason=denial.reason or UNSET,
                message=denial.message,
            )
        )

    def send_result(self, call: ToolUse, result: ToolOutput, meta: Json | None = None) -> None:
        conversation = self._conversation
        result = spill_to_file(
            clean_output(result), conversation.limits.max_line_bytes, conversation.config.workspace.new_result_file
        )
        conversation.append_user(
            ToolResult.of(call.id, result.content, result.is_error),
            tool_use_result=UNSET if result.detail is None else result.detail,
            tool_result_meta=[{"id": call.id, **meta}] if meta else UNSET,
        )
        self.open_calls.remove(call)

    def send_finished(self) -> None:
        """Send the results of calls that ran, even if the turn was cut off before their hooks finished."""
        for call in list(self.open_calls):
            outcome = self._conversation.tool_executor.in_flight.pop_output(call.id)
            if outcome is not None:
                self.send_result(call, outcome.output, outcome.meta)

    def close_remaining(self, text: str, detail: str | None = None, meta: Json | None = None) -> None:
        """Give every call without a result one that says why it did not run."""
        for call in list(self.open_calls):
            result = ToolOutput(content=text, detail=f"Error: {text}" if detail is None else detail, is_error=True)
            self.send_result(call, result, meta)


def clean_output(result: ToolOutput) -> ToolOutput:
    detail = None if result.detail is None else sanitize(to_builtins(result.detail))
    return ToolOutput(content=sanitize(result.content), detail=detail, is_error=result.is_error)
