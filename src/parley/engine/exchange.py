"""The model's part of a turn: ask, take the events of the answer, try again where that may help.

What a model says is told block by block while it streams. What was told cannot be taken
back.

Not here: what is asked (conversation.py), when it is worth another try (retry.py).
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from parley.engine import outcome, retry
from parley.engine.conversation import Conversation
from parley.engine.inbox import Prompt
from parley.errors import ModelError
from parley.models.base import Event
from parley.models.growth import Growing
from parley.protocol.base import UNSET, UnsetType
from parley.protocol.blocks import Block, ToolUse
from parley.protocol.messages.conversation import AssistantContent
from parley.protocol.messages.system import ApiRetry, Status


class Exchange:
    """The model calls of one turn."""

    def __init__(self, conversation: Conversation, prompts: list[Prompt]) -> None:
        self._conversation = conversation
        self._prompts = prompts
        """What is answered; the first line of the answer says so."""
        self.calls = 0
        self.first_token_at: float | None = None
        self.growing = Growing()
        """The answer that comes, or came last."""
        self._told_reply = False

    async def ask(self) -> Growing:
        """One model call, tried again where that may help. Raises ModelError."""
        talk = self._conversation
        self.calls += 1
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._try()
            except ModelError as flaw:
                # What was told cannot be taken back, so a broken answer is not asked for anew.
                told = bool(self.growing.blocks)
                delay = retry.delay_seconds(flaw, attempt, talk.limits.max_retries, talk.setup.dice())
                if told or delay is None:
                    raise
                talk.tell(
                    ApiRetry(
                        attempt=attempt,
                        max_retries=retry.most_retries(flaw, talk.limits.max_retries),
                        retry_delay_ms=round(delay * 1000),
                        error_status=flaw.status,
                        error=outcome.error_name(flaw),
                    )
                )
                await asyncio.sleep(delay)

    async def _try(self) -> Growing:
        talk, clock = self._conversation, self._conversation.stamp.monotonic
        if talk.partial:
            talk.tell(Status(status="requesting"))
        growing = self.growing = Growing()
        begun = clock()
        try:
            model = talk.current_model()
            async with aclosing(model.stream(talk.request())) as events:
                async for event in events:
                    self._take(event, growing, begun)
        finally:
            if growing.id:
                talk.ledger.count(talk.model.shown, growing.final_usage, clock() - begun)
        if not growing.finished:
            raise ModelError("the model's stream broke off", kind="connection_failed", retryable=True)
        return growing

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
        if talk.partial:
            talk.tell_event(event.raw, growing.id, ttft_ms)

    def _take_block(self, block: Block, growing: Growing) -> None:
        if isinstance(block, ToolUse):
            # What is told, asked about, run and remembered is one and the same input.
            block = growing.blocks[-1] = self._conversation.caller.prepared(block)
        self.tell_block(block)

    def _first_token(self, begun: float) -> int:
        """Note when the turn's first answer began; how many ms this one took to begin."""
        now = self._conversation.stamp.monotonic()
        if self.first_token_at is None:
            self.first_token_at = now
        return round((now - begun) * 1000)

    def tell_block(self, block: Block, *, aborted: bool = False) -> None:
        """Tell one block of the answer. Raises SessionError."""
        growing = self.growing
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
        named = [prompt.uuid for prompt in self._prompts if prompt.named]
        first, self._told_reply = named and not self._told_reply, True
        self._conversation.say_assistant(
            inner,
            request_id=growing.request_id or UNSET,
            aborted=True if aborted else UNSET,
            user_message_uuid=named[0] if first else UNSET,
            user_message_uuids=named if first else UNSET,
        )
