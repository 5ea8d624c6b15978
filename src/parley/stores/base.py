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
        """Keep it. When this returns, the entry is with the operating system.

        Raises SessionError, SessionBusy if somebody else took the session over.
        """

    def sync(self) -> None:
        """Wait until what was appended is on the device. Raises SessionError."""

    def entries(self, after: int = -1) -> Iterator[Entry]:
        """The entries with a higher number, in their order. Raises SessionError, DamagedSession."""

    def close(self) -> None:
        """Let go of the log and of the session."""


class Store(Protocol):
    """All sessions of one place."""

    def exists(self, session_id: str) -> bool: ...

    def create(self, session_id: str) -> Log:
        """A new, empty log, held by us. Nothing is in it before the first entry. Raises SessionBusy."""

    def open(self, session_id: str, *, steal: bool = False) -> Log:
        """A log that is there already, held by us from now on. Raises UnknownSession, SessionBusy.

        `steal`: also from somebody who holds it, who then cannot write to it any more.
        """

    def read(self, session_id: str, after: int = -1) -> Iterator[Entry]:
        """The entries with a higher number, whoever writes. Raises UnknownSession, SessionError, DamagedSession."""

    def newest(self) -> str | None:
        """The id of the session that was written last in this project."""

    def path(self, session_id: str) -> str:
        """Where hosts and hooks may find the transcript; "" if nowhere."""
