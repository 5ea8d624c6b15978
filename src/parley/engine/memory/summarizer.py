"""Distilling a conversation: compaction where there is a memory, so that nothing is dropped.

What is old becomes a summary of order 1; summaries that have become many become one of the next
order (summary_levels.py). All of them are kept where they can be searched, and what they cover is
looked through for knowledge first, or meanwhile: nobody waits for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.engine.context import summary
from parley.engine.context.compaction import KEPT_SHARE, keep_from
from parley.engine.context.compactor import Compactor, Condensed
from parley.engine.context.history import Said
from parley.engine.context.system_prompt import system_blocks
from parley.engine.memory.summary_levels import (
    ASK,
    ASK_AGAIN,
    WORDS_PER_TOKEN,
    blocks,
    covered,
    due,
    lead,
    merged,
    pieces,
    row_in,
    row_tokens,
    stretch_in,
    summary_tokens,
    tail_from,
    told,
)
from parley.engine.side.retry import is_about_length
from parley.errors import ModelError, SessionError
from parley.memory.base import Summary
from parley.models.base import ModelRequest
from parley.models.catalog import CHARS_PER_TOKEN, PUPPETS, Choice, resolve

if TYPE_CHECKING:
    from parley.engine.context.conversation import Conversation
    from parley.engine.memory.worker import Remembering

INSTRUCTIONS = "You write summaries for an agent that works for a person. Say only what you were given."
SHARE_OF_WINDOW = 0.5
"""How much of a window a piece fills: characters are a rough measure of tokens."""
SPARE_TOKENS = 1_000
"""What a model may write beyond what it was asked for, before it is cut off."""


class Distiller(Compactor):
    def __init__(self, conversation: Conversation, remembering: Remembering) -> None:
        super().__init__(conversation)
        self._remembering = remembering
        self._wish: str | None = None

    @property
    def _room(self) -> int:
        """Tokens for what was said, in short or as it was."""
        return max(0, self._threshold() - self._talk.tokens_around())

    def _keep_from(self, trigger: str) -> int | None:
        spoken = list(self._talk.record.history.spoken())
        if trigger == "manual":  # who asks for it wants as much as possible to be short
            at = keep_from(spoken, int(self._threshold() * KEPT_SHARE))
        else:
            at = tail_from(spoken, self._room)
        return None if at is None or not self._stretch(at) else at

    def _stretch(self, at: int) -> list[Said]:
        history = self._talk.record.history
        kept = frozenset(uuid for message in history.spoken()[at:] for uuid in message.uuids)
        return stretch_in(history.lines(), kept)

    async def _condensed(self, at: int, instructions: str | None) -> Condensed:
        self._remembering.begin()
        self._wish = instructions
        talk, new = self._talk, list[Summary]()
        row = row_in(talk.record.history.lines(), talk.setup.session_id)
        most_chars = int(self._window() * SHARE_OF_WINDOW) * CHARS_PER_TOKEN
        for piece in pieces(self._stretch(at), max(1, most_chars)):
            new.append(await self._of_messages(piece))
        row += new
        while (place := due(row, row_tokens(self._room))) is not None:
            made = await self._of_summaries(row[place])
            row[place] = [made]
            new.append(made)
        await self._keep(new)
        request, date = self._reminders(at)
        behind = [f"{summary.REQUEST}\n{summary.shortened(request, self._most_chars)}"] if request else []
        texts = (lead(talk.tool_names()), *blocks(row), *behind, *([date] if date else []))
        return Condensed(said="\n\n".join(blocks(row)), texts=texts, more={"distilled": covered(row)})

    async def _keep(self, summaries: list[Summary]) -> None:
        """They are in the log as well: a memory that cannot be written must not end the turn."""
        try:
            await self._remembering.keeper.keep(summaries)
        except SessionError as flaw:
            self._talk.setup.complain(str(flaw))

    # The summaries.

    async def _of_messages(self, lines: list[Said]) -> Summary:
        """Raises ModelError, BudgetSpent."""
        text = await self._written(ASK, "\n\n".join(map(told, lines)))
        session_id = self._talk.setup.session_id
        return Summary(session=session_id, order=1, first=lines[0].seq, last=lines[-1].seq, text=text)

    async def _of_summaries(self, summaries: list[Summary]) -> Summary:
        """Raises ModelError, BudgetSpent."""
        return merged(summaries, await self._written(ASK_AGAIN, "\n\n".join(blocks(summaries))))

    async def _written(self, asked: str, material: str) -> str:
        """A summary of it, no longer than may be; what can be had without a model where none can take it."""
        words = asked.format(words=int(summary_tokens(self._room) * WORDS_PER_TOKEN))
        wish = f"\n\n[The person says of this summary: {self._wish}]" if self._wish else ""
        try:
            said = await self._insist(self._asking(f"{words}{wish}\n\n{material}"), self._choice)
        except ModelError as flaw:
            if not is_about_length(flaw):
                raise
            said = material
        return summary.shortened(summary.TAGS.sub("", said).strip(), self._most_chars)

    def _asking(self, text: str) -> ModelRequest:
        choice, known = self._choice, self._talk.setup.facts_of(self._choice)
        return ModelRequest(
            model=choice.name if choice.adapter == "anthropic" else choice.shown,
            system=system_blocks(INSTRUCTIONS),
            messages=[{"role": "user", "content": [{"type": "text", "text": text}]}],
            max_tokens=min(summary_tokens(self._room) + SPARE_TOKENS, known.max_output_tokens),
            session_id=self._talk.setup.session_id,
        )

    @property
    def _choice(self) -> Choice:
        named = self._remembering.keeper.policy.summary_model
        return self._talk.model if named is None else resolve(named)

    def _window(self) -> int:
        choice = self._choice
        is_own = choice == self._talk.model or choice.adapter in PUPPETS
        return self._talk.window if is_own else self._talk.setup.facts_of(choice).context_window

    @property
    def _most_chars(self) -> int:
        return summary_tokens(self._room) * CHARS_PER_TOKEN
