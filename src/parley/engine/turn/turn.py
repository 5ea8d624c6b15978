"""One turn: call the model, run its tool calls, call it again, until it asks for nothing.

    async with turn.running():          # an interrupt or a model error becomes the outcome
        ...                             # the prompts enter the conversation
        await turn.begin()
        while (ended := await turn.step()) is None:
            ...                         # more prompts may enter the conversation
        turn.end(ended)
    turn.outcome

An interrupt cancels the task of the turn; what was sent stays. An urgent prompt does the same, but a running tool may
finish. `runner.py` runs the turns of a session, `agents/run.py` those of a subagent.

    Turn            the steps, and how the turn ends
    ToolBatch       the tool calls of one answer; each gets exactly one result
    HookFeedback    what hooks say during the turn: context for its model, and whether it ends or continues

See also: `model_call.py` calls the model, `tool_executor.py` runs one tool call, `hooks/registry.py` has the events.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from parley.engine.approval.request import describe_call
from parley.engine.context.conversation import Conversation
from parley.engine.session.config import ENVELOPE_BYTES
from parley.engine.session.outbox import INTERVAL_SECONDS, Ticker
from parley.engine.session.prompts import Prompt, PromptQueue, ResumedTurnItem
from parley.engine.turn import outcome
from parley.engine.turn.model_call import ModelCall
from parley.engine.turn.outcome import StopCause, TurnOutcome
from parley.errors import BudgetSpent, ModelError, SessionError
from parley.models.accumulator import is_unreadable
from parley.models.catalog import claude_version
from parley.permissions.base import Deny
from parley.protocol.base import UNSET, Json, Message, UnsetType, encode_json, sanitize, to_builtins
from parley.protocol.blocks import RedactedThinking, Text, Thinking, ToolResult, ToolUse
from parley.protocol.messages.conversation import AssistantContent
from parley.protocol.messages.dialects import AnswerComplete, CallDenied
from parley.protocol.messages.notices import ToolProgress
from parley.protocol.messages.result import Denial
from parley.protocol.messages.system import PermissionDenied
from parley.tools.base import ToolOutput
from parley.tools.catalog import find_traits

if TYPE_CHECKING:
    from parley.engine.turn.structured_output import OutputSchema
    from parley.engine.turn.tool_executor import ToolOutcome


MAX_MALFORMED = 5
"""A model that cannot write the arguments of a call is not asked again after this many answers."""
MAX_REPEATED = 5
"""So many answers in a row with the same calls, whose results are the same, end the turn."""
WAITING_SECONDS = 5.0
"""A call that takes so long waits for something, so that it may well be repeated."""
LONGEST_ESCAPE = len(r"\u0000")
LONGEST_NUMBER = 32
INTERRUPTED = "[Request interrupted by user]"
INTERRUPTED_TOOL = "[Request interrupted by user for tool use]"


class Turn:
    def __init__(
        self,
        conversation: Conversation,
        prompts: list[Prompt],
        *,
        prompt_queue: PromptQueue | None = None,
        resumed: ResumedTurnItem | None = None,
    ) -> None:
        self.conversation = conversation
        self.prompts = prompts
        self.resumed = resumed
        """What an earlier engine left of the turn, if it started it."""
        self.resumed_calls = [] if resumed is None else list(resumed.calls)
        self._queue = PromptQueue() if prompt_queue is None else prompt_queue
        """An urgent prompt in it ends the turn."""
        reason = conversation.options.resume_reason or "interrupted_turn"
        self.resume_reason: str | UnsetType = UNSET if resumed is None else reason
        self.model_call = ModelCall(conversation, prompts, self.resume_reason)
        self.stop_cause: StopCause | None = None
        self.is_cancellable = False
        """Whether an interrupt cancels the task. Before the first message is sent it only sets `stop_cause`."""
        self.hook_feedback = HookFeedback(conversation)
        self.tool_batch = ToolBatch(conversation, self.hook_feedback, self._queue, self.resumed_calls)
        self.started_at = conversation.clock.monotonic()
        self._answered_by_tool = False
        self._missing_answer = MissingAnswer(conversation, self.model_call)
        self._malformed = 0
        """Answers in a row whose calls all had unreadable input."""
        self._judged_calls = 0
        """The model calls when the goal of the session was judged last."""
        self._idle_rounds = 0
        """How often in a row the model stopped without a tool call since then."""
        self.reply: Message | None = None
        """What the client is sent when the turn has started: the reply to the command that starts it."""
        self._outcome: TurnOutcome | None = None

    @property
    def model_call_count(self) -> int:
        return self.model_call.call_count

    @property
    def num_turns(self) -> int:
        """The count that clients expect: an answer by the output tool saves one model call, which still counts."""
        return self.model_call_count + self._answered_by_tool

    @property
    def is_running_tools(self) -> bool:
        """Whether tools are running, and not the model."""
        return bool(self.tool_batch.open_calls)

    @property
    def outcome(self) -> TurnOutcome:
        """How the turn ended. Set by `running` or by its body."""
        assert self._outcome is not None
        return self._outcome

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The body runs the turn. An interrupt, a model error or a spent budget in it becomes the outcome.

        Raises CancelledError only if the process itself is ending.
        """
        conversation = self.conversation
        agent = conversation.tool_executor.agent["agent_type"] if conversation.tool_executor.agent else None
        within = next((prompt.traceparent for prompt in self.prompts if prompt.traceparent), None)
        if conversation.output_schema is not None:
            conversation.output_schema.reset()
        with conversation.config.observer.turn(conversation.config.identity.id, agent, within) as observation:
            try:
                try:
                    yield
                except ModelError as exc:
                    self._outcome = self._fail(exc)
                    await self.hook_feedback.report_failure(exc)
                except BudgetSpent as exc:
                    self._outcome = outcome.out_of_budget(exc, self.model_call.accumulator.stop_reason)
            except asyncio.CancelledError:
                if self.stop_cause is None:
                    raise
                self._outcome = self._abort()
            finally:
                self.model_call.refusals.report_return(self.model_call.fallback.restore())
            ended = self.outcome
            reason = None if ended.terminal_reason is UNSET else ended.terminal_reason
            observation.set_attributes(
                result=ended.subtype, terminal_reason=reason, is_error=ended.is_error, model_calls=self.model_call_count
            )

    async def begin(self) -> None:
        """The prompts are in the conversation: add what hooks say to them, and let the first message leave."""
        self.hook_feedback.append()
        self.is_cancellable = True
        await asyncio.sleep(0)

    def end(self, ended: TurnOutcome) -> None:
        self._outcome = ended

    async def step(self) -> TurnOutcome | None:
        """One answer of the model and its tool calls; the outcome if the turn ends with them. Raises BudgetSpent."""
        if self.stop_cause is not None:
            return self._abort()
        self.hook_feedback.append()
        calls, self.resumed_calls = self.resumed_calls, []
        stop_reason = None
        if not calls:
            accumulator = await self.model_call.run_until_complete()
            calls, stop_reason = accumulator.calls(), accumulator.stop_reason
            self.conversation.send(AnswerComplete(message_id=accumulator.id))
        if calls:
            self._malformed = self._malformed + 1 if all(map(is_unreadable, calls)) else 0
            is_stopped = await self.tool_batch.run(calls)
            ended = await self._finish_tools(calls, stop_reason, is_stopped=is_stopped)
        else:
            ended = self._conclude(stop_reason)
        if ended is not None and ended.terminal_reason == "completed" and self.conversation.options.fail_on_denial:
            denied = [denial.tool_name for denial in self.tool_batch.denials]
            ended = outcome.denied(denied, stop_reason) if denied else ended
        if ended is not None and not await self._continues(ended):
            if ended.terminal_reason == "completed" and not self.conversation.tool_executor.agent:
                self.conversation.ledger.check_cost()  # clients expect the turn that spends the budget to fail
            if self.hook_feedback.stop_reason is None:
                return ended
            return outcome.stopped_by_hook(ended, at_end=ended.terminal_reason == "completed")
        max_turns = self.conversation.options.max_turns
        if max_turns is not None and self.model_call_count >= max_turns:
            return outcome.out_of_turns(max_turns, stop_reason)
        return None

    async def _continues(self, ending: TurnOutcome) -> bool:
        """Whether a Stop hook, or a goal that is not met, continues the turn. Only a completed turn is asked about."""
        if ending.terminal_reason != "completed":
            return False
        if await self.hook_feedback.should_continue(self.model_call.final_text()):
            return True
        # The journal of a subagent has no goal.
        if self.conversation.journal.goal is None or self.hook_feedback.stop_reason is not None:
            return False
        # A round with tool calls has more than one model call.
        is_idle = self.model_call_count - self._judged_calls <= 1
        self._judged_calls = self.model_call_count
        self._idle_rounds = self._idle_rounds + 1 if is_idle else 0
        from parley.engine.goal import SessionGoal

        return await SessionGoal(self.conversation).should_continue(self._idle_rounds)

    async def _finish_tools(
        self, calls: list[ToolUse], stop_reason: str | None, *, is_stopped: bool
    ) -> TurnOutcome | None:
        """The outcome if the turn ends after these calls. `is_stopped`: the client or a hook ended it."""
        if self.tool_batch.deferred is not None:
            self.tool_batch.open_calls = []  # it stays open until the session is resumed
            return outcome.deferred(self.tool_batch.deferred.json)
        if is_stopped and self.hook_feedback.stop_reason is None:
            return self._abort(in_tools=True)
        if self.hook_feedback.stop_reason is not None:
            self.tool_batch.close_remaining("This call did not run: a hook ended the turn before it.")
        await self.hook_feedback.end_batch()
        if self.hook_feedback.stop_reason is not None:
            return outcome.stopped_by_hook(outcome.completed("", stop_reason))
        schema = self.conversation.output_schema
        if schema is not None and (tries := sum(call.name == schema.name for call in calls)):
            schema.attempts += tries
            self._answered_by_tool = schema.is_satisfied
            if schema.is_satisfied or schema.is_exhausted:
                return schema_outcome(schema, stop_reason)
        if self._malformed >= MAX_MALFORMED:
            return outcome.malformed(self._malformed, stop_reason)
        if (repeated := self.tool_batch.find_repeated()) is not None:
            return outcome.repeated(repeated, MAX_REPEATED, stop_reason)
        if self._queue.is_urgent():
            self.stop_cause = StopCause.GIVE_WAY
            return self._abort(in_tools=True)
        return None

    def _conclude(self, stop_reason: str | None) -> TurnOutcome | None:
        """The model asks for nothing more: the outcome, unless its answer does not match the output schema."""
        schema = self.conversation.output_schema
        if schema is None:
            is_expected = not all(prompt.is_notification for prompt in self.prompts)
            if is_expected and (advice := self._missing_answer.find_advice()) is not None:
                self.conversation.append_user(Text.of(advice), isSynthetic=True)
                return None
            if is_expected and (problem := self._missing_answer.describe_problem()) is not None:
                return outcome.no_answer(problem, stop_reason)
            return outcome.completed(self.model_call.display_text(), stop_reason)
        schema.attempts += 1
        if schema.accept_text(self.model_call.final_text()) or schema.is_exhausted:
            return schema_outcome(schema, stop_reason)
        advice = schema.advice(by_tool=self.conversation.uses_output_tool)
        self.conversation.append_user(Text.of(advice), isSynthetic=True)
        return None

    # Failures and interrupts.

    def _fail(self, error: ModelError) -> TurnOutcome:
        # A stream may break after a finished call, which was sent, did not run, and needs a result.
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
        """Keep what was sent, close the open calls, and append the interrupt marker."""
        accumulator, in_tools = self.model_call.accumulator, in_tools or self.is_running_tools
        stop_reason = accumulator.stop_reason
        if not in_tools:
            for block in accumulator.partial():
                self.model_call.send_block(block, aborted=True)
            # Calls of an answer that was cut off never start, but they need results.
            unanswered = self.conversation.journal.history.open_calls()
            self.tool_batch.open_calls = [call for call in accumulator.calls() if call.id in unanswered]
        why = self.stop_cause or StopCause.INTERRUPT
        self.tool_batch.send_finished()
        text = f"{why.value} before this tool call finished; it may not have run."
        self.tool_batch.close_remaining(text, "User rejected tool use", {"non_execution_kind": "user-rejected"})
        self.hook_feedback.append()  # from hooks of calls that have results
        where = "tools" if in_tools else "streaming"
        if why is StopCause.GIVE_WAY:
            return outcome.yielded(where, stop_reason)
        self.conversation.append_user(Text.of(INTERRUPTED_TOOL if in_tools else INTERRUPTED))
        return outcome.aborted(where, stop_reason)


