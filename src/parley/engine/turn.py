"""One turn: ask the model, run the tools it calls, ask again, until it asks for nothing.

A turn tells its lines through the session and returns how it ended; the session turns
that into the one `result`. Whatever the model or a tool does, the turn ends:

    interrupt  -> the turn's task is cancelled, what was said so far is kept
    ModelError -> a line that tells of it, and an outcome with is_error
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from parley.engine import outcome, retry
from parley.engine.bulk import fitted
from parley.engine.heartbeat import Heartbeat
from parley.engine.inbox import Prompt
from parley.engine.outcome import Outcome
from parley.errors import ModelError
from parley.models.base import Event
from parley.models.growth import Growing
from parley.permissions.base import Deny
from parley.protocol.base import UNSET, Json
from parley.protocol.blocks import Block, Text, ToolResult, ToolUse
from parley.protocol.messages.conversation import Assistant, AssistantContent, StreamEvent, User, UserContent
from parley.protocol.messages.result import Denial
from parley.protocol.messages.system import ApiRetry, PermissionDenied, Status
from parley.tools.base import Result

if TYPE_CHECKING:
    from parley.engine.session import Session

INTERRUPTED = "[Request interrupted by user]"
INTERRUPTED_TOOL = "[Request interrupted by user for tool use]"


class Turn:
    def __init__(self, session: Session, prompts: list[Prompt]) -> None:
        self.session = session
        self.prompts = prompts
        self.interrupted = False
        self.announced = False
        """Whether the turn has told its first line; before that an interrupt only leaves a note."""
        self.model_calls = 0
        self.denials: list[Denial] = []
        self.begun = session.stamp.monotonic()
        self.first_token_seconds: float | None = None
        self._growing = Growing()
        self._open_calls: list[ToolUse] = []
        self._told_reply = False

    async def run(self) -> Outcome:
        """Converse to the end. Raises CancelledError only if the process itself is ending."""
        try:
            self.session.begin(self)
            self.announced = True
            await asyncio.sleep(0)  # the first line leaves before the work begins
            return self._aborted() if self.interrupted else await self._converse()
        except ModelError as flaw:
            return self._failed(flaw)
        except asyncio.CancelledError:
            if not self.interrupted:
                raise
            return self._aborted()

    async def _converse(self) -> Outcome:
        limit, budget_usd = self.session.limits.max_turns, self.session.limits.max_budget_usd
        while True:
            spent_usd = self.session.ledger.cost_usd
            if budget_usd is not None and (spent_usd is None or spent_usd >= budget_usd):
                return outcome.out_of_budget(budget_usd, spent_usd, self._growing.stop_reason)
            growing = await self._ask_model()
            calls = [block for block in growing.blocks if isinstance(block, ToolUse)]
            if not calls and self.denials and self.session.limits.fail_on_denial:
                return outcome.denied([denial.tool_name for denial in self.denials], growing.stop_reason)
            if not calls:
                return outcome.completed(final_text(growing.blocks), growing.stop_reason)
            if await self._run_tools(calls):
                return self._aborted(in_tools=True)
            if limit is not None and self.model_calls >= limit:
                return outcome.out_of_turns(limit, growing.stop_reason)
            self.session.join_waiting(self)

    # The model's part.

    async def _ask_model(self) -> Growing:
        """One model call, tried again where that may help. Raises ModelError."""
        session = self.session
        self.model_calls += 1
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._try_model()
            except ModelError as flaw:
                # What was told cannot be taken back, so a broken answer is not asked for anew.
                told = bool(self._growing.blocks)
                delay = retry.delay_seconds(flaw, attempt, session.limits.max_retries, session.dice())
                if told or delay is None:
                    raise
                session.tell(
                    ApiRetry(
                        attempt=attempt,
                        max_retries=retry.most_retries(flaw, session.limits.max_retries),
                        retry_delay_ms=round(delay * 1000),
                        error_status=flaw.status,
                        error=outcome.error_name(flaw),
                    )
                )
                await asyncio.sleep(delay)

    async def _try_model(self) -> Growing:
        session, clock = self.session, self.session.stamp.monotonic
        if session.partial:
            session.tell(Status(status="requesting"))
        growing = self._growing = Growing()
        begun = clock()
        try:
            model = session.current_model()
            async with aclosing(model.stream(session.request())) as events:
                async for event in events:
                    self._take(event, growing, begun)
        finally:
            if growing.id:
                session.ledger.count(session.model.shown, growing.final_usage, clock() - begun)
        if not growing.finished:
            raise ModelError("the model's stream broke off", kind="connection_failed", retryable=True)
        return growing

    def _take(self, event: Event, growing: Growing, begun: float) -> None:
        """One event. A finished block is told before the event that finishes it."""
        if event.type == "ping":
            return
        if event.type == "message_start" and self.first_token_seconds is None:
            self.first_token_seconds = self.session.stamp.monotonic() - self.begun
        block = growing.feed(event)
        if isinstance(block, ToolUse):
            # What is told, asked about, run and remembered is one and the same input.
            block = growing.blocks[-1] = self.session.caller.prepared(block)
        if block is not None:
            self._tell_block(block, growing)
        if self.session.partial:
            self._tell_event(event, growing, begun)

    def _tell_event(self, event: Event, growing: Growing, begun: float) -> None:
        session = self.session
        starts = event.type == "message_start"
        session.host.tell(
            StreamEvent(
                event=msgspec.Raw(event.raw),
                session_id=session.id,
                parent_tool_use_id=None,
                uuid=session.stamp.new_uuid(),
                api_message_id=growing.id,
                ttft_ms=round((session.stamp.monotonic() - begun) * 1000) if starts else UNSET,
            )
        )

    def _tell_block(self, block: Block, growing: Growing, *, aborted: bool = False) -> None:
        inner = AssistantContent(
            id=growing.id,
            type="message",
            model=growing.model,
            content=[block],
            stop_reason=None,
            stop_sequence=None,
            usage=growing.usage,
            context_management=None,
        )
        named = [prompt.uuid for prompt in self.prompts if prompt.named]
        first, self._told_reply = named and not self._told_reply, True
        self.session.say(
            Assistant(
                message=inner,
                parent_tool_use_id=None,
                timestamp=self.session.stamp.now(),
                request_id=growing.request_id or UNSET,
                aborted=True if aborted else UNSET,
                user_message_uuid=named[0] if first else UNSET,
                user_message_uuids=named if first else UNSET,
            )
        )

    # The tools' part.

    async def _run_tools(self, calls: list[ToolUse]) -> bool:
        """Run the calls, together if all only read, else one after the other; True if the host ends the turn."""
        self._open_calls = list(calls)
        caller = self.session.caller
        if len(calls) > 1 and all(caller.reads_only(call) for call in calls):
            async with asyncio.TaskGroup() as together:
                room = asyncio.Semaphore(self.session.limits.max_parallel_tools)
                running = [together.create_task(self._run_tool(call, room)) for call in calls]
            return any(task.result() for task in running)
        for call in calls:
            if await self._run_tool(call):
                return True
        return False

    async def _run_tool(self, call: ToolUse, room: asyncio.Semaphore | None = None) -> bool:
        """One call and its line; True if the host ends the turn with it."""
        async with room or contextlib.nullcontext():
            with Heartbeat(self.session.tell, call):
                called = await self.session.caller.run(call, self.session.mode)
        if called.denied is not None:
            self._deny(call, called.denied)
        self._tell_result(call, called.result, called.meta)
        return called.stops_turn

    def _deny(self, call: ToolUse, denial: Deny) -> None:
        self.denials.append(Denial(tool_name=call.name, tool_use_id=call.id, tool_input=call.input))
        if denial.source in ("host", "reply"):
            return  # it knows
        self.session.tell(
            PermissionDenied(
                tool_name=call.name,
                tool_use_id=call.id,
                decision_reason_type=denial.reason_type or UNSET,
                decision_reason=denial.reason or UNSET,
                message=denial.message,
            )
        )

    def _tell_result(self, call: ToolUse, result: Result, meta: Json | None = None) -> None:
        result = fitted(result, self.session.limits.line_bytes, self.session.new_result_file)
        block = ToolResult.of(call.id, result.content, result.is_error)
        self.session.say(
            User(
                message=UserContent(content=[block]),
                parent_tool_use_id=None,
                timestamp=self.session.stamp.now(),
                tool_use_result=UNSET if result.detail is None else result.detail,
                tool_result_meta=[{"id": call.id, **meta}] if meta else UNSET,
            )
        )
        self._open_calls.remove(call)

    # Bad ends.

    def _failed(self, flaw: ModelError) -> Outcome:
        # A stream may break behind a finished call: it was told, it never ran, and it needs a result.
        self.session.answer_open_calls("The model's answer broke off before this call was run. It did not run.")
        text = outcome.error_text(flaw)
        inner = AssistantContent(
            id=self.session.stamp.new_uuid(),
            type="message",
            model="<synthetic>",
            content=[Text.of(text)],
            stop_reason="stop_sequence",
            stop_sequence="",
            usage=dict.fromkeys(("input_tokens", "output_tokens"), 0),
        )
        self.session.say(
            Assistant(
                message=inner,
                parent_tool_use_id=None,
                timestamp=self.session.stamp.now(),
                error=outcome.error_name(flaw),
                request_id=flaw.request_id or UNSET,
                is_api_error_message=True,
                api_error_status=UNSET if flaw.status is None else flaw.status,
                api_error_type=flaw.kind if flaw.status is not None and flaw.kind else UNSET,
            )
        )
        return outcome.api_failed(flaw, text)

    def _aborted(self, *, in_tools: bool = False) -> Outcome:
        """Keep what was said, answer the calls that will not run, mark the place."""
        growing, in_tools = self._growing, in_tools or bool(self._open_calls)
        stop_reason = growing.stop_reason
        if not in_tools:
            for block in growing.partial():
                self._tell_block(block, growing, aborted=True)
            # Calls of a message that was cut behind them never start, and need their results all the same.
            self._open_calls = [] if growing.finished else [b for b in growing.blocks if isinstance(b, ToolUse)]
        for call in list(self._open_calls):
            text = "The user interrupted before this tool call finished; it may not have run."
            self._tell_result(call, Result(content=text, detail="User rejected tool use", is_error=True))
        self._mark(INTERRUPTED_TOOL if in_tools else INTERRUPTED)
        return outcome.aborted("tools" if in_tools else "streaming", stop_reason)

    def _mark(self, text: str) -> None:
        self.session.say(
            User(
                message=UserContent(content=[Text.of(text)]),
                parent_tool_use_id=None,
                timestamp=self.session.stamp.now(),
            )
        )


def final_text(blocks: list[Block]) -> str:
    """The text of the last text block: what `result` repeats."""
    texts = [block.text for block in blocks if isinstance(block, Text)]
    return texts[-1] if texts else ""
