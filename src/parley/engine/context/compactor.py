"""Compact a conversation: run hooks, get a summary, record and send the boundary.

    compactor = make_compactor(conversation)
    done = await compactor.compact("auto")      # a Compaction, or None if there is too little to compact
    compactor.append(done)

The conversation's own model writes the summary. The conversation can be larger than the window that must summarize it,
so there are fallbacks, which end without a model, so that a conversation that is too long can always continue:

    all messages > without the bodies of results > piece by piece, as text > shortened, without a model

A compaction fails only if the backend does not answer; then nothing has changed.

See also: `history.py` decides when and what is kept, `memory/summarizer.py` compacts with a long-term memory.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from parley.engine.context.history import (
    KEPT_SHARE,
    MAX_FAILURES,
    THOUGHTS,
    estimate_tokens,
    find_keep_start,
    join_texts,
    text_size,
    threshold,
    tokens_from_chars,
)
from parley.engine.context.system_prompt import DATE, as_note
from parley.engine.hooks.registry import SessionEvents
from parley.engine.session.outbox import StatusHeartbeat
from parley.engine.turn import outcome
from parley.engine.turn.retry import call_with_retry, is_about_length, is_about_request
from parley.errors import BudgetSpent, ModelError
from parley.models.base import ModelRequest
from parley.models.catalog import CHARS_PER_TOKEN, ModelRef
from parley.protocol.base import UNSET, Json, Message, Struct
from parley.protocol.blocks import Text
from parley.protocol.messages.conversation import User, UserContent
from parley.protocol.messages.occasional import CompactBoundary
from parley.protocol.messages.system import Informational, Status
from parley.tools.base import describe_work

if TYPE_CHECKING:
    from parley.engine.context.conversation import Conversation


SUMMARY_REQUEST = """\
[The conversation so far is about to be replaced by a summary of it, because the context window is filling up. Write \
that summary now, for yourself: nothing else is left to continue from. Call no tools. Say, as exactly as you can:

1. What the person asked for, in their own words where they matter, and how that changed.
2. What was done: files read, created and changed (with their paths), commands run, and what came of them.
3. What was found out and decided, and why; errors that came up and how they were overcome.
4. What is still open, and what you were about to do next.

Leave out pleasantries and whatever no longer matters.]"""
PIECE_REQUEST = (
    "[Here is part {number} of {count} of a conversation between a person and an agent that works for them.]"
)
SUMMARY_INTRO = (
    "This session continues from an earlier conversation, which was compacted to make room. What matters of it:"
)
LAST_REQUEST = "The last request of the person, word for word:"
BODY_CHARS = 300
"""What is left of the body of a result."""
MAX_REQUEST_CHARS = 8_000
TAGS = re.compile(r"</?summary>")


def instruction(instructions: str | None) -> str:
    return (
        f"{SUMMARY_REQUEST}\n\n[About this summary, the person says: {instructions}]"
        if instructions
        else SUMMARY_REQUEST
    )


def with_request(messages: list[Json], request: str) -> list[Json]:
    """Append a request of the user."""
    block = {"type": "text", "text": request}
    if messages and messages[-1]["role"] == "user":
        *before, last = messages
        return [*before, {**last, "content": [*last["content"], block]}]
    return [*messages, {"role": "user", "content": [block]}]


def strip_bodies(messages: list[Json]) -> list[Json]:
    """Cut results, and replace images and documents. Without thinking, which is bound to what stood before it."""
    return [
        {**message, "content": [strip_body(block) for block in message["content"] if block.get("type") not in THOUGHTS]}
        for message in messages
    ]


def strip_body(block: Json) -> Json:
    if block.get("type") == "tool_result":
        return {**block, "content": shorten_text(result_text(block), BODY_CHARS)}
    if block.get("type") in ("image", "document"):
        return {"type": "text", "text": f"[{block['type']} left out]"}
    return block


def split_text(messages: list[Json], max_tokens: int) -> list[str]:
    """The messages as texts of limited length."""
    text = to_text(messages)
    max_chars = max(1, int(max_tokens * CHARS_PER_TOKEN * len(text) / (text_size(text) or 1)))
    return [text[at : at + max_chars] for at in range(0, len(text), max_chars)]


def to_text(messages: list[Json]) -> str:
    return "\n\n".join(
        f"{message['role']}: {text}" for message in messages for text in map(block_text, message["content"]) if text
    )


def block_text(block: Json) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text") or "")
        case "tool_use":
            return f"[calls {block.get('name')} with {msgspec.json.encode(block.get('input')).decode()}]"
        case "tool_result":
            return f"[result: {result_text(block)}]"
        case "thinking" | "redacted_thinking":
            return ""
        case kind:
            return f"[{kind}]"


def result_text(block: Json) -> str:
    content = block.get("content")
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)


def shorten_text(text: str, max_chars: int) -> str:
    """Keep the beginning and the end of a long text."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[len(text) - half :]}"


