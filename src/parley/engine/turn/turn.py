"""One turn: ask the model, run the tools it calls, ask again, until it asks for nothing.

A turn tells its lines through its conversation and returns how it ended; the session turns
that into the one `result`. Whatever the model or a tool does, the turn ends:

    interrupt  -> the turn's task is cancelled, what was said so far is kept
    urgent prompt -> the same, but a tool that runs may finish, and nothing went wrong
    ModelError -> a line that tells of it, and an outcome with is_error

The model's part of a turn is in model_call.py, the tools' part in tool_batch.py.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable

from parley.engine.context.conversation import Conversation
from parley.engine.hooks.feedback import Hearing
from parley.engine.session.prompt_queue import Prompt
from parley.engine.turn import outcome
from parley.engine.turn.model_call import Exchange
from parley.engine.turn.outcome import Outcome
from parley.engine.turn.structured_output import Form
from parley.engine.turn.tool_batch import Calls
from parley.errors import BudgetSpent, ModelError
from parley.protocol.base import UNSET
from parley.protocol.blocks import Text, ToolUse
from parley.protocol.messages.conversation import AssistantContent
from parley.protocol.messages.dialects import AnswerComplete

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
        self.hearing = Hearing(conversation)
        self.calls = Calls(conversation, self.hearing, must_yield, self.taken_up)
        self.begun = conversation.stamp.monotonic()
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
        return bool(self.calls.open)

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
                calls, stop_reason = growing.calls(), growing.stop_reason
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
        if await self.calls.run(calls) and self.hearing.stopped is None:
            return self._aborted(in_tools=True)
        if self.hearing.stopped is not None:
            self.calls.answer_rest("This call did not run: a hook ended the turn before.")
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
        denials = self.calls.denials
        if denials and self.conversation.limits.fail_on_denial:
            return outcome.denied([denial.tool_name for denial in denials], stop_reason)
        form = self.conversation.form
        if form is None:
            return outcome.completed(self.exchange.final_text(), stop_reason)
        form.attempts += 1
        if form.fill_from_text(self.exchange.final_text()) or form.is_exhausted:
            return formed(form, stop_reason)
        advice = form.advice(by_tool=self.conversation.forms_by_tool)
        self.conversation.say_user(Text.of(advice), isSynthetic=True)
        return None

    # Bad ends.

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
        growing, in_tools = self.exchange.growing, in_tools or self.is_working
        stop_reason = growing.stop_reason
        if not in_tools:
            for block in growing.partial():
                self.exchange.tell_block(block, aborted=True)
            # Calls of a message that was cut behind them never start, and need their results all the same.
            unanswered = self.conversation.record.history.open_calls()
            self.calls.open = [call for call in growing.calls() if call.id in unanswered]
        why = self.cut or Cut.INTERRUPT
        self.calls.tell_ran()
        text = f"{why.value} before this tool call finished; it may not have run."
        self.calls.answer_rest(text, "User rejected tool use", {"non_execution_kind": "user-rejected"})
        self.hearing.keep()  # what hooks said about calls that have their results
        where = "tools" if in_tools else "streaming"
        if why is Cut.GIVE_WAY:
            return outcome.gave_way(where, stop_reason)
        self.conversation.say_user(Text.of(INTERRUPTED_TOOL if in_tools else INTERRUPTED))
        return outcome.aborted(where, stop_reason)


def formed(form: Form, stop_reason: str | None) -> Outcome:
    """How a turn ends whose answer must have a form."""
    if form.is_filled:
        return outcome.formed(form.text, form.output, form.report(), stop_reason)
    return outcome.not_formed(form.report(), stop_reason)
