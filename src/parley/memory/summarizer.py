"""Compaction with a long-term memory, so that nothing is dropped.

Old messages become a summary of order 1; several summaries of one order become one of the next
(summary_levels.py). All summaries are stored where they can be searched, and a consolidation of what they
cover starts in the background.
"""

from __future__ import annotations

from collections.abc import Callable

from parley.engine.context import summary
from parley.engine.context.compactor import Compactor, Summarized
from parley.engine.context.conversation import Conversation
from parley.engine.context.history import KEPT_SHARE, HistoryEntry, find_keep_start
from parley.engine.context.system_prompt import system_blocks
from parley.engine.side.retry import is_about_length
from parley.errors import ModelError, SessionError
from parley.memory.base import SessionMemory, Summary
from parley.memory.summary_levels import (
    ENTRIES_REQUEST,
    SUMMARIES_REQUEST,
    WORDS_PER_TOKEN,
    find_due,
    find_summaries,
    find_tail_start,
    find_unsummarized,
    format_entry,
    format_summaries,
    intro,
    merge_summaries,
    row_tokens,
    split_entries,
    summary_records,
    summary_tokens,
)
from parley.models.base import ModelRequest
from parley.models.catalog import CHARS_PER_TOKEN, ModelRef

INSTRUCTIONS = "You write summaries for an agent that works for a person. Say only what you were given."
SHARE_OF_WINDOW = 0.5
"""How much of a window a piece fills. Characters are a rough measure of tokens."""
SPARE_TOKENS = 1_000
"""Output tokens beyond the requested length."""


class Summarizer(Compactor):
    def __init__(
        self, conversation: Conversation, memory: SessionMemory, start_consolidation: Callable[[], None]
    ) -> None:
        super().__init__(conversation)
        self._memory = memory
        self._start_consolidation = start_consolidation
        self._focus: str | None = None

    @property
    def _room(self) -> int:
        """Tokens for summaries and messages."""
        return max(0, self._threshold() - self._conversation.overhead_tokens())

    def _find_keep_start(self, trigger: str) -> int | None:
        messages = list(self._conversation.journal.history.list_messages())
        if trigger == "manual":  # the user wants as much as possible to be summarized
            at = find_keep_start(messages, int(self._threshold() * KEPT_SHARE))
        else:
            at = find_tail_start(messages, self._room)
        return None if at is None or not self._unsummarized(at) else at

    def _unsummarized(self, at: int) -> list[HistoryEntry]:
        history = self._conversation.journal.history
        kept = frozenset(uuid for message in history.list_messages()[at:] for uuid in message.uuids)
        return find_unsummarized(history.list_entries(), kept)

    async def _summarize_before(self, at: int, instructions: str | None) -> Summarized:
        self._start_consolidation()
        self._focus = instructions
        conversation, new = self._conversation, list[Summary]()
        row = find_summaries(conversation.journal.history.list_entries(), conversation.config.identity.id)
        max_chars = int(self._window() * SHARE_OF_WINDOW) * CHARS_PER_TOKEN
        for piece in split_entries(self._unsummarized(at), max(1, max_chars)):
            new.append(await self._summarize_entries(piece))
        row += new
        while (place := find_due(row, row_tokens(self._room))) is not None:
            made = await self._merge_summaries(row[place])
            row[place] = [made]
            new.append(made)
        await self._store(new)
        request, date = self._reminders(at)
        last_request = [f"{summary.LAST_REQUEST}\n{summary.shorten_text(request, self._max_chars)}"] if request else []
        texts = (intro(conversation.tool_names()), *format_summaries(row), *last_request, *([date] if date else []))
        return Summarized(
            text="\n\n".join(format_summaries(row)), texts=texts, more={"distilled": summary_records(row)}
        )

    async def _store(self, summaries: list[Summary]) -> None:
        """Store summaries. They are in the log too, so an error must not fail the turn."""
        try:
            await self._memory.store(summaries)
        except SessionError as exc:
            self._conversation.config.warn(str(exc))

    async def _summarize_entries(self, lines: list[HistoryEntry]) -> Summary:
        """Raises ModelError, BudgetSpent."""
        text = await self._write_summary(ENTRIES_REQUEST, "\n\n".join(map(format_entry, lines)))
        session_id = self._conversation.config.identity.id
        return Summary(session=session_id, order=1, first=lines[0].seq, last=lines[-1].seq, text=text)

    async def _merge_summaries(self, summaries: list[Summary]) -> Summary:
        """Raises ModelError, BudgetSpent."""
        return merge_summaries(
            summaries, await self._write_summary(SUMMARIES_REQUEST, "\n\n".join(format_summaries(summaries)))
        )

    async def _write_summary(self, asked: str, material: str) -> str:
        """A summary of limited length. If no model can take the text, its beginning is used."""
        words = asked.format(words=int(summary_tokens(self._room) * WORDS_PER_TOKEN))
        focus = f"\n\n[The person says of this summary: {self._focus}]" if self._focus else ""
        try:
            text = await self._call_with_retry(self._build_request(f"{words}{focus}\n\n{material}"), self._model)
        except ModelError as exc:
            if not is_about_length(exc):
                raise
            text = material
        return summary.shorten_text(summary.TAGS.sub("", text).strip(), self._max_chars)

    def _build_request(self, text: str) -> ModelRequest:
        choice, known = self._model, self._conversation.config.model.get_info(self._model)
        return ModelRequest(
            model=choice.request_name,
            system=system_blocks(INSTRUCTIONS),
            messages=[{"role": "user", "content": [{"type": "text", "text": text}]}],
            max_tokens=min(summary_tokens(self._room) + SPARE_TOKENS, known.max_output_tokens),
            session_id=self._conversation.config.identity.id,
        )

    @property
    def _model(self) -> ModelRef:
        named = self._memory.policy.summary_model
        return self._conversation.model if named is None else self._conversation.config.model.resolve(named)

    def _window(self) -> int:
        choice = self._model
        is_own = choice == self._conversation.model or choice.is_fake
        return self._conversation.window if is_own else self._conversation.config.model.get_info(choice).context_window

    @property
    def _max_chars(self) -> int:
        return summary_tokens(self._room) * CHARS_PER_TOKEN