def shorten_to_tokens(text: str, max_tokens: int) -> str:
    """Shorten a text to a number of tokens."""
    return shorten_text(text, int(max_tokens * CHARS_PER_TOKEN * len(text) / (text_size(text) or 1)))


def cut_to_tokens(messages: list[Json], max_tokens: int) -> str:
    """A replacement for a summary without a model: the beginning and the end."""
    return shorten_to_tokens(to_text(strip_bodies(messages)), max_tokens)


def format_summary(summary: str, request: str, date: str) -> str:
    """The summary as the model reads it."""
    parts = [SUMMARY_INTRO, TAGS.sub("", summary).strip()]
    if request:
        parts.append(f"{LAST_REQUEST}\n{shorten_text(request, MAX_REQUEST_CHARS)}")
    return "\n\n".join([*parts, *([date] if date else [])])


TOO_FEW_GROUPS = "too_few_groups"
SHARES_OF_PIECE = (0.5, 0.125)
"""How much of the window a piece fills, and how much if that is too long. Characters are a rough measure."""
SUMMARY_SHARE = 0.5
"""The longest summary, as a share of the threshold."""
CUT_SHARE = 0.25


class Compaction(Struct, frozen=True, kw_only=True):
    """The result of a compaction."""

    trigger: str
    texts: tuple[str, ...]
    """The texts that replace the messages."""
    kept: list[str]
    """The uuids of the lines that stay."""
    pre_tokens: int
    duration_ms: int
    contexts: tuple[str, ...] = ()
    """Context from hooks, appended after it."""
    more: Json = {}
    """More fields for the boundary."""


class Summarized(Struct, frozen=True, kw_only=True):
    """A summary."""

    text: str
    """The text for hooks."""
    texts: tuple[str, ...]
    more: Json = {}


def make_compactor(conversation: Conversation) -> Compactor:
    """The compactor of a conversation. With a long-term memory, nothing is dropped."""
    if conversation.memory_worker is None:
        return Compactor(conversation)
    compactor: Compactor = conversation.memory_worker.make_compactor(conversation)
    return compactor


class CompactionBlocked(Exception):
    """A hook blocks the compaction."""


