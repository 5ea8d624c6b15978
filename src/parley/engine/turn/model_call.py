"""The model's part of a turn: ask, take the events of the answer, try again where that may help.

What a model says is told block by block while it streams, and what was told cannot be taken
back. So when a stream breaks, its finished blocks stay, and what had not finished is dropped:

    a call finished    it runs, and the model is asked again with its result
    a text finished    the model is asked to go on behind it
    nothing finished   the same is asked again

Not here: what is asked (context/conversation.py), when it is worth another try (retry.py).
"""

from __future__ import annotations

from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

import msgspec

from parley.engine.accounting.ledger import tokens_in
from parley.engine.context.conversation import Conversation
from parley.engine.session.prompt_queue import Prompt
from parley.engine.turn import outcome, retry
from parley.engine.turn.fallback import Fallback
from parley.engine.turn.heartbeat import Silence
from parley.engine.turn.retry import Trouble
from parley.errors import BudgetSpent, ModelError, SessionError
from parley.models.accumulator import Growing
from parley.models.base import Event
from parley.models.catalog import Choice
from parley.protocol.base import UNSET, Json, UnsetType
from parley.protocol.blocks import Block, Text, ToolUse
from parley.protocol.messages.system import ApiRetry, Informational, Status

if TYPE_CHECKING:
    from parley.engine.hooks.dispatcher import Hooking

GO_ON = (
    "[The connection broke and your answer was cut off here. What you have said so far has arrived. "
    "Go on from where it ends, without repeating any of it.]"
)
REFUSED = 400
MOST_REPAIRS = 3
"""Of one request: a backend that has always something else against it is not to be pleased."""
REPAIRED = "The backend refused the conversation ({flaw}); it is tried again without what is wrong in it"
PAUSED = "pause_turn"
"""The backend's own tools take long: it goes on when it gets its message back."""
MOST_PAUSES = 20


