"""Suggest the next prompt: `prompt_suggestion` after the result of a turn, for clients that request it.

The small model is asked outside the conversation. No turn waits for it, a new prompt cancels it, and errors go to
stderr only.
"""

from __future__ import annotations

import asyncio
import traceback

from parley.engine.context.conversation import Conversation
from parley.engine.turn.outcome import TurnOutcome
from parley.errors import ModelError
from parley.protocol.base import Json
from parley.protocol.messages.notices import PromptSuggestion

MAX_CHARS = 4_000
"""Limit for each side of the exchange."""
MAX_SUGGESTION_CHARS = 200
NOTHING = "NONE"
QUESTION = """\
Below is the end of a conversation between a user and a coding agent. What will the user type next?
Answer with that message alone, in the user's words, in at most 12 words and without quotes. Answer {nothing} if
nothing suggests itself.

<user>
{user}
</user>
<agent>
{agent}
</agent>"""


class Suggester:
    """Looks for a suggestion, one at a time."""

    def __init__(self, conversation: Conversation) -> None:
        self._config = conversation.config
        self._side_query = conversation.parts.side_query
        self._outbox = conversation.parts.outbox
        self._journal = conversation.journal
        self._prompt_queue = conversation.parts.prompt_queue
        self._search: asyncio.Task[None] | None = None
        self._is_paused = False

    def pause(self, paused: bool) -> None:
        """Pause or resume: the client shows nothing, so no model need be asked."""
        self._is_paused = paused
        if paused:
            self.cancel()

    def start(self, outcome: TurnOutcome) -> None:
        """Start after a successful turn, if no prompt is waiting and more input can come."""
        queue = self._prompt_queue
        if self._is_paused:
            return
        if outcome.terminal_reason == "completed" and not len(queue) and not queue.is_closed:
            self._search = asyncio.create_task(self._suggest())
            self._search.add_done_callback(self._on_done)

    def _on_done(self, search: asyncio.Task[None]) -> None:
        """Report a bug on stderr; only the suggestion is lost."""
        if not search.cancelled() and (bug := search.exception()) is not None:
            self._config.warn("".join(traceback.format_exception(bug)))

    def cancel(self) -> None:
        """Cancel: a prompt came, or the input has ended."""
        if self._search is not None:
            self._search.cancel()

    async def wait(self) -> None:
        """Wait for the end of the search."""
        if self._search is not None:
            await asyncio.wait({self._search})

    async def close(self) -> None:
        self.cancel()
        await self.wait()

    async def _suggest(self) -> None:
        """Send a suggestion, if the model has one."""
        messages = self._journal.history.render()
        if len(messages) < 2:
            return
        user, agent = (last_text(messages, role) for role in ("user", "assistant"))
        try:
            answer = await self._side_query.ask_small(QUESTION.format(nothing=NOTHING, user=user, agent=agent))
        except ModelError as exc:
            self._config.warn(f"no prompt can be suggested: {exc}")
            return
        text = " ".join(answer.split()).strip("\"'")
        if text and text.rstrip(".").upper() != NOTHING and len(text) <= MAX_SUGGESTION_CHARS:
            self._outbox.send(PromptSuggestion(suggestion=text))


def last_text(messages: list[Json], role: str) -> str:
    """The end of the last text of one side."""
    texts = [
        block["text"]
        for message in messages
        if message["role"] == role
        for block in message["content"]
        if block.get("type") == "text"
    ]
    return texts[-1][-MAX_CHARS:] if texts else ""