class Compactor:
    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._is_own = conversation.parent_tool_use_id is None
        """It is the session's own conversation, so the client is notified."""

    async def compact_automatically(self, another_model: Callable[[ModelError], bool]) -> bool:
        """Compact before a call that would not fit. Returns whether anything changed. Raises ModelError, BudgetSpent.

        A failure is reported, and the call is made anyway; two consecutive failures raise. `another_model` switches
        to a fallback model and returns whether there is one.
        """
        gauge = self._conversation.gauge
        if self._remove_results():
            return True
        if self._find_keep_start("auto") is None:
            return False  # too little to compact; not worth a message
        try:
            done = await self.compact("auto")
        except ModelError as exc:
            if another_model(exc):
                return await self.compact_automatically(another_model)
            gauge.failures += 1
            if gauge.failures >= MAX_FAILURES:
                text = f"The conversation is too long, and compacting it failed {gauge.failures} times: {exc}"
                gauge.failures = 0  # the next turn can try again
                raise ModelError(text, kind="compaction_failed") from None
            return False
        if done is not None:
            self.append(done)
        return done is not None

    def _remove_results(self) -> bool:
        """Remove old tool results, if that makes enough room. Raises SessionError."""
        conversation = self._conversation
        calls = conversation.journal.history.find_removable(self._threshold())
        if calls:
            conversation.journal.append_event("results_removed", {"calls": calls})
            text = f"To make room, {len(calls)} old tool results were removed from what the model sees."
            self._send(Informational(content=text, level="info"))
        return bool(calls)

    async def compact(self, trigger: str, instructions: str | None = None) -> Compaction | None:
        """None if there is too little to compact or a hook blocks it. Raises ModelError, BudgetSpent."""
        self._send(Status(status="compacting", compact_output_chars=0 if trigger == "auto" else UNSET))
        try:
            with StatusHeartbeat(self._send, self._conversation.limits.heartbeat_seconds, "compacting"):
                done = await self._compact(trigger, instructions)
        except asyncio.CancelledError:
            self._send_end("interrupted")
            raise
        except CompactionBlocked as exc:
            self._send_end(str(exc))
            return None
        except (ModelError, BudgetSpent) as exc:
            self._send_end(str(exc))
            raise
        self._send_end(TOO_FEW_GROUPS if done is None else None)
        return done

    def _find_keep_start(self, trigger: str) -> int | None:
        """The index of the first message that is kept; None if too little comes before it."""
        return find_keep_start(
            list(self._conversation.journal.history.list_messages()), int(self._threshold() * KEPT_SHARE)
        )

    async def _compact(self, trigger: str, instructions: str | None) -> Compaction | None:
        conversation = self._conversation
        started_at, messages, pre_tokens = (
            conversation.clock.monotonic(),
            list(conversation.journal.history.list_messages()),
            conversation.context_tokens(),
        )
        at = self._find_keep_start(trigger)
        events = conversation.hooks.events if self._is_own else SessionEvents()
        if at is not None or trigger == "manual":
            why = await events.before_compaction(trigger, instructions)
            if why is not None:
                raise CompactionBlocked(f"blocked by a hook: {why}")
        if at is None:
            return None
        made = await self._summarize_before(at, instructions)
        contexts = await events.after_compaction(trigger, made.text)
        return Compaction(
            trigger=trigger,
            texts=made.texts,
            kept=[uuid for message in messages[at:] for uuid in message.uuids],
            pre_tokens=pre_tokens,
            duration_ms=round((conversation.clock.monotonic() - started_at) * 1000),
            contexts=tuple(contexts),
            more=made.more,
        )

    async def _summarize_before(self, at: int, instructions: str | None) -> Summarized:
        """Summarize the messages before an index. Raises ModelError, BudgetSpent."""
        text = await self._summarize(self._conversation.render_aside(at), instruction(instructions))
        return Summarized(text=text, texts=(format_summary(text, *self._reminders(at)),))

    def _reminders(self, at: int) -> tuple[str, str]:
        """The last request, unless it is kept anyway, and the date."""
        history, date = self._conversation.journal.history, self._conversation.journal.sent_date
        messages, asked = history.list_messages(), history.last_prompt
        is_due = (
            asked is not None
            and messages[-1].role == "user"
            and all(asked.uuid not in part.uuids for part in messages[at:])
        )
        return join_texts(asked.content) if asked is not None and is_due else "", f"[{DATE}{date}]" if date else ""

    # Summary.

    async def _summarize(self, messages: list[Json], request: str) -> str:
        """The result of the first fallback that works. Raises ModelError if the model does not answer."""
        error: ModelError | None = None
        for step in (self._summarize_all, self._summarize_without_bodies, self._summarize_pieces):
            try:
                text = await step(messages, request)
            except ModelError as exc:
                error = exc
                if not is_about_request(error):
                    raise
            else:
                return shorten_to_tokens(text, int(self._threshold() * SUMMARY_SHARE))
        if error is not None and not is_about_length(error):
            raise error  # a backend that rejects plain text too has another problem
        return cut_to_tokens(messages, int(self._threshold() * CUT_SHARE))

    async def _summarize_all(self, messages: list[Json], request: str) -> str:
        return await self._call_model(with_request(messages, request))

    async def _summarize_without_bodies(self, messages: list[Json], request: str) -> str:
        return await self._call_model(with_request(strip_bodies(messages), request))

    async def _summarize_pieces(self, messages: list[Json], request: str) -> str:
        bare, (usual, small) = strip_bodies(messages), SHARES_OF_PIECE
        try:
            return await self._summarize_as_text(bare, request, usual)
        except ModelError as exc:
            if not outcome.is_too_long(exc):
                raise
            return await self._summarize_as_text(bare, request, small)

    async def _summarize_as_text(self, messages: list[Json], request: str, share: float) -> str:
        texts = split_text(messages, int(self._conversation.window * share))
        summaries = []
        for number, text in enumerate(texts, 1):
            head = PIECE_REQUEST.format(number=number, count=len(texts))
            summaries.append(await self._call_model(with_request([], f"{head}\n\n{text}\n\n{request}")))
        return shorten_to_tokens("\n\n".join(summaries), int(self._threshold() * CUT_SHARE))

    async def _call_model(self, messages: list[Json]) -> str:
        """Raises ModelError, BudgetSpent."""
        conversation = self._conversation
        around = conversation.overhead_tokens()
        if (
            around + sum(estimate_tokens(block) for message in messages for block in message["content"])
            > conversation.window
        ):
            raise ModelError("the conversation does not fit into the model's context window", kind="prompt_too_long")
        request = conversation.build_side_request(messages)
        return await self._call_with_retry(request, conversation.model)

    async def _call_with_retry(self, request: ModelRequest, choice: ModelRef) -> str:
        """Raises ModelError, BudgetSpent."""
        return await call_with_retry(self._conversation, request, choice, self._send)

    # Messages.

    def append(self, done: Compaction) -> None:
        """Record and send the boundary and the summary. Raises SessionError."""
        conversation, history = self._conversation, self._conversation.journal.history
        last = history.list_messages()[-1].uuids[-1]
        anchor = conversation.clock.new_uuid()
        line = User(
            message=UserContent(content=[Text.of(text) for text in done.texts]),
            parent_tool_use_id=conversation.parent_tool_use_id,
            timestamp=conversation.clock.now(),
            uuid=anchor,
            isSynthetic=True,
        )
        post_tokens = (
            conversation.overhead_tokens()
            + sum(tokens_from_chars(len(text)) for text in done.texts)
            + self._kept_tokens(done.kept)
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
        boundary = conversation.clock.stamp_message(
            CompactBoundary(compact_metadata=metadata, logical_parent_uuid=last), conversation.config.identity.id
        )
        stamped = conversation.clock.stamp_message(line, conversation.config.identity.id)
        conversation.journal.append(boundary)
        conversation.journal.append(stamped, isCompactSummary=True, isVisibleInTranscriptOnly=True)
        conversation.gauge.reset(history.tokens)
        if self._is_own:
            conversation.ledger.last_usage = None
        self._send(boundary)
        self._send(stamped)
        conversation.append_contexts([*done.contexts, *conversation.excluded_facts(), *self._list_work()])

    def _list_work(self) -> list[str]:
        """The work list, which the summary may have left out."""
        text = describe_work(self._conversation.tool_context)
        return [as_note(text)] if text else []

    def _kept_tokens(self, kept: list[str]) -> int:
        uuids = set(kept)
        messages = self._conversation.journal.history.list_messages()
        return sum(
            estimate_tokens(block) for message in messages if uuids & set(message.uuids) for block in message.content
        )

    def _threshold(self) -> int:
        conversation = self._conversation
        return threshold(conversation.config.compaction, conversation.window, conversation.answer_tokens)

    def _send_end(self, error: str | None) -> None:
        result = "success" if error is None else "failed"
        self._send(Status(status=None, compact_result=result, compact_error=error or UNSET))

    def _send(self, message: Message) -> None:
        if self._is_own:
            self._conversation.send(message)
