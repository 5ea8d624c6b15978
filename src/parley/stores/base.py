"""Where sessions are kept: an append-only, numbered log each. State is a fold over it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from parley.protocol.base import Json, Struct


class Entry(Struct, frozen=True, kw_only=True):
    """One record of a log.

    Kinds: `user` and `assistant` (the line that was or will be told, as JSON), `result`,
    `prompt` (the system prompt the session runs with). Readers skip kinds they do not know.
    """

    seq: int
    kind: str
    at: str
    """UTC, ISO 8601."""
    message: Json
    context: Json = {}
    """What a layout wants to know beside the message, e.g. the permission mode of a prompt."""


class Log(Protocol):
    """The log of one session, held by its one writer."""

    def append(self, entry: Entry) -> None:
        """Keep it. When this returns, the entry is with the operating system. Raises SessionError."""

    def entries(self) -> Iterator[Entry]:
        """All entries in their order."""

    def close(self) -> None:
        """Let go of the log."""


class Store(Protocol):
    """All sessions of one place."""

    def exists(self, session_id: str) -> bool: ...

    def create(self, session_id: str) -> Log:
        """A new, empty log. Nothing is written before the first entry."""

    def open(self, session_id: str) -> Log:
        """A log that is there already. Raises UnknownSession."""

    def newest(self) -> str | None:
        """The id of the session that was written last in this project."""

    def path(self, session_id: str) -> str:
        """Where hosts and hooks may find the transcript; "" if nowhere."""