class Exchange:
    """The model calls of one turn."""

    def __init__(self, conversation: Conversation, prompts: list[Prompt]) -> None:
        self._conversation = conversation
        self._prompts = prompts
        """What is answered; the first line of the answer says so."""
        self.fallback = Fallback(conversation)
        self.calls = 0
        self.first_token_at: float | None = None
        self.growing = Growing()
        """The answer that comes, or came last."""
        self._told_reply = False
        self._first_tokens: int | None = None
        """What the turn's first request had in it."""
        self.context_tokens = 0
        """What was in the last one, with the answer to it."""
        self._trouble = Trouble()
        self._broken_ids: set[str] = set()
        self._texts: list[str] = []
        """What was said before the stream broke, in answers that the last one goes on with."""
        self._silence = Silence(conversation.tell, conversation.limits.heartbeat_seconds)
        self._turn_id = prompts[0].uuid if prompts else ""

    async def ask(self) -> Growing:
        """One model call, tried again where that may help; the answer may be cut behind a tool call.

        Raises ModelError or BudgetSpent.
        """
        talk = self._conversation
        if talk.is_crowded():
            talk.ledger.check_budget()  # whoever may not call has no use for room
            await self._make_room()
        with self._silence:
            return await self._ask()

    async def _make_room(self) -> bool:
        """Compact the conversation; whether that changed anything. Raises ModelError, BudgetSpent."""
        from parley.engine.context.compactor import compactor_for

        compactor = compactor_for(self._conversation)
        return await compactor.make_room(lambda flaw: self.fallback.takes_over(flaw, 0, is_last=True))

    async def _squeezed(self, flaw: ModelError) -> bool:
        """Whether a request that was too long, by the backend's count, has become a shorter one. Tried once."""
        talk = self._conversation
        may_compact = talk.setup.compaction.is_allowed and talk.auto_compact
        if not outcome.is_too_much(flaw) or self._trouble.has_squeezed or not may_compact:
            return False
        self._trouble.has_squeezed = True
        return await self._make_room()

    async def _ask(self) -> Growing:
        number = self.calls + 1
        while True:
            try:
                growing = await self._try(number)
            except ModelError as flaw:
                self._abandon()
                if await self._squeezed(flaw):
                    continue
                await self._recover(flaw)
                growing = self.growing
                if not growing.calls():
                    continue
            else:
                self._trouble = Trouble()
            if growing.calls():
                self._texts = []
            return growing

    async def ask_to_the_end(self) -> Growing:
        """One model call; where the backend pauses its own work, it is asked to go on. Raises ModelError."""
        growing = await self.ask()
        for _ in range(MOST_PAUSES):
            if growing.stop_reason != PAUSED or growing.calls():
                break
            self._texts += growing.texts()[-1:]
            growing = await self.ask()
        return growing

    def final_text(self) -> str:
        """What the model said last: what `result` repeats."""
        return "\n\n".join([*self._texts, *self.growing.texts()[-1:]])

    async def _try(self, number: int) -> Growing:
        """Raises ModelError or BudgetSpent."""
        talk = self._conversation
        self._check_task_budget()
        async with talk.ledger.call():
            self.calls = number
            if talk.partial:
                talk.tell(Status(status="requesting"))
            growing = self.growing = Growing()
            try:
                await self._read(growing)
            except ModelError as flaw:
                talk.tell_quota(flaw.quota)
                if not growing.complete:
                    raise
        if not growing.complete:
            raise ModelError("the model's stream broke off", kind="connection_failed", retryable=True)
        if not growing.finished:
            self._tell_own({"type": "message_stop"})
        talk.tell_quota(growing.quota)
        return growing

    async def _read(self, growing: Growing) -> None:
        """Take the whole answer, and book it, however it ends. Raises ModelError."""
        talk, clock = self._conversation, self._conversation.stamp.monotonic
        begun, choice = clock(), talk.model  # the host may choose another one while this one answers
        try:
            model = talk.open_model(choice)
            async with aclosing(model.stream(talk.request())) as events:
                async for event in events:
                    if event.type == "content_block_stop" and talk.listeners.live is not None:
                        await self._show(talk.listeners.live, growing)
                    self._take(event, growing, begun)
        finally:
            if growing.started:
                self._book(choice, growing.final_usage, clock() - begun)
            if growing.blocks:
                self._keep_figures(growing)

    def _keep_figures(self, growing: Growing) -> None:
        """Record how the answer ended, for those who read its blocks from the log."""
        with suppress(SessionError):  # a disk that fails also fails the next entry, and that ends the turn
            self._conversation.record.keep_usage(
                growing.id,
                usage=growing.final_usage,
                stop_reason=growing.stop_reason,
                stop_sequence=growing.stop_sequence,
            )

    def _book(self, choice: Choice, usage: Json, seconds: float) -> None:
        talk = self._conversation
        # What subagents use is on the session's bill, and no part of its own context.
        talk.ledger.count(choice.shown, usage, seconds, beside=talk.parent_tool_use_id is not None)
        self.context_tokens = tokens_in(usage)
        talk.gauge.measure(self.context_tokens, talk.own_estimate(), talk.record.history.media_tokens)
        if self._first_tokens is None:
            self._first_tokens = self.context_tokens - (usage.get("output_tokens") or 0)
        for words in talk.ledger.warnings():
            talk.tell(Informational(content=words, level="warning"))

    def _check_task_budget(self) -> None:
        """The work of a turn is what came to its first request since. Raises BudgetSpent."""
        most = self._conversation.limits.task_budget
        if most is not None and self._first_tokens is not None and self.context_tokens - self._first_tokens >= most:
            raise BudgetSpent("task", f"Reached the task budget ({most} tokens)")

    # A stream that broke.

    async def _recover(self, flaw: ModelError) -> None:
        """Wait before the next try, which goes on behind what was said. Raises the flaw if there shall be none."""
        talk, growing, trouble = self._conversation, self.growing, self._trouble
        lasts_seconds = trouble.note(talk.stamp.monotonic(), gets_on=bool(growing.blocks))
        most = talk.limits.max_retries
        delay = retry.delay_seconds(flaw, trouble.failures, most, talk.setup.dice(), lasts_seconds)
        if growing.blocks:
            self._broken_ids.add(growing.id)
        if flaw.status == REFUSED and trouble.repairs < MOST_REPAIRS and talk.record.history.repair(str(flaw)):
            trouble.repairs += 1
            talk.tell(Informational(content=REPAIRED.format(flaw=flaw), level="warning", tag="history_repaired"))
            trouble.begin_anew()
        elif self.fallback.takes_over(flaw, trouble.failures, is_last=delay is None):
            trouble.begin_anew()
        elif delay is None:
            raise flaw
        else:
            self._silence.looks = 0
            talk.tell(
                ApiRetry(
                    attempt=trouble.failures,
                    max_retries=retry.most_retries(flaw, most),
                    retry_delay_ms=round(delay * 1000),
                    error_status=flaw.status,
                    error=outcome.error_name(flaw),
                )
            )
            await talk.stamp.pause(delay)
        if not growing.calls() and (said := growing.texts()):
            self._texts += said[-1:]
            talk.say_user(Text.of(GO_ON), isSynthetic=True)

    def _abandon(self) -> None:
        """Close a broken stream for those who follow it."""
        growing = self.growing
        if growing.started:
            for index in growing.open_indexes():
                self._tell_own({"type": "content_block_stop", "index": index})
            lost = {"api_message_id": growing.id, "from_block_index": growing.first_lost()}
            self._tell_own({"type": "message_stop"}, lost)
        growing.drop_open()

    def _tell_own(self, event: Json, abandoned: Json | UnsetType = UNSET) -> None:
        """An event that the stream should have had."""
        if self._conversation.partial:
            self._conversation.tell_event(msgspec.json.encode(event), self.growing.id, abandoned_blocks=abandoned)

    # A stream that comes.

    def _take(self, event: Event, growing: Growing, begun: float) -> None:
        """One event. A finished block is told before the event that finishes it."""
        if event.type == "ping":
            return
        talk = self._conversation
        ttft_ms: int | UnsetType = UNSET
        block = growing.feed(event)
        if block is not None:
            self._take_block(block, growing)
        elif event.type == "message_start":
            ttft_ms = self._first_token(begun)
            if growing.id in self._broken_ids:
                # A server that repeats itself: what belongs to two answers must not become one.
                growing.id = f"msg_{talk.stamp.new_uuid()}"
        if talk.partial:
            self._silence.looks = 0
            talk.tell_event(event.raw, growing.id, ttft_ms)

    def _take_block(self, block: Block, growing: Growing) -> None:
        if isinstance(block, ToolUse):
            # What is told, asked about, run and remembered is one and the same input.
            block = growing.blocks[-1] = self._conversation.caller.prepared(block)
        self._silence.looks = 0
        self.tell_block(block)

    async def _show(self, live: Hooking, growing: Growing) -> None:
        """Hooks hear of a text before the host does. A subagent's is not shown to anybody."""
        if self._conversation.parent_tool_use_id is None and live.wants("MessageDisplay"):
            for block in growing.partial():
                if isinstance(block, Text):
                    await live.turns.show(self._turn_id, block.text)

    def _first_token(self, begun: float) -> int:
        """Note when the turn's first answer began; how many ms this one took to begin."""
        now = self._conversation.stamp.monotonic()
        if self.first_token_at is None:
            self.first_token_at = now
        return round((now - begun) * 1000)

    def tell_block(self, block: Block, *, aborted: bool = False) -> None:
        """Tell one block of the answer. Raises SessionError."""
        named = [prompt.uuid for prompt in self._prompts if prompt.named]
        first, self._told_reply = named and not self._told_reply, True
        self._conversation.say_assistant(
            self.growing.message(block),
            request_id=self.growing.request_id or UNSET,
            aborted=True if aborted else UNSET,
            user_message_uuid=named[0] if first else UNSET,
            user_message_uuids=named if first else UNSET,
            tool_use_meta=self._conversation.caller.call_meta(block) or UNSET,
        )
