"""What the person might say next, for a client that offers it: `prompt_suggestion` behind the result of a turn.

The small model is asked beside the conversation (query.py). It is nobody's work: no turn waits for
it, a new prompt ends it, and whatever goes wrong with it is not told to the client.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING

from parley.engine.turn.outcome import Outcome
from parley.errors import ModelError
from parley.protocol.base import Json
from parley.protocol.messages.notices import PromptSuggestion

if TYPE_CHECKING:
    from parley.engine.session.session import Session

MOST_CHARS = 4_000
"""Of each side of the exchange."""
LONGEST = 200
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
    """Looks for what might be said next, one search at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._search: asyncio.Task[None] | None = None

    def look(self, ended: Outcome) -> None:
        """Behind the good end of a turn, and as long as somebody may say something."""
        inbox = self._session.inbox
        if ended.terminal_reason == "completed" and not len(inbox) and not inbox.is_closed:
            self._search = asyncio.create_task(suggest(self._session))
            self._search.add_done_callback(self._ended)

    def _ended(self, search: asyncio.Task[None]) -> None:
        """A fault of ours costs the suggestion, and is told."""
        if not search.cancelled() and (bug := search.exception()) is not None:
            self._session.setup.complain("".join(traceback.format_exception(bug)))

    def drop(self) -> None:
        """Somebody has said something, or nobody will."""
        if self._search is not None:
            self._search.cancel()

    async def over(self) -> None:
        """Wait for the end of the search."""
        if self._search is not None:
            await asyncio.wait({self._search})

    async def close(self) -> None:
        self.drop()
        await self.over()


async def suggest(session: Session) -> None:
    """Tell what might be said next, if something suggests itself."""
    ask = session.setup.tool_context.ask_small_model
    messages = session.record.history.messages()
    if ask is None or len(messages) < 2:
        return
    user, agent = (last_text(messages, role) for role in ("user", "assistant"))
    try:
        answer = await ask(QUESTION.format(nothing=NOTHING, user=user, agent=agent))
    except ModelError as flaw:
        session.setup.complain(f"no prompt can be suggested: {flaw}")
        return
    text = " ".join(answer.split()).strip("\"'")
    if text and text.rstrip(".").upper() != NOTHING and len(text) <= LONGEST:
        session.tell(PromptSuggestion(suggestion=text))


def last_text(messages: list[Json], role: str) -> str:
    """The last words of one side; their end says most."""
    texts = [
        block["text"]
        for message in messages
        if message["role"] == role
        for block in message["content"]
        if block.get("type") == "text"
    ]
    return texts[-1][-MOST_CHARS:] if texts else ""
