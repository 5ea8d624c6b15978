"""Compacting a conversation: hooks are asked, a summary is had, the boundary is recorded and told.

    compactor = Compactor(conversation)
    done = await compactor.compact("auto")      # a Compacted, or None where there was too little to compact
    compactor.record(done)

A summary is had from the conversation's own model, on a ladder (summary.py) that ends without
one: a conversation that is too long never ends dead. Only a backend that does not answer at all
makes a compaction fail; then nothing has changed.

Not here: when it is time, and what is kept (compaction.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from parley.engine.context import summary
from parley.engine.context.compaction import KEPT_SHARE, MOST_FAILURES, keep_from, threshold
from parley.engine.context.history import marked, tokens, weight, words_in
from parley.engine.context.system_prompt import DATE
from parley.engine.side.retry import insist, is_about_length, is_about_request
from parley.engine.turn import outcome
from parley.engine.turn.heartbeat import Pulse
from parley.errors import BudgetSpent, ModelError
from parley.hooks.base import context_text
from parley.models.base import ModelRequest
from parley.models.catalog import Choice
from parley.protocol.base import UNSET, Json, Message, Struct
from parley.protocol.blocks import Text
from parley.protocol.messages.conversation import User, UserContent
from parley.protocol.messages.system import CompactBoundary, Status

if TYPE_CHECKING:
    from parley.engine.context.conversation import Conversation
    from parley.engine.hooks.dispatcher import Hooking

TOO_FEW = "too_few_groups"
SHARES_OF_PIECE = (0.5, 0.125)
"""How much of the window a piece fills, and where that is too much: characters are a rough measure of tokens."""
SUMMARY_SHARE = 0.5
"""How much of the threshold a summary may have, however much the model has written."""
CUT_SHARE = 0.25


class Compacted(Struct, frozen=True, kw_only=True):
    """What a compaction came to."""

    trigger: str
    texts: tuple[str, ...]
    """What the model reads in the place of what was said."""
    kept: list[str]
    """The lines that stay as they are."""
    pre_tokens: int
    duration_ms: int
    contexts: tuple[str, ...] = ()
    """What hooks have to say to the model behind it."""
    more: Json = {}
    """What the boundary says beside."""


class Condensed(Struct, frozen=True, kw_only=True):
    """What was said, in short."""

    said: str
    """As hooks are told it."""
    texts: tuple[str, ...]
    more: Json = {}


def compactor_for(conversation: Conversation) -> Compactor:
    """Who makes room in a conversation: where there is a memory, nothing is dropped for it."""
    if conversation.remembering is None:
        return Compactor(conversation)
    from parley.engine.memory.summarizer import Distiller

    return Distiller(conversation, conversation.remembering)


class Blocked(Exception):
    """A hook does not want it."""


class Compactor:
    def __init__(self, conversation: Conversation) -> None:
        self._talk = conversation
        self._is_own = conversation.parent_tool_use_id is None
        """Whether it is the session's own conversation, of which the host is told."""

    async def make_room(self, another_model: Callable[[ModelError], bool]) -> bool:
        """Compact because the next call would not fit; whether anything changed. Raises ModelError, BudgetSpent.

        A failure is told, and the call is made all the same; two in a row are an error. `another_model` says
        whether one stands in from now on for the one that failed.
        """
        gauge = self._talk.gauge
        if self._keep_from("auto") is None:
            return False  # nobody asked for it, so nobody needs to hear that there is too little to compact
        try:
            done = await self.compact("auto")
        except ModelError as flaw:
            if another_model(flaw):
                return await self.make_room(another_model)
            gauge.failures += 1
            if gauge.failures >= MOST_FAILURES:
                text = f"The conversation is too long, and compacting it failed {gauge.failures} times: {flaw}"
                gauge.failures = 0  # the next turn may try its luck again: it is a limit, and no wall
                raise ModelError(text, kind="compaction_failed") from None
            return False
        if done is not None:
            self.record(done)
        return done is not None

    async def compact(self, trigger: str, instructions: str | None = None) -> Compacted | None:
        """None if there is too little to compact, or a hook does not want it. Raises ModelError, BudgetSpent."""
        self._tell(Status(status="compacting", compact_output_chars=0 if trigger == "auto" else UNSET))
        try:
            with Pulse(lambda: self._tell(Status(status="compacting")), self._talk.limits.heartbeat_seconds):
                done = await self._compact(trigger, instructions)
        except asyncio.CancelledError:
            self._tell_end("interrupted")
            raise
        except Blocked as why:
            self._tell_end(str(why))
            return None
        except (ModelError, BudgetSpent) as flaw:
            self._tell_end(str(flaw))
            raise
        self._tell_end(TOO_FEW if done is None else None)
        return done

    def _keep_from(self, trigger: str) -> int | None:
        """Where what is kept begins; None if there is too little before it."""
        return keep_from(list(self._talk.record.history.spoken()), int(self._threshold() * KEPT_SHARE))

    async def _compact(self, trigger: str, instructions: str | None) -> Compacted | None:
        talk = self._talk
        begun, spoken, pre_tokens = talk.stamp.monotonic(), list(talk.record.history.spoken()), talk.context_tokens()
        at = self._keep_from(trigger)
        live = talk.listeners.live if self._is_own else None
        if live is not None and (at is not None or trigger == "manual"):
            verdict = await live.fire("PreCompact", {"trigger": trigger, "custom_instructions": instructions})
            why = verdict.blocked if verdict.blocked is not None else verdict.stopped
            if why is not None:
                raise Blocked(f"blocked by a hook: {why}")
        if at is None:
            return None
        made = await self._condensed(at, instructions)
        contexts = await self._tell_hooks(live, trigger, made.said) if live is not None else ()
        return Compacted(
            trigger=trigger,
            texts=made.texts,
            kept=[uuid for message in spoken[at:] for uuid in message.uuids],
            pre_tokens=pre_tokens,
            duration_ms=round((talk.stamp.monotonic() - begun) * 1000),
            contexts=contexts,
            more=made.more,
        )

    async def _condensed(self, at: int, instructions: str | None) -> Condensed:
        """What stands for the messages before a place. Raises ModelError, BudgetSpent."""
        history = self._talk.record.history
        said = await self._summary(history.messages(at), summary.instruction(instructions))
        return Condensed(said=said, texts=(summary.told(said, *self._reminders(at)),))

    def _reminders(self, at: int) -> tuple[str, str]:
        """The last request, if it is not among what is kept, and the date."""
        history, date = self._talk.record.history, self._talk.record.told_date
        spoken, asked = history.spoken(), history.asked
        is_due = (
            asked is not None
            and spoken[-1].role == "user"
            and all(asked.uuid not in part.uuids for part in spoken[at:])
        )
        return words_in(asked.content) if asked is not None and is_due else "", f"[{DATE}{date}]" if date else ""

    async def _tell_hooks(self, live: Hooking, trigger: str, said: str) -> tuple[str, ...]:
        """The session begins anew, as it were. What the hooks want the model to know."""
        started = await live.fire("SessionStart", {"source": "compact", "model": self._talk.model.shown})
        await live.fire("PostCompact", {"trigger": trigger, "compact_summary": said})
        return tuple(context_text("SessionStart:compact", text) for text in started.contexts)

    # The summary.

    async def _summary(self, messages: list[Json], words: str) -> str:
        """From the first step of the ladder that bears. Raises ModelError if the model does not answer at all."""
        flaw: ModelError | None = None
        for step in (self._of_all, self._without_bodies, self._in_pieces):
            try:
                said = await step(messages, words)
            except ModelError as refused:
                flaw = refused
                if not is_about_request(flaw):
                    raise
            else:
                return summary.within(said, int(self._threshold() * SUMMARY_SHARE))
        if flaw is not None and not is_about_length(flaw):
            raise flaw  # a backend that refuses plain texts as well is not to blame on what was said
        return summary.cut(messages, int(self._threshold() * CUT_SHARE))

    async def _of_all(self, messages: list[Json], words: str) -> str:
        return await self._ask(summary.asking(messages, words))

    async def _without_bodies(self, messages: list[Json], words: str) -> str:
        return await self._ask(summary.asking(summary.without_bodies(messages), words))

    async def _in_pieces(self, messages: list[Json], words: str) -> str:
        bare, (usual, small) = summary.without_bodies(messages), SHARES_OF_PIECE
        try:
            return await self._read_out(bare, words, usual)
        except ModelError as flaw:
            if not outcome.is_too_long(flaw):
                raise
            return await self._read_out(bare, words, small)

    async def _read_out(self, messages: list[Json], words: str, share: float) -> str:
        texts = summary.pieces(messages, int(self._talk.window * share))
        said = []
        for number, text in enumerate(texts, 1):
            head = summary.ASK_PIECE.format(number=number, count=len(texts))
            said.append(await self._ask(summary.asking([], f"{head}\n\n{text}\n\n{words}")))
        return summary.within("\n\n".join(said), int(self._threshold() * CUT_SHARE))

    async def _ask(self, messages: list[Json]) -> str:
        """Raises ModelError, BudgetSpent."""
        talk = self._talk
        around = talk.tokens_around()
        if around + sum(weight(block) for message in messages for block in message["content"]) > talk.window:
            raise ModelError("the conversation does not fit", kind="prompt_too_long")
        request = msgspec.structs.replace(talk.request(), messages=marked(messages), output_schema=None)
        return await self._insist(request, talk.model)

    async def _insist(self, request: ModelRequest, choice: Choice) -> str:
        """Raises ModelError, BudgetSpent."""
        return await insist(self._talk, request, choice, self._tell)

    # What is told and recorded.

    def record(self, done: Compacted) -> None:
        """The conversation is compacted from here on. Raises SessionError."""
        talk, history = self._talk, self._talk.record.history
        last = history.spoken()[-1].uuids[-1]
        anchor = talk.stamp.new_uuid()
        line = User(
            message=UserContent(content=[Text.of(text) for text in done.texts]),
            parent_tool_use_id=talk.parent_tool_use_id,
            timestamp=talk.stamp.now(),
            uuid=anchor,
            isSynthetic=True,
        )
        post_tokens = (
            talk.tokens_around() + sum(tokens(len(text)) for text in done.texts) + self._kept_tokens(done.kept)
        )
        dropped = history.dropped_tokens + max(0, done.pre_tokens - post_tokens)
        metadata: Json = {
            "trigger": done.trigger,
            "pre_tokens": done.pre_tokens,
            "post_tokens": post_tokens,
            "cumulative_dropped_tokens": dropped,
            "duration_ms": done.duration_ms,
            **done.more,
        }
        ends = {"head_uuid": done.kept[0], "anchor_uuid": anchor, "tail_uuid": done.kept[-1]} if done.kept else {}
        metadata["preserved_segment"] = ends or {"anchor_uuid": anchor}
        if done.kept:
            metadata["preserved_messages"] = {"anchor_uuid": anchor, "uuids": done.kept, "all_uuids": done.kept}
        boundary = talk.stamp.on(
            CompactBoundary(compact_metadata=metadata, logical_parent_uuid=last), talk.setup.session_id
        )
        told = talk.stamp.on(line, talk.setup.session_id)
        talk.record.keep(boundary)
        talk.record.keep(told, isCompactSummary=True, isVisibleInTranscriptOnly=True)
        talk.gauge.reset(history.tokens)
        if self._is_own:
            talk.ledger.last_usage = None
        self._tell(boundary)
        self._tell(told)
        talk.keep_contexts(list(done.contexts))

    def _kept_tokens(self, kept: list[str]) -> int:
        uuids = set(kept)
        spoken = self._talk.record.history.spoken()
        return sum(weight(block) for message in spoken if uuids & set(message.uuids) for block in message.content)

    def _threshold(self) -> int:
        talk = self._talk
        return threshold(talk.setup.compaction, talk.window, talk.answer_tokens)

    def _tell_end(self, error: str | None) -> None:
        result = "success" if error is None else "failed"
        self._tell(Status(status=None, compact_result=result, compact_error=error or UNSET))

    def _tell(self, message: Message) -> None:
        if self._is_own:
            self._talk.tell(message)
