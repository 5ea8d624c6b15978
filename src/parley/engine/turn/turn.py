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
from parley.engine.hooks.feedback import HookFeedback
from parley.engine.session.prompt_queue import Prompt
from parley.engine.turn import outcome
from parley.engine.turn.model_call import ModelCall
from parley.engine.turn.outcome import TurnOutcome
from parley.engine.turn.structured_output import OutputSchema
from parley.engine.turn.tool_batch import ToolBatch
from parley.errors import BudgetSpent, ModelError
from parley.protocol.base import UNSET
from parley.protocol.blocks import Text, ToolUse
from parley.protocol.messages.conversation import AssistantContent
from parley.protocol.messages.dialects import AnswerComplete

INTERRUPTED = "[Request interrupted by user]"
INTERRUPTED_TOOL = "[Request interrupted by user for tool use]"


async def join_none(turn: Turn) -> None:
    """Who joins a turn that nobody can join."""


def do_nothing(turn: Turn) -> None:
    """What a turn does at a place where nobody wants anything of it."""


def never() -> bool:
    return False


class StopCause(enum.Enum):
    """Why a turn is ended before its time, as the model reads it of calls that had no time."""

    INTERRUPT = "The user interrupted"
    GIVE_WAY = "A newer message of the user came"


class Turn:
    def __init__(
        self,
        conversation: Conversation,
        prompts: list[Prompt],
        *,
        admit: Callable[[Turn], Awaitable[TurnOutcome | None]] | None = None,
        start: Callable[[Turn], None] = do_nothing,
        join: Callable[[Turn], Awaitable[None]] = join_none,
        must_yield: Callable[[], bool] = never,
        resumed_calls: list[ToolUse] | None = None,
    ) -> None:
        self.conversation = conversation
        self.prompts = prompts
        self.resumed_calls = resumed_calls or []
        """The calls that a turn goes on with which an earlier engine began."""
        self._admit = admit
        """Asks whether the prompts may come in; how the turn ends if they may not."""
        self._start = start
        """Announces the turn and takes its prompts into the conversation."""
        self._join = join
        """Takes in what came while tools ran, before the next model call."""
        self.model_call = ModelCall(conversation, prompts)
        self._must_yield = must_yield
        """Whether somebody waits who will not wait for the end of the turn."""
        self.stop_cause: StopCause | None = None
        self.is_cancellable = False
        """Whether the turn has told its first line; before that an interrupt only leaves a note."""
        self.hook_feedback = HookFeedback(conversation)
        self.tool_batch = ToolBatch(conversation, self.hook_feedback, must_yield, self.resumed_calls)
        self.started_at = conversation.clock.monotonic()
        self._answered_by_tool = False

    @property
    def model_call_count(self) -> int:
        return self.model_call.call_count

    @property
    def num_turns(self) -> int:
        """As clients count: an answer given by a call has, as it were, the turn behind it that it makes needless."""
        return self.model_call_count + self._answered_by_tool

    @property
    def first_token_seconds(self) -> float | None:
        at = self.model_call.first_token_at
        return None if at is None else at - self.started_at

    @property
    def is_running_tools(self) -> bool:
        """Whether tools are called, and not the model."""
        return bool(self.tool_batch.open_calls)

    async def run(self) -> TurnOutcome:
        """Converse to the end. Raises CancelledError only if the process itself is ending."""
        conversation = self.conversation
        agent = conversation.tool_executor.agent["agent_type"] if conversation.tool_executor.agent else None
        within = next((prompt.traceparent for prompt in self.prompts if prompt.traceparent), None)
        with conversation.config.observer.turn(conversation.config.session_id, agent, within) as observation:
            try:
                ended = await self._run()
            except asyncio.CancelledError:
                if self.stop_cause is None:
                    raise
                ended = self._abort()
            finally:
                self.model_call.fallback.restore()
            reason = None if ended.terminal_reason is UNSET else ended.terminal_reason
            observation.set_attributes(
                result=ended.subtype, terminal_reason=reason, is_error=ended.is_error, model_calls=self.model_call_count
            )
            return ended

    async def _run(self) -> TurnOutcome:
        try:
            if self.conversation.output_schema is not None:
                self.conversation.output_schema.reset()
            refused = (
                None if self._admit is None or self.stop_cause is not None else await self._ask_admission(self._admit)
            )
            if refused is not None:
                return refused
            self._start(self)
            self.hook_feedback.append()
            self.is_cancellable = True
            await asyncio.sleep(0)  # the first line leaves before the work begins
            return self._abort() if self.stop_cause is not None else await self._run_loop()
        except ModelError as exc:
            ended = self._fail(exc)
            await self.hook_feedback.report_failure(exc)
            return ended
        except BudgetSpent as exc:
            return outcome.out_of_budget(exc, self.model_call.accumulator.stop_reason)

    async def _ask_admission(self, admit: Callable[[Turn], Awaitable[TurnOutcome | None]]) -> TurnOutcome | None:
        """What those say who are asked about the prompts. An interrupt ends the asking; the turn still begins."""
        self.is_cancellable = True
        try:
            return await admit(self)
        except asyncio.CancelledError:
            if self.stop_cause is None:
                raise
            return None
        finally:
            self.is_cancellable = False

    async def _run_loop(self) -> TurnOutcome:
        limits = self.conversation.limits
        calls, stop_reason = self.resumed_calls, None
        while True:
            if not calls:
                accumulator = await self.model_call.run_until_complete()
                calls, stop_reason = accumulator.calls(), accumulator.stop_reason
                self.conversation.send(AnswerComplete(message_id=accumulator.id))
            ended = await self._run_tools(calls, stop_reason) if calls else self._conclude(stop_reason)
            if ended is not None and not (await self._hooks_continue(ended)):
                return ended if self.hook_feedback.stop_reason is None else outcome.stopped_by_hook(ended)
            if limits.max_turns is not None and self.model_call_count >= limits.max_turns:
                return outcome.out_of_turns(limits.max_turns, stop_reason)
            calls = []
            await self._join(self)
            self.hook_feedback.append()

    async def _hooks_continue(self, ending: TurnOutcome) -> bool:
        """Whether hooks want more before the turn ends; about its bad ends they are not asked."""
        return ending.terminal_reason == "completed" and await self.hook_feedback.should_continue(
            self.model_call.final_text()
        )

    async def _run_tools(self, calls: list[ToolUse], stop_reason: str | None) -> TurnOutcome | None:
        """The model wants something done: do it; how that ends the turn, if it does."""
        if await self.tool_batch.run(calls) and self.hook_feedback.stop_reason is None:
            return self._abort(in_tools=True)
        if self.hook_feedback.stop_reason is not None:
            self.tool_batch.close_remaining("This call did not run: a hook ended the turn before.")
        await self.hook_feedback.end_batch()
        if self.hook_feedback.stop_reason is not None:
            return outcome.stopped_by_hook(outcome.completed("", stop_reason))
        schema = self.conversation.output_schema
        if schema is not None and (tries := sum(call.name == schema.name for call in calls)):
            schema.attempts += tries
            self._answered_by_tool = schema.is_satisfied
            if schema.is_satisfied or schema.is_exhausted:
                return schema_outcome(schema, stop_reason)
        if self._must_yield():
            self.stop_cause = StopCause.GIVE_WAY
            return self._abort(in_tools=True)
        return None

    def _conclude(self, stop_reason: str | None) -> TurnOutcome | None:
        """The model wants nothing any more: how the turn ends, unless its answer lacks the form asked for."""
        denials = self.tool_batch.denials
        if denials and self.conversation.limits.fail_on_denial:
            return outcome.denied([denial.tool_name for denial in denials], stop_reason)
        schema = self.conversation.output_schema
        if schema is None:
            return outcome.completed(self.model_call.final_text(), stop_reason)
        schema.attempts += 1
        if schema.accept_text(self.model_call.final_text()) or schema.is_exhausted:
            return schema_outcome(schema, stop_reason)
        advice = schema.advice(by_tool=self.conversation.uses_output_tool)
        self.conversation.append_user(Text.of(advice), isSynthetic=True)
        return None

    # Bad ends.

    def _fail(self, error: ModelError) -> TurnOutcome:
        # A stream may break behind a finished call: it was told, it never ran, and it needs a result.
        self.conversation.close_open_calls("The model's answer broke off before this call was run. It did not run.")
        text = outcome.error_text(error)
        inner = AssistantContent(
            id=self.conversation.clock.new_uuid(),
            type="message",
            model="<synthetic>",
            content=[Text.of(text)],
            stop_reason="stop_sequence",
            stop_sequence="",
            usage=dict.fromkeys(("input_tokens", "output_tokens"), 0),
        )
        self.conversation.append_assistant(
            inner,
            error=outcome.error_name(error),
            request_id=error.request_id or UNSET,
            is_api_error_message=True,
            api_error_status=UNSET if error.status is None else error.status,
            api_error_type=error.kind if error.status is not None and error.kind else UNSET,
        )
        return outcome.api_failed(error, text)

    def _abort(self, *, in_tools: bool = False) -> TurnOutcome:
        """Keep what was said, answer the calls that will not run, mark the place."""
        accumulator, in_tools = self.model_call.accumulator, in_tools or self.is_running_tools
        stop_reason = accumulator.stop_reason
        if not in_tools:
            for block in accumulator.partial():
                self.model_call.send_block(block, aborted=True)
            # Calls of a message that was cut behind them never start, and need their results all the same.
            unanswered = self.conversation.journal.history.open_calls()
            self.tool_batch.open_calls = [call for call in accumulator.calls() if call.id in unanswered]
        why = self.stop_cause or StopCause.INTERRUPT
        self.tool_batch.send_finished()
        text = f"{why.value} before this tool call finished; it may not have run."
        self.tool_batch.close_remaining(text, "User rejected tool use", {"non_execution_kind": "user-rejected"})
        self.hook_feedback.append()  # what hooks said about calls that have their results
        where = "tools" if in_tools else "streaming"
        if why is StopCause.GIVE_WAY:
            return outcome.yielded(where, stop_reason)
        self.conversation.append_user(Text.of(INTERRUPTED_TOOL if in_tools else INTERRUPTED))
        return outcome.aborted(where, stop_reason)


def schema_outcome(schema: OutputSchema, stop_reason: str | None) -> TurnOutcome:
    """How a turn ends whose answer must have a form."""
    if schema.is_satisfied:
        return outcome.structured(schema.text, schema.output, schema.report(), stop_reason)
    return outcome.not_structured(schema.report(), stop_reason)
