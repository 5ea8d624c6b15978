"""The model calls of a turn: send the request, take the events of the answer, retry, change the model.

Blocks are sent to the client while the answer streams, and cannot be taken back. So when a stream breaks, its finished
blocks stay, and unfinished ones are dropped:

    a call finished     it runs, and the model is called again with its result
    a text finished     the model is asked to continue after it
    nothing finished    the same request is sent again

A failed call is retried after a delay. A model that does not exist, or fails several times in a row because its servers
are overloaded or unreachable, is replaced by the next fallback model (`--fallback-model`) for the rest of the turn. So
is a model that refuses to answer: the refused answer is retracted, and the client is told which messages to remove.
Without a fallback model the refusal is the answer, and a message says so. The next turn starts with the session's own
model again.

See also: `context/conversation.py` builds the request, `turn/retry.py` calls a model outside the conversation.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from parley.engine.context.conversation import Conversation
from parley.engine.context.history import tokens_from_chars
from parley.engine.ledger import total_tokens
from parley.engine.repair.answer import AnswerRepair
from parley.engine.session.outbox import Ticker
from parley.engine.session.prompts import Prompt
from parley.engine.turn import outcome
from parley.engine.turn.retry import REFUSAL, FailureStreak, delay_seconds, retry_message
from parley.errors import BudgetSpent, ModelError, SessionError, UsageError
from parley.models.accumulator import MessageAccumulator
from parley.models.base import ModelEvent
from parley.models.catalog import ModelRef
from parley.protocol.base import UNSET, Json, Message, UnsetType
from parley.protocol.blocks import Block, RedactedThinking, Text, Thinking, ToolUse
from parley.protocol.messages.system import MODEL_SILENT, Informational, Status, ThinkingTokens

if TYPE_CHECKING:
    from parley.engine.repair.text_calls import TextCall

CONTINUE = (
    "[The connection broke and your answer was cut off here. Everything before this point has arrived. "
    "Continue from where it ends, without repeating any of it.]"
)
REFUSED = 400
MAX_REPAIRS = 3
"""Of one request. A backend may find something else each time."""
REPAIRED = "The backend refused the conversation ({error}); it is sent again without the invalid parts"
PAUSED = "pause_turn"
"""The stop reason of a backend whose own tools take long. It continues when it gets its message back."""
MAX_PAUSES = 20
EVENTS_AT_ONCE = 64
"""After so many events, which may all have come at once, the other sessions of the process have a turn."""
FAILURES_BEFORE = 3
"""Failures before the next model is used. Each is reported as a retry."""
UNREACHABLE = ("connection_failed", "timeout_error", "overloaded_error")
NOT_FOUND = 404
CALL_MARKS = ("tool_", "toolcall", "function", "invoke", "|channel|", "python_", "action", "arguments", "parameters")
"""Words of calls that are written as text."""


class ModelCall:
    """The model calls of one turn."""

    def __init__(
        self, conversation: Conversation, prompts: list[Prompt], resume_reason: str | UnsetType = UNSET
    ) -> None:
        self._conversation = conversation
        self._prompts = prompts
        """The prompts of the turn; the first message of the answer names them."""
        self.fallback = Fallback(conversation)
        self.refusals = Refusals(conversation, self.fallback, prompts)
        self.call_count = 0
        self.timings = TurnTimings()
        self.has_bug = False
        """The backend failed with an error that no backend should raise."""
        self.accumulator = MessageAccumulator()
        """The current answer, or the last one."""
        self.repair: AnswerRepair
        """What was changed in that answer."""
        self._journalled_ending: MessageAccumulator | None = None
        """The answer whose end is in the journal already."""
        self._binding: Json | None = None
        """What thinking in the answer is bound to; None after a call that is not stored as the model made it."""
        self.marks = ReplyMarks(prompts, resume_reason)
        self._first_tokens: int | None = None
        """The tokens of the first request of the turn."""
        self.context_tokens = 0
        """The tokens of the last request and its answer."""
        self._failures = FailureStreak()
        self._broken_ids: set[str] = set()
        self._texts: list[str] = []
        """Texts of broken answers that the last answer continues."""
        self._silence = SilenceNotice(conversation)
        self._idle_timer = IdleTimer(conversation.send, conversation.limits.heartbeat_seconds)
        self._turn_id = prompts[0].uuid if prompts else ""
        self._displayed: dict[str, str] = {}
        """Texts that a MessageDisplay hook replaced for the client, and what it sees instead."""

    async def run(self) -> MessageAccumulator:
        """One model call, with retries. The answer may be cut off after a tool call.

        Raises ModelError or BudgetSpent.
        """
        conversation = self._conversation
        if conversation.is_nearly_full():
            conversation.ledger.check_budget()  # before the cost of a compaction
            await self._compact()
        with self._idle_timer:
            return await self._run_once()

    async def _compact(self) -> bool:
        """Compact the conversation; False if nothing changed. Raises ModelError, BudgetSpent."""
        from parley.engine.context.compactor import make_compactor

        compactor = make_compactor(self._conversation)
        return await compactor.compact_automatically(lambda error: self.fallback.try_next(error, 0, is_last=True))

    async def _compact_after_refusal(self, error: ModelError) -> bool:
        """Compact after a request that was too long for the backend; False if nothing changed. Tried once."""
        conversation = self._conversation
        may_compact = conversation.config.compaction.is_allowed and conversation.auto_compact
        if not outcome.is_too_large(error) or self._failures.has_compacted or not may_compact:
            return False
        self._failures.has_compacted = True
        return await self._compact()

    async def _run_once(self) -> MessageAccumulator:
        number = self.call_count + 1
        while True:
            try:
                accumulator = await self._attempt(number)
            except ModelError as exc:
                self._abandon()
                if await self._compact_after_refusal(exc):
                    continue
                await self._recover(exc)
                accumulator = self.accumulator
                if not accumulator.calls():
                    continue
            else:
                self._failures = FailureStreak()
            if accumulator.calls():
                self._texts = []
            return accumulator

    async def run_until_complete(self) -> MessageAccumulator:
        """One model call, continued while the backend pauses its own tools. Raises ModelError."""
        accumulator = await self.run()
        while accumulator.stop_reason == REFUSAL and self.refusals.try_next(accumulator):
            self._texts = []
            accumulator = await self.run()
        for _ in range(MAX_PAUSES):
            if accumulator.stop_reason != PAUSED or accumulator.calls():
                break
            self._texts += accumulator.texts()[-1:]
            accumulator = await self.run()
        return accumulator

    def display_text(self) -> str:
        """The final text as the client sees it."""
        if not self._displayed:
            return self.final_text()
        parts = [*self._texts, *self.accumulator.texts()[-1:]]
        return "\n\n".join(self._displayed.get(text, text) for text in parts)

    def final_text(self) -> str:
        """The last text of the model, for `result`."""
        return "\n\n".join([*self._texts, *self.accumulator.texts()[-1:]])

    async def _attempt(self, number: int) -> MessageAccumulator:
        """Raises ModelError or BudgetSpent."""
        conversation = self._conversation
        self._check_task_budget()
        async with conversation.ledger.call():
            self.call_count = number
            if conversation.include_partial_messages:
                conversation.send(Status(status="requesting"))
            accumulator = self.accumulator = MessageAccumulator()
            is_tool = conversation.tool_executor.means_tool if conversation.tool_executor.tools else None
            self.repair = AnswerRepair(is_tool, partial(is_quoted, conversation), conversation.clock.new_short_id)
            try:
                await self._read(accumulator)
            except ModelError as exc:
                conversation.send_rate_limit(exc.quota)
                if not accumulator.is_complete:
                    raise
        if not accumulator.is_complete:
            raise ModelError("the model's stream ended early", kind="connection_failed", retryable=True)
        conversation.models.discover(conversation.model, conversation.estimate_tokens)
        if not accumulator.finished:
            self._send_event({"type": "message_stop"})
        conversation.send_rate_limit(accumulator.quota)
        return accumulator

    async def _read(self, accumulator: MessageAccumulator) -> None:
        """Read the whole answer, and record its usage however it ends. Raises ModelError."""
        conversation, clock = self._conversation, self._conversation.clock.monotonic
        started_at, choice = clock(), conversation.model  # the client may change the model during the answer
        handled = 0
        try:
            model = conversation.open_model(choice)
            self.timings.record_request(clock, conversation.clock.seconds)
            request = conversation.build_request()
            self._binding = conversation.binding
            with self._silence:
                request = msgspec.structs.replace(request, report_wait=self._silence.wait_for)
                async with aclosing(model.stream(request)) as events:
                    async for sent in events:
                        self._silence.is_silent = False
                        for event in self.repair.feed(sent):
                            if event.type == "content_block_stop":
                                await self._filter_texts(accumulator)
                            self._handle_event(event, accumulator, started_at)
                        handled += 1
                        if handled % EVENTS_AT_ONCE == 0:
                            await asyncio.sleep(0)
        except (ModelError, SessionError):
            raise
        except Exception:
            self.has_bug = True
            raise
        finally:
            if accumulator.started:
                self._count_usage(choice, accumulator.final_usage, clock() - started_at)
            if accumulator.blocks and self._journalled_ending is not accumulator:
                # For readers of the log. A failing disk fails the next entry too, and that ends the turn.
                with suppress(SessionError):
                    self._conversation.journal.append_usage(accumulator.ending())

    def _count_usage(self, choice: ModelRef, usage: Json, seconds: float) -> None:
        conversation = self._conversation
        # The usage of subagents counts for the session, but not for its context.
        conversation.ledger.record_call(
            choice.display_name, usage, seconds, is_side_query=conversation.parent_tool_use_id is not None
        )
        self.context_tokens = total_tokens(usage)
        conversation.gauge.longest_answer = max(conversation.gauge.longest_answer, usage.get("output_tokens") or 0)
        conversation.gauge.measure(
            self.context_tokens, conversation.estimate_tokens(), conversation.journal.history.media_tokens
        )
        if self._first_tokens is None:
            self._first_tokens = self.context_tokens - (usage.get("output_tokens") or 0)
        for text in conversation.ledger.warnings():
            conversation.send(Informational(content=text, level="warning"))

    def _check_task_budget(self) -> None:
        """The task budget limits the tokens added since the first request of the turn. Raises BudgetSpent."""
        most = self._conversation.options.task_budget
        if most is not None and self._first_tokens is not None and self.context_tokens - self._first_tokens >= most:
            raise BudgetSpent("task", f"Reached the task budget ({most} tokens)")

    # Broken streams.

    async def _recover(self, error: ModelError) -> None:
        """Wait before the next retry, which continues after the finished blocks. Raises the error if there is none."""
        conversation, accumulator, trouble = self._conversation, self.accumulator, self._failures
        trouble.compare(error, accumulator)
        lasts_seconds = trouble.record(conversation.clock.monotonic(), made_progress=bool(accumulator.blocks))
        most = conversation.options.max_retries
        delay = delay_seconds(error, trouble.failures, most, conversation.config.random(), lasts_seconds)
        if accumulator.blocks:
            self._broken_ids.add(accumulator.id)
        if (
            error.status == REFUSED
            and trouble.repairs < MAX_REPAIRS
            and (repair := conversation.journal.history.repair(str(error))) is not None
        ):
            conversation.journal.append_event("repair", repair)
            trouble.repairs += 1
            conversation.send(
                Informational(content=REPAIRED.format(error=error), level="warning", tag="history_repaired")
            )
            trouble.reset()
        elif self.fallback.try_next(error, trouble.failures, is_last=delay is None):
            trouble.reset()
        elif delay is None:
            raise error
        else:
            self._idle_timer.checks = 0
            conversation.send(retry_message(error, trouble.failures, most, delay))
            await conversation.clock.sleep(delay)
        if not accumulator.calls() and (said := accumulator.texts()):
            self._texts += said[-1:]
            conversation.append_user(Text.of(CONTINUE), isSynthetic=True)

    def _abandon(self) -> None:
        """Send the end of a broken stream, for clients that follow it."""
        accumulator = self.accumulator
        if accumulator.started:
            for index in accumulator.open_indexes():
                self._send_event({"type": "content_block_stop", "index": index})
            lost = {"api_message_id": accumulator.id, "from_block_index": accumulator.first_lost()}
            self._send_event({"type": "message_stop"}, lost)
        accumulator.drop_open()

    def _send_event(self, event: Json, abandoned: Json | UnsetType = UNSET) -> None:
        """Send an event that the stream lacks."""
        if self._conversation.include_partial_messages:
            self._conversation.send_event(msgspec.json.encode(event), self.accumulator.id, abandoned_blocks=abandoned)

    # Events.

    def _handle_event(self, event: ModelEvent, accumulator: MessageAccumulator, started_at: float) -> None:
        """Handle one event. A finished block is sent before the event that finishes it."""
        if event.type == "ping":
            return
        conversation = self._conversation
        fields: Json = {}
        block = accumulator.feed(event)
        if block is not None:
            self._handle_block(block, accumulator, event.ending)
        elif event.type == "content_block_start":
            self.timings.record_content(conversation.clock.monotonic)
        elif event.type == "message_start":
            fields["ttft_ms"] = self.timings.record_answer(conversation.clock.monotonic, started_at)
            fields |= self.marks.take("event")
            if accumulator.id in self._broken_ids:
                # A server may repeat an id; blocks of two answers must not become one message.
                accumulator.id = f"msg_{conversation.clock.new_uuid()}"
        if conversation.include_partial_messages:
            self._idle_timer.checks = 0
            if event.delta is not None and event.delta.type == "thinking_delta":
                self._send_thinking(len(event.delta.thinking))
            if event.joined:
                conversation.send_deltas(event.joined, accumulator.id)
            else:
                conversation.send_event(event.raw, accumulator.id, **fields)

    def _send_thinking(self, chars: int) -> None:
        """Report the progress of thinking, which the client may not show."""
        if chars and self._conversation.parent_tool_use_id is None:
            self._conversation.send(self.marks.count_thinking(chars))

    def _handle_block(self, block: Block, accumulator: MessageAccumulator, ending: ModelEvent | None) -> None:
        made, changes = block, list[str]()
        if isinstance(block, ToolUse):
            # One input is sent, approved, run and stored.
            call, changes = self._conversation.tool_executor.repair(block)
            block = accumulator.blocks[-1] = self._conversation.tool_executor.prepare(call)
            self._binding = self._binding if block is made else None
        self._idle_timer.checks = 0
        is_last = ending is not None and not accumulator.open_indexes()
        if ending is not None and is_last:
            accumulator.feed(ending)  # early: the last block is journalled together with the end of the answer
        self.send_block(block, is_last=is_last)
        if isinstance(block, ToolUse) and isinstance(made, ToolUse):
            self._report_repair(block, made, changes)

    def _report_repair(self, call: ToolUse, made: ToolUse, changes: list[str]) -> None:
        """Record what was changed in a call, and tell the client."""
        given: Json = {"name": made.name, "input": made.input}
        if (text := self.repair.written.get(made.id)) is not None:
            changes, given = ["it was written as text", *changes], {"text": text}
        if changes:
            record = {"tool_use_id": call.id, "tool_name": call.name, "changes": changes, "original": given}
            self._conversation.journal.append_event("call_repair", record)
            text = f"Repaired a call of {call.name}: {'; '.join(changes)}"
            self._conversation.send(Informational(content=text, level="info", tag="call_repaired", tool_use_id=call.id))

    async def _filter_texts(self, accumulator: MessageAccumulator) -> None:
        """MessageDisplay hooks get a text before the client does. Texts of subagents are not displayed."""
        events = self._conversation.hooks.events  # the client can register hooks during the answer
        if self._conversation.parent_tool_use_id is None and events.has_hooks("MessageDisplay"):
            for block in accumulator.partial():
                if isinstance(block, Text):
                    shown = await events.before_display(self._turn_id, block.text)
                    if shown is not None and shown != block.text:
                        self._displayed[block.text] = shown

    def send_block(self, block: Block, *, is_last: bool = False, aborted: bool = False) -> None:
        """Journal and send one block of the answer. Raises SessionError."""
        replaced, self.refusals.retracted = self.refusals.retracted, []
        shown = self._displayed.get(block.text) if isinstance(block, Text) else None
        self._conversation.append_assistant(
            self.accumulator.message(block),
            shown=None if shown is None else self.accumulator.message(Text.of(shown)),
            ending=self.accumulator.ending() if is_last else None,
            binding=self._binding if isinstance(block, Thinking | RedactedThinking) else None,
            request_id=self.accumulator.request_id or UNSET,
            aborted=True if aborted else UNSET,
            supersedes=replaced or UNSET,
            **self.marks.take("message"),
            tool_use_meta=self._conversation.tool_executor.call_meta(block) or UNSET,
        )
        if is_last:
            self._journalled_ending = self.accumulator


class ReplyMarks:
    """Messages and events of a reply name the prompt that it answers: the first one, and the first after it changed."""

    def __init__(self, prompts: list[Prompt], resume_reason: str | UnsetType) -> None:
        self._prompts = prompts
        """The prompts of the turn; more can join it."""
        self._started_by = len(prompts)
        self._resume_reason = resume_reason
        self._marked: dict[str, str | UnsetType] = {}
        """The prompt that a kind of message has named last."""
        self._thinking_tokens = 0

    def name_prompts(self, earlier: Sequence[str] = ()) -> tuple[str | UnsetType, list[str]]:
        """The prompt that the turn answers and all its prompts, so far as the client gave their uuids.

        It answers the last one that started it, or if none did (a notification, say) the last one that joined it.
        `earlier` are uuids of prompts that came before those of the turn.
        """
        started = [*earlier, *(prompt.uuid for prompt in self._prompts[: self._started_by] if prompt.has_client_uuid)]
        joined = [prompt.uuid for prompt in self._prompts[self._started_by :] if prompt.has_client_uuid]
        answered = started or joined
        return answered[-1] if answered else UNSET, [*started, *joined]

    def take(self, kind: str) -> Json:
        """The fields of the next message of a kind; empty if an earlier one has named the same prompt."""
        answered, named = self.name_prompts()
        is_first = kind not in self._marked
        if not is_first and self._marked[kind] == answered:
            return {}
        self._marked[kind] = answered
        fields: Json = {"resume_reason": self._resume_reason} if is_first and self._resume_reason is not UNSET else {}
        return {**fields, "user_message_uuid": answered, "user_message_uuids": named} if named else fields

    def count_thinking(self, chars: int) -> ThinkingTokens:
        """The message about more characters of thinking."""
        tokens = tokens_from_chars(chars)
        self._thinking_tokens += tokens
        return ThinkingTokens(
            estimated_tokens=self._thinking_tokens,
            estimated_tokens_delta=tokens,
            user_message_uuid=self.name_prompts()[0],
        )


class TurnTimings:
    """When the first things of a turn happened, on the monotonic clock."""

    def __init__(self) -> None:
        self.request_at: float | None = None
        self.request_wall_seconds: float | None = None
        """The time of day of the first request."""
        self.answer_at: float | None = None
        """The start of the first answer."""
        self.content_at: float | None = None

    def record_request(self, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        if self.request_at is None:
            self.request_at, self.request_wall_seconds = clock(), wall_clock()

    def record_answer(self, clock: Callable[[], float], started_at: float) -> int:
        """Returns the milliseconds from `started_at`, the start of this model call."""
        now = clock()
        if self.answer_at is None:
            self.answer_at = now
        return round((now - started_at) * 1000)

    def record_content(self, clock: Callable[[], float]) -> None:
        if self.content_at is None:
            self.content_at = clock()

    def since(self, started_at: float, *, has_client_uuid: bool) -> Json:
        """The fields of a successful result. `started_at` is the start of the turn."""
        marks = {
            "ttft_ms": self.answer_at,
            "ttft_stream_ms": self.answer_at,
            "time_to_request_ms": self.request_at,
            "first_content_frame_ms": self.content_at,
        }
        fields: Json = {name: round((at - started_at) * 1000) for name, at in marks.items() if at is not None}
        if has_client_uuid and self.request_wall_seconds is not None:
            fields["request_sent_wall_ms"] = round(self.request_wall_seconds * 1000)
        return fields


CHECKS_PER_INTERVAL = 3
"""How often the timer checks within the longest silence."""


class IdleTimer(Ticker):
    """`with idle_timer:` sends `status: requesting` when nothing was sent for long.

    Old clients accept this message, too. A sender sets `checks` to 0, which costs less than the time of every message.
    """

    def __init__(self, send: Callable[[Message], None], max_seconds: float | None) -> None:
        super().__init__(None if max_seconds is None else max_seconds / CHECKS_PER_INTERVAL)
        self._send = send
        self.checks = 0
        """Checks since the last message was sent."""

    def __enter__(self) -> None:
        self.checks = 0
        super().__enter__()

    def _beat(self) -> None:
        self.checks += 1
        if self.checks == CHECKS_PER_INTERVAL:
            self.checks = 0
            self._send(Status(status="requesting"))


class SilenceNotice(Ticker):
    """`with silence:` tells the client once what the call waits for, if the server sends nothing for long."""

    def __init__(self, conversation: Conversation) -> None:
        super().__init__(conversation.limits.silence_seconds)
        self._conversation = conversation
        self._awaited = ""
        self._was_sent = False
        self.is_silent = True
        """Whether nothing has arrived since the last beat."""

    def __enter__(self) -> None:
        self._awaited, self._was_sent, self.is_silent = "the model has sent nothing", False, True
        super().__enter__()

    def wait_for(self, awaited: str) -> None:
        """The call waits for this from now on; empty if nothing was sent to the server yet."""
        self._awaited = awaited

    def _beat(self) -> None:
        if self.is_silent and not self._was_sent:
            if not self._awaited:
                return
            text = f"{self._awaited} (silent for {self._every_seconds:g} s)"
            self._conversation.send(Informational(content=text, level="info", tag=MODEL_SILENT))
            self._was_sent = True
        self.is_silent = True


class Fallback:
    """The fallback models of one turn."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._remaining = [conversation.config.model.resolve(name) for name in conversation.config.model.fallbacks]
        self._original: ModelRef | None = None
        """The model that was replaced."""
        self._substitute: ModelRef | None = None

    def try_next(self, error: ModelError, failures: int, *, is_last: bool) -> bool:
        """Switch to the next model; False if there is none. `is_last`: there would be no further retry."""
        if not is_unavailable(error) or not (is_last or failures >= FAILURES_BEFORE):
            return False
        failed = self._conversation.model.display_name
        choice = self.switch()
        if choice is None:
            return False
        text = f"{failed} does not answer ({error}); this turn continues with {choice.display_name}"
        self._conversation.send(Informational(content=text, level="warning", tag="model_fallback"))
        return True

    def switch(self) -> ModelRef | None:
        """Switch to the next model; None if there is none."""
        conversation = self._conversation
        while self._remaining:
            choice = self._remaining.pop(0)
            if choice in (conversation.model, conversation.chosen_model) or not self._can_open(choice):
                continue
            self._original = self._original or conversation.chosen_model
            old, conversation.model = conversation.model, choice
            self._substitute = choice
            if conversation.parent_tool_use_id is None:
                conversation.hooks.events.model_switched(old, choice, choice.display_name)
            return choice
        return None

    def restore(self) -> ModelRef | None:
        """Return to the session's own model at the end of the turn, unless the client has changed it.

        The model that is returned from; None if nothing changes.
        """
        if self._original is None or self._conversation.chosen_model != self._substitute:
            return None
        self._conversation.model = self._original
        return self._substitute

    def _can_open(self, choice: ModelRef) -> bool:
        try:
            self._conversation.open_model(choice)
        except (UsageError, ModelError) as exc:
            self._conversation.config.warn(f"warning: the fallback model {choice.display_name} cannot be used: {exc}")
            return False
        return True