class ToolBatch:
    """The tool calls of one answer.

    After an interrupt, or when a hook ends the turn, `open_calls` are those without a result.
    """

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
        self.denials = conversation.denials = []
        self._batch_size = 0
        self.deferred: ToolUse | None = None
        """The call that a hook deferred; it has no result and ends the turn."""
        self._done: set[tuple[str, int]] = set()
        """The calls of the answer that have results: the name, and the hash of the input and the result."""
        self._last_done: set[tuple[str, int]] = set()
        """Those of the answer before."""
        self._repetitions = 0
        """How many answers in a row had the same."""

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

    def find_repeated(self) -> str | None:
        """The name of a tool that is called again and again, with the same input and the same result."""
        self._repetitions = self._repetitions + 1 if self._done and self._done == self._last_done else 1
        self._last_done, self._done = self._done, set()
        return next(iter(self._last_done))[0] if self._last_done and self._repetitions >= MAX_REPEATED else None

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
                deferral.record_call(call.name)
            with (
                conversation.config.observer.tool(call.name, call.id) as observation,
                ToolHeartbeat(conversation.send, call, conversation.limits.heartbeat_seconds),
            ):
                started_at = conversation.clock.monotonic()
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
        is_wait = conversation.clock.monotonic() - started_at >= WAITING_SECONDS
        done = [call.id] if is_wait else [call.input, outcome.output.content]
        self._done.add((call.name, hash(encode_json(done))))
        self.send_result(call, outcome.output, outcome.meta)
        self._feedback.add_result(call, outcome)
        resolved = conversation.tool_executor.resolve_alias(call)
        if find_traits(resolved.name).opens_folders:
            from parley.engine.commands.expansion import find_instructions, report_instructions

            found = find_instructions(conversation, resolved, outcome)
            self._feedback.contexts += found
            if found:
                await report_instructions(conversation, resolved, found)
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
        result, max_bytes = clean_output(result), conversation.limits.max_line_bytes
        if not fits_line(result, max_bytes):
            from parley.engine.turn.result_spill import spill_to_file

            result = spill_to_file(result, max_bytes, conversation.config.workspace.new_result_file)
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


