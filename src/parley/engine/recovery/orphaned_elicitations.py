"""Elicitations of MCP servers that ended with an earlier engine.

    elicitation   {"request_id", "server", "message"}     journalled before the user is asked
    elicited      {"request_id"}                          journalled with the reply, or when none is needed

A server ends with its engine, so its question cannot be asked again. When the session is resumed, the client and the
model are informed once.
"""

from __future__ import annotations

from collections.abc import Callable

from parley.protocol.base import Json, Message
from parley.protocol.messages.system import Informational
from parley.stores.base import Entry

LOST = "The MCP server {server} asked: {message!r}. The engine and the server exited before the question was answered."


class ElicitationLog:
    """The open elicitations: a fold over the log."""

    def __init__(self) -> None:
        self._open: dict[str, Json] = {}

    def apply(self, entry: Entry) -> None:
        if entry.kind == "elicitation":
            self._open[entry.message["request_id"]] = entry.message
        elif entry.kind == "elicited":
            self._open.pop(entry.message["request_id"], None)

    def report(self, append_event: Callable[[str, Json], None], send: Callable[[Message], None]) -> list[str]:
        """Report the open ones to the client; the texts for the model. Raises SessionError."""
        news = []
        for request_id, asked in list(self._open.items()):
            words = LOST.format(server=asked["server"], message=asked["message"])
            append_event("elicited", {"request_id": request_id})
            send(Informational(content=words, level="warning", tag="question_lost"))
            news.append(words)
        return news