def is_unavailable(error: ModelError) -> bool:
    """Whether the model failed, and not the request or the key."""
    if error.status is None:
        return error.kind in UNREACHABLE
    return error.status >= 500 or error.status == NOT_FOUND or error.kind == "overloaded_error"


class Refusals:
    """The refusals of one turn."""

    def __init__(self, conversation: Conversation, fallback: Fallback, prompts: list[Prompt]) -> None:
        self._conversation = conversation
        self._fallback = fallback
        self._prompts = prompts
        self._last: Json | None = None
        """The fields of the last fallback."""
        self.retracted: list[str] = []
        """The messages that the next one replaces."""

    def try_next(self, accumulator: MessageAccumulator) -> bool:
        """Retract a refused answer and switch to the next model; False if there is none. Raises SessionError."""
        from parley.protocol.messages.occasional import ModelRefusalFallback, ModelRefusalNoFallback

        conversation, refusing = self._conversation, self._conversation.model
        fields = self._describe(accumulator, refusing)
        choice = self._fallback.switch()
        if choice is None:
            text = f"{refusing.display_name} refused to answer{because(accumulator)}"
            conversation.send(ModelRefusalNoFallback(**fields, content=text))
            return False
        self.retracted = retract(conversation, accumulator.id)
        text = f"{refusing.display_name} refused to answer{because(accumulator)}; {choice.display_name} answers instead"
        self._last = {**fields, "fallback_model": choice.display_name, "scope": self._scope}
        conversation.send(
            ModelRefusalFallback(
                **self._last,
                trigger=REFUSAL,
                direction="retry",
                retracted_message_uuids=self.retracted,
                content=text,
            )
        )
        return True

    def report_return(self, substitute: ModelRef | None) -> None:
        """The turn has ended. The next one starts with the session's own model again."""
        last, self._last = self._last, None
        if last is None or substitute is None:
            return
        from parley.protocol.messages.occasional import ModelRefusalFallback

        text = f"The next turn starts with {self._conversation.model.display_name} again"
        self._conversation.send(ModelRefusalFallback(**last, trigger=REFUSAL, direction="revert", content=text))

    @property
    def _scope(self) -> str:
        return "session" if self._conversation.parent_tool_use_id is None else "local"

    def _describe(self, accumulator: MessageAccumulator, model: ModelRef) -> Json:
        details = accumulator.stop_details
        typed = [prompt.uuid for prompt in self._prompts if not prompt.is_notification]
        is_own = self._conversation.parent_tool_use_id is None
        return {
            "original_model": model.display_name,
            "request_id": accumulator.request_id,
            "api_refusal_category": text_or_none(details.get("category")),
            "api_refusal_explanation": text_or_none(details.get("explanation")),
            "refused_user_message_uuid": typed[-1] if typed and is_own else None,
        }


