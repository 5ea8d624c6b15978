"""Questions of MCP servers that nobody can answer any more.

    elicitation   {"request_id", "server", "message"}     on record before the person is asked
    elicited      {"request_id"}                          when there is an answer, or none is wanted

A server that runs below an engine ends with it, and so does its question: to ask it again would give the
answer to nobody. When the session goes on, the host and the model hear of it, once.
"""

from __future__ import annotations

from collections.abc import Callable

from parley.protocol.base import Json, Message
from parley.protocol.messages.system import Informational
from parley.stores.base import Entry

LOST = (
    "The MCP server {server} had asked: {message!r}. "
    "The engine ended before there was an answer, and the server with it."
)


class QuestionBook:
    """What the log says of them: a fold over its entries."""

    def __init__(self) -> None:
        self._open: dict[str, Json] = {}

    def apply(self, entry: Entry) -> None:
        if entry.kind == "elicitation":
            self._open[entry.message["request_id"]] = entry.message
        elif entry.kind == "elicited":
            self._open.pop(entry.message["request_id"], None)

    def report(self, note: Callable[[str, Json], None], tell: Callable[[Message], None]) -> list[str]:
        """Tell of those that were left open; the words for the model. Raises SessionError."""
        news = []
        for request_id, asked in list(self._open.items()):
            words = LOST.format(server=asked["server"], message=asked["message"])
            note("elicited", {"request_id": request_id})
            tell(Informational(content=words, level="warning", tag="question_lost"))
            news.append(words)
        return news
