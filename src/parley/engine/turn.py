"""One turn: ask the model, run the tools it calls, ask again, until it asks for nothing.

A turn tells its lines through its conversation and returns how it ended; the session turns
that into the one `result`. Whatever the model or a tool does, the turn ends:

    interrupt  -> the turn's task is cancelled, what was said so far is kept
    urgent prompt -> the same, but a tool that runs may finish, and nothing went wrong
    ModelError -> a line that tells of it, and an outcome with is_error

The model's part of a turn is in exchange.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Awaitable, Callable

from parley.engine import outcome
from parley.engine.bulk import fitted
from parley.engine.conversation import Conversation
from parley.engine.exchange import Exchange, calls_in
from parley.engine.form import Form
from parley.engine.hearing import Hearing
from parley.engine.heartbeat import Heartbeat
from parley.engine.inbox import Prompt
from parley.engine.outcome import Outcome
from parley.engine.sanitized import sanitized
from parley.errors import BudgetSpent, ModelError, SessionError
from parley.permissions.base import Deny
from parley.protocol.base import UNSET, Json, plain
from parley.protocol.blocks import Text, ToolResult, ToolUse
from parley.protocol.messages.conversation import AssistantContent
from parley.protocol.messages.dialects import AnswerComplete
from parley.protocol.messages.result import Denial
from parley.protocol.messages.system import PermissionDenied
from parley.tools.base import Result

LOOKING = frozenset({"Read", "Edit", "Write", "NotebookEdit"})
"""Tools after which a model may have to hear of memory files near what it looked at (nested.py)."""
INTERRUPTED = "[Request interrupted by user]"
INTERRUPTED_TOOL = "[Request interrupted by user for tool use]"


async def nobody(turn: Turn) -> None:
    """Who joins a turn that nobody can join."""


def nothing(turn: Turn) -> None:
    """What a turn does at a place where nobody wants anything of it."""


def never() -> bool:
    return False


class Cut(enum.Enum):
    """Why a turn is ended before its time, as the model reads it of calls that had no time."""

    INTERRUPT = "The user interrupted"
    GIVE_WAY = "A newer message of the user came"


class Turn:
    def __init__(
        self,
        conversation: Conversation,
        prompts: list[Prompt],
        *,
        admit: Callable[[Turn], Awaitable[Outcome | None]] | None = None,
        begin: Callable[[Turn], None] = nothing,
        join: Callable[[Turn], Awaitable[None]] = nobody,
        must_yield: Callable[[], bool] = never,
        taken_up: list[ToolUse] | None = None,
    ) -> None:
        self.conversation = conversation
        self.prompts = prompts
        self.taken_up = taken_up or []
        """The calls that a turn goes on with which an earlier engine began."""
        self._admit = admit
        """Asks whether the prompts may come in; how the turn ends if they may not."""
        self._begin = begin
        """Announces the turn and takes its prompts into the conversation."""
        self._join = join
        """Takes in what came while tools ran, before the next model call."""
        self.exchange = Exchange(conversation, prompts)
        self._must_yield = must_yield
        """Whether somebody waits who will not wait for the end of the turn."""
        self.cut: Cut | None = None
        self.announced = False
        """Whether the turn has told its first line; before that an interrupt only leaves a note."""
        self.denials: list[Denial] = []
        self.hearing = Hearing(conversation)
        self.begun = conversation.stamp.monotonic()
        self._open_calls: list[ToolUse] = list(self.taken_up)
        self._formed_by_call = False

    @property
    def model_calls(self) -> int:
        return self.exchange.calls

    @property
    def num_turns(self) -> int:
        """As clients count: an answer given by a call has, as it were, the turn behind it that it makes needless."""
        return self.model_calls + self._formed_by_call

    @property
    def first_token_seconds(self) -> float | None:
        at = self.exchange.first_token_at
        return None if at is None else at - self.begun

    @property
    def is_working(self) -> bool:
        """Whether tools are called, and not the model."""
        return bool(self._open_calls)

    async def run(self) -> Outcome:
        """Converse to the end. Raises CancelledError only if the process itself is ending."""
        talk = self.conversation
        agent = talk.caller.agent["agent_type"] if talk.caller.agent else None
        within = next((prompt.traceparent for prompt in self.prompts if prompt.traceparent), None)
        with talk.setup.observer.turn(talk.setup.session_id, agent, within) as watch:
            try:
                ended = await self._run()
            except asyncio.CancelledError:
                if self.cut is None:
                    raise
                ended = self._aborted()
            finally:
                self.exchange.fallback.end()
            reason = None if ended.terminal_reason is UNSET else ended.terminal_reason
            watch.note(
                result=ended.subtype, terminal_reason=reason, is_error=ended.is_error, model_calls=self.model_calls
            )
            return ended

    async def _run(self) -> Outcome:
        try:
            if self.conversation.form is not None:
                self.conversation.form.begin()
            refused = None if self._admit is None or self.cut is not None else await self._admitted(self._admit)
            if refused is not None:
                return refused
            self._begin(self)
            self.hearing.keep()
            self.announced = True
            await asyncio.sleep(0)  # the first line leaves before the work begins
            return self._aborted() if self.cut is not None else await self._converse()
        except ModelError as flaw:
            ended = self._failed(flaw)
            await self.hearing.tell_failure(flaw)
            return ended
        except BudgetSpent as flaw:
            return outcome.out_of_budget(flaw, self.exchange.growing.stop_reason)

    async def _admitted(self, admit: Callable[[Turn], Awaitable[Outcome | None]]) -> Outcome | None:
        """What those say who are asked about the prompts. An interrupt ends the asking; the turn still begins."""
        self.announced = True
        try:
            return await admit(self)
        except asyncio.CancelledError:
            if self.cut is None:
                raise
            return None
        finally:
            self.announced = False

    async def _converse(self) -> Outcome:
        limits = self.conversation.limits
        calls, stop_reason = self.taken_up, None
        while True:
            if not calls:
                growing = await self.exchange.ask_to_the_end()
                calls, stop_reason = calls_in(growing), growing.stop_reason
                self.conversation.tell(AnswerComplete(message_id=growing.id))
            ended = await self._act(calls, stop_reason) if calls else self._conclude(stop_reason)
            if ended is not None and not (await self._hooks_go_on(ended)):
                return ended if self.hearing.stopped is None else outcome.stopped(ended)
            if limits.max_turns is not None and self.model_calls >= limits.max_turns:
                return outcome.out_of_turns(limits.max_turns, stop_reason)
            calls = []
            await self._join(self)
            self.hearing.keep()

    async def _hooks_go_on(self, ended: Outcome) -> bool:
        """Whether hooks want more before the turn ends; about its bad ends they are not asked."""
        return ended.terminal_reason == "completed" and await self.hearing.goes_on(self.exchange.final_text())

    async def _act(self, calls: list[ToolUse], stop_reason: str | None) -> Outcome | None:
        """The model wants something done: do it; how that ends the turn, if it does."""
        if await self._run_tools(calls) and self.hearing.stopped is None:
            return self._aborted(in_tools=True)
        if self.hearing.stopped is not None:
            self._answer_rest("This call did not run: a hook ended the turn before.")
        await self.hearing.end_batch()
        if self.hearing.stopped is not None:
            return outcome.stopped(outcome.completed("", stop_reason))
        form = self.conversation.form
        if form is not None and (tries := sum(call.name == form.name for call in calls)):
            form.attempts += tries
            self._formed_by_call = form.is_filled
            if form.is_filled or form.is_exhausted:
                return formed(form, stop_reason)
        if self._must_yield():
            self.cut = Cut.GIVE_WAY
            return self._aborted(in_tools=True)
        return None

    def _conclude(self, stop_reason: str | None) -> Outcome | None:
        """The model wants nothing any more: how the turn ends, unless its answer lacks the form asked for."""
        if self.denials and self.conversation.limits.fail_on_denial:
            return outcome.denied([denial.tool_name for denial in self.denials], stop_reason)
        form = self.conversation.form
        if form is None:
            return outcome.completed(self.exchange.final_text(), stop_reason)
        form.attempts += 1
        if form.fill_from_text(self.exchange.final_text()) or form.is_exhausted:
            return formed(form, stop_reason)
        advice = form.advice(by_tool=self.conversation.forms_by_tool)
        self.conversation.say_user(Text.of(advice), isSynthetic=True)
        return None

    # The tools' part.

    async def _run_tools(self, calls: list[ToolUse]) -> bool:
        """Run the calls, together if all only read, else one after the other; True if the host ends the turn."""
        self._open_calls = list(calls)
        caller = self.conversation.caller
        if len(calls) > 1 and all(caller.reads_only(call) for call in calls):
            return await self._run_together(calls)
        for call in calls:
            if await self._run_tool(call):
                return True
            if self._must_yield():
                break
        return False

    async def _run_together(self, calls: list[ToolUse]) -> bool:
        try:
            async with asyncio.TaskGroup() as together:
                room = asyncio.Semaphore(self.conversation.limits.max_parallel_tools)
                running = [together.create_task(self._run_tool(call, room)) for call in calls]
        except ExceptionGroup as several:
            if several.split(SessionError)[1] is None:
                raise several.exceptions[0] from None  # a full disk hits all of them alike
            raise
        return any(task.result() for task in running)

    async def _run_tool(self, call: ToolUse, room: asyncio.Semaphore | None = None) -> bool:
        """One call and its line; True if the host, or a hook, ends the turn with it."""
        async with room or contextlib.nullcontext():
            talk = self.conversation
            with (
                talk.setup.observer.tool(call.name, call.id) as watch,
                Heartbeat(talk.tell, call, talk.limits.heartbeat_seconds),
            ):
                called = await talk.caller.run(call, talk.mode)
                watch.note(error_type="denied" if called.denied is not None else None, is_error=called.result.is_error)
        if called.denied is not None and called.stopped is None:
            self._deny(call, called.denied)
        self._tell_result(call, called.result, called.meta)
        self.hearing.note(call, called)
        if call.name in LOOKING:
            from parley.engine.nested import heard

            self.hearing.contexts += heard(self.conversation, call, called)
        return called.stops_turn or self.hearing.stopped is not None

    def _deny(self, call: ToolUse, denial: Deny) -> None:
        self.denials.append(Denial(tool_name=call.name, tool_use_id=call.id, tool_input=call.input))
        if denial.source in ("host", "reply", "hook"):
            return  # it knows, or the result says so
        self.conversation.tell(
            PermissionDenied(
                tool_name=call.name,
                tool_use_id=call.id,
                decision_reason_type=denial.reason_type or UNSET,
                decision_reason=denial.reason or UNSET,
                message=denial.message,
            )
        )

    def _tell_result(self, call: ToolUse, result: Result, meta: Json | None = None) -> None:
        talk = self.conversation
        result = sanitized_result(result)
        result = fitted(result, talk.limits.line_bytes, talk.new_result_file)
        talk.say_user(
            ToolResult.of(call.id, result.content, result.is_error),
            tool_use_result=UNSET if result.detail is None else result.detail,
            tool_result_meta=[{"id": call.id, **meta}] if meta else UNSET,
        )
        self._open_calls.remove(call)

    def _answer_rest(self, text: str) -> None:
        """Calls that will not run need their results all the same."""
        for call in list(self._open_calls):
            self._tell_result(call, Result(content=text, detail=f"Error: {text}", is_error=True))

    # Bad ends.

    def tell_ran(self) -> None:
        """Calls that ran have their real results, also if the turn was cut before all hooks had heard of them."""
        for call in list(self._open_calls):
            called = self.conversation.caller.course.take(call.id)
            if called is not None:
                self._tell_result(call, called.result, called.meta)

    def _failed(self, flaw: ModelError) -> Outcome:
        # A stream may break behind a finished call: it was told, it never ran, and it needs a result.
        self.conversation.answer_open_calls("The model's answer broke off before this call was run. It did not run.")
        text = outcome.error_text(flaw)
        inner = AssistantContent(
            id=self.conversation.stamp.new_uuid(),
            type="message",
            model="<synthetic>",
            content=[Text.of(text)],
            stop_reason="stop_sequence",
            stop_sequence="",
            usage=dict.fromkeys(("input_tokens", "output_tokens"), 0),
        )
        self.conversation.say_assistant(
            inner,
            error=outcome.error_name(flaw),
            request_id=flaw.request_id or UNSET,
            is_api_error_message=True,
            api_error_status=UNSET if flaw.status is None else flaw.status,
            api_error_type=flaw.kind if flaw.status is not None and flaw.kind else UNSET,
        )
        return outcome.api_failed(flaw, text)

    def _aborted(self, *, in_tools: bool = False) -> Outcome:
        """Keep what was said, answer the calls that will not run, mark the place."""
        growing, in_tools = self.exchange.growing, in_tools or bool(self._open_calls)
        stop_reason = growing.stop_reason
        if not in_tools:
            for block in growing.partial():
                self.exchange.tell_block(block, aborted=True)
            # Calls of a message that was cut behind them never start, and need their results all the same.
            unanswered = self.conversation.record.history.open_calls()
            self._open_calls = [call for call in calls_in(growing) if call.id in unanswered]
        why = self.cut or Cut.INTERRUPT
        self.tell_ran()
        for call in list(self._open_calls):
            text = f"{why.value} before this tool call finished; it may not have run."
            result = Result(content=text, detail="User rejected tool use", is_error=True)
            self._tell_result(call, result, {"non_execution_kind": "user-rejected"})
        self.hearing.keep()  # what hooks said about calls that have their results
        where = "tools" if in_tools else "streaming"
        if why is Cut.GIVE_WAY:
            return outcome.gave_way(where, stop_reason)
        self.conversation.say_user(Text.of(INTERRUPTED_TOOL if in_tools else INTERRUPTED))
        return outcome.aborted(where, stop_reason)


def sanitized_result(result: Result) -> Result:
    detail = None if result.detail is None else sanitized(plain(result.detail))
    return Result(content=sanitized(result.content), detail=detail, is_error=result.is_error)


def formed(form: Form, stop_reason: str | None) -> Outcome:
    """How a turn ends whose answer must have a form."""
    if form.is_filled:
        return outcome.formed(form.text, form.output, form.report(), stop_reason)
    return outcome.not_formed(form.report(), stop_reason)