def retract(conversation: Conversation, answer: str) -> list[str]:
    """Remove an answer from the end of the conversation. Returns its messages. Raises SessionError."""
    entries = conversation.journal.history.list_entries()
    first = len(entries)
    while first and entries[first - 1].role == "assistant" and entries[first - 1].id == answer:
        first -= 1
    uuids = [entry.uuid for entry in entries[first:]]
    if uuids and first:
        conversation.journal.append_event("cut", {"after": entries[first - 1].uuid})
    return uuids


def because(accumulator: MessageAccumulator) -> str:
    category = text_or_none(accumulator.stop_details.get("category"))
    return "" if category is None else f" ({category})"


def is_quoted(conversation: Conversation, call: TextCall) -> bool:
    """Whether the same call is in a prompt or in the result of a tool: the model repeats it, and does not make it."""
    from parley.engine.repair.arguments import NotRepairable, read_arguments

    try:
        values = [value for value in read_arguments(call.arguments)[0].values() if isinstance(value, str)]
    except NotRepairable:
        values = [call.arguments]
    parts = [squeeze(part) for part in (call.name, *values)]
    for entry in conversation.journal.history.list_entries():
        if entry.role == "user":
            text = squeeze("\n".join(iterate_texts(entry.content)))
            if any(mark in text.lower() for mark in CALL_MARKS) and all(part in text for part in parts):
                return True
    return False


def iterate_texts(blocks: Sequence[Json]) -> Iterator[str]:
    for block in blocks:
        inner = block.get("content")
        if isinstance(inner, list):
            yield from iterate_texts([part for part in inner if isinstance(part, dict)])
        yield from (text for text in (block.get("text"), inner) if isinstance(text, str))


def squeeze(text: str) -> str:
    """A text without spaces, backslashes and the numbers of lines, which a quotation may have or not."""
    return re.sub(r"(?m)^ *\d+[\t→]|[\s\\]+", "", text)


def text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None