class ToolHeartbeat(Ticker):
    """`with ToolHeartbeat(send, call):` reports at every interval that the call still runs."""

    def __init__(
        self, send: Callable[[Message], None], call: ToolUse, every_seconds: float | None = INTERVAL_SECONDS
    ) -> None:
        super().__init__(every_seconds)
        self._send = send
        self._tool_use = call
        self._beats = 0

    def _beat(self) -> None:
        call, beat = self._tool_use, self._beats
        self._beats += 1
        self._send(
            ToolProgress(
                tool_use_id=f"{call.id}-heartbeat-{beat}",
                tool_name=call.name,
                parent_tool_use_id=call.id,
                elapsed_time_seconds=(self._every_seconds or 0) * self._beats,
                heartbeat=True,
            )
        )


class HookFeedback:
    """What hooks say during a turn."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._hooks = conversation.hooks
        self.contexts: list[str] = []
        """Context for the model that is not in the conversation yet."""
        self.prompt_contexts: list[str] = []
        """Context about the prompts of the turn; dropped if they are refused."""
        self.stop_reason: str | None = None
        """Why a hook ends the turn; None if none does."""
        self._done: list[tuple[ToolUse, ToolOutput]] = []
        """The calls of the last answer that have results."""
        self._stops = 0
        """How often hooks kept the turn from ending."""

    def append(self) -> None:
        """Append the collected context to the conversation. Raises SessionError."""
        self._conversation.append_contexts([*self.contexts, *self.prompt_contexts])
        self.contexts, self.prompt_contexts = [], []

    def add_result(self, call: ToolUse, outcome: ToolOutcome) -> None:
        """Record the result of a call."""
        self._done.append((call, outcome.output))
        self.contexts += outcome.contexts
        self._stop(outcome.stop_reason)

    async def end_batch(self) -> None:
        """Run the hooks after all calls of an answer, and append what they say."""
        done, self._done = self._done, []
        ending = await self._hooks.events.after_batch(done, self._conversation.tool_executor.agent)
        self.contexts += ending.contexts
        self._stop(ending.stop_reason)
        self.append()

    async def should_continue(self, text: str) -> bool:
        """Whether hooks make a model continue that has finished."""
        if self.stop_reason is not None:
            return False
        conversation = self._conversation
        ending = await self._hooks.events.before_stop(
            text, self._stops, conversation.tool_executor.agent, conversation.transcript_path
        )
        self._stop(ending.stop_reason)
        if ending.feedback is None:
            return False
        self._stops += 1
        self.contexts.append(ending.feedback)
        self.append()
        return True

    async def report_failure(self, error: ModelError) -> None:
        if self._conversation.parent_tool_use_id is None:
            await self._hooks.events.report_failure(error)

    def _stop(self, reason: str | None) -> None:
        if self.stop_reason is None:
            self.stop_reason = reason


def schema_outcome(schema: OutputSchema, stop_reason: str | None) -> TurnOutcome:
    """The outcome of a turn with an output schema."""
    if schema.is_satisfied:
        return outcome.structured(schema.text, schema.output, schema.report(), stop_reason)
    return outcome.not_structured(schema.report(), stop_reason)


def clean_output(result: ToolOutput) -> ToolOutput:
    detail = None if result.detail is None else sanitize(to_builtins(result.detail))
    return ToolOutput(content=sanitize(result.content), detail=detail, is_error=result.is_error)


def fits_line(result: ToolOutput, max_bytes: int) -> bool:
    room = max_bytes - ENVELOPE_BYTES
    if longest_json(result.content) + longest_json(result.detail) <= room:
        return True
    return len(encode_json(result.content)) + len(encode_json(result.detail)) <= room


def longest_json(value: object) -> float:
    """At least the bytes of a value as JSON: most results are so short that they need not be encoded to know it."""
    if isinstance(value, str):
        return LONGEST_ESCAPE * len(value) + 2
    if isinstance(value, dict):
        return sum(longest_json(key) + longest_json(item) + 2 for key, item in value.items()) + 2
    return LONGEST_NUMBER if value is None or isinstance(value, int | float) else math.inf


INVISIBLE = " \t\r\n\u200b\u2060\ufeff"
ASKED_BACK = ("end_turn", "tool_use", "max_tokens", None)
"""The stop reasons after which an answer without content is a mistake."""
EMPTY = "[Your answer was empty. Answer the user, or call a tool.]"
ONLY_REASONING = "[Your answer has reasoning only, which the user does not see. Answer the user, or call a tool.]"
UNCLEAR = "[Your answer contains a tool call as text, which did not run. If you want it to run, make it a tool call.]"
ANNOUNCED = "[Your answer announces a tool call, but makes none. Make the call now, or answer without it.]"
PROMISE = (
    r"(?i)\b(?:I'll|I will|I am going to|I'm going to|let me|let's)\s+"
    r"(?:(?:now|first|quickly|start by|begin by)\s+)*"
    r"(?:read|look|check|open|run|search|list|create|write|edit|examine|inspect|use|call|execute|fetch|find|view|start)"
    r"(?:ing)?\b[^!?]*$"
)
CONDITION = r"(?i)\b(?:if|once|when|after|unless|until|would|should|could|want|like|need|later|you)\b|\?"
"""A sentence with one of these words announces nothing for now."""
MAX_SENTENCE_CHARS = 300


class MissingAnswer:
    """Finds what is missing in the last answer of a turn."""

    def __init__(self, conversation: Conversation, model_call: ModelCall) -> None:
        self._conversation = conversation
        self._model_call = model_call
        self._asked: set[str] = set()

    def find_advice(self) -> str | None:
        """What to ask the model, the first time that something is missing."""
        found = self._find()
        if found is None or found in self._asked:
            return None
        self._asked.add(found)
        return found

    def describe_problem(self) -> str | None:
        """Why there is no answer; None if there is one."""
        if (found := self._find()) not in (EMPTY, ONLY_REASONING):
            return None
        model = self._conversation.model.display_name
        what = "was empty" if found == EMPTY else "contained only reasoning"
        if self._model_call.accumulator.stop_reason == "max_tokens":
            return f"The answer of {model} {what} when it reached the maximum number of output tokens"
        return f"The answer of {model} {what}, also when it was asked again"

    def _find(self) -> str | None:
        answer, text = self._model_call.accumulator, self._model_call.final_text().strip(INVISIBLE)
        if not text:
            if answer.stop_reason not in ASKED_BACK:
                return None
            has_thoughts = any(isinstance(block, Thinking | RedactedThinking) for block in answer.blocks)
            return ONLY_REASONING if has_thoughts else EMPTY
        if not self._conversation.tool_executor.tools:
            return None
        if self._model_call.repair.is_unclear:
            return UNCLEAR
        # The models of the vendor do not announce calls that they do not make.
        if claude_version(self._conversation.model.name) is not None:
            return None
        return ANNOUNCED if answer.stop_reason == "tool_use" or announces_call(text) else None


def announces_call(text: str) -> bool:
    """Whether the last sentence of a text says that the model is about to use a tool."""
    sentence = re.split(r"(?<=[.!?])\s+|\n", text)[-1].strip()
    is_short = len(sentence) <= MAX_SENTENCE_CHARS
    return is_short and re.search(PROMISE, sentence) is not None and re.search(CONDITION, sentence) is None
