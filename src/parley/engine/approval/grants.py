"""What a host granted for the rest of a session: on record, and in force again when the session is resumed.

    grant   {"updates": [...], "session_id", "cwd"}      the updates of an answer that are meant for the session
    mode    {"mode", "before", "session_id", "cwd"}      the mode it went into, and the one it came from

A grant was given to one session in one working directory and never comes to mean more: in a
fork, or in another directory, only what restricts the session still counts. Updates for
settings files are in those files, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from parley.errors import SessionError
from parley.permissions.base import InvalidUpdate, Policy
from parley.protocol.base import Json
from parley.protocol.messages.system import Status
from parley.stores.base import Entry

if TYPE_CHECKING:
    from parley.engine.session.session import Session

SESSION_DESTINATIONS = ("session", "cliArg")
STRICT_MODES = frozenset({"default", "plan", "dontAsk"})
"""Modes that approve nothing in advance."""


class Grants:
    def __init__(self, session_id: str, cwd: str) -> None:
        self._given_to: Json = {"session_id": session_id, "cwd": cwd}
        self._updates: list[list[Json]] = []
        self.mode: str | None = None
        """The mode on record; None if there is none that counts here."""
        self.previous_mode = "default"

    def apply(self, entry: Entry) -> None:
        """Fold one entry of the log."""
        match entry.kind:
            case "grant":
                updates = [update for update in entry.message["updates"] if is_session_update(update)]
                ours = self._is_own(entry.message)
                self._updates.append([update for update in updates if ours or restricts(update)])
            case "mode":
                self.mode = self._effective_mode(entry.message, entry.message["mode"])
                self.previous_mode = self._effective_mode(entry.message, entry.message["before"]) or "default"

    def restore(self, policy: Policy, warn: Callable[[str], None]) -> None:
        """Give back what was granted before the session was resumed."""
        for update in (update for updates in self._updates for update in updates):
            try:
                policy.update([update])  # one that is wrong must not cost those that restrict the session
            except InvalidUpdate as exc:
                warn(f"a grant on record cannot be read and does not count: {exc}")

    def updates_record(self, updates: Sequence[Json]) -> Json | None:
        """What to keep of a host's updates; None if none of them is the session's own."""
        kept = [update for update in updates if is_session_update(update)]
        return {"updates": kept, **self._given_to} if kept else None

    def mode_record(self, mode: str, before: str) -> Json:
        return {"mode": mode, "before": before, **self._given_to}

    def _effective_mode(self, record: Json, mode: str) -> str | None:
        return str(mode) if mode in STRICT_MODES or self._is_own(record) else None

    def _is_own(self, record: Json) -> bool:
        return all(record.get(key) == value for key, value in self._given_to.items())


class SessionMode:
    """The permission mode of a session: the one it is in, and the one it goes back to from plan mode."""

    def __init__(self, session: Session) -> None:
        self._session = session
        config, grants = session.config, session.journal.grants
        self.current = config.permissions.mode
        self._previous = "default"
        # What a session was in before it was resumed counts again, unless the command line says something else.
        if grants.mode is not None and not config.permissions.mode_is_explicit:
            closed = () if config.permissions.may_bypass else ("bypassPermissions",)
            self.current = config.permissions.mode if grants.mode in closed else grants.mode
            self._previous = "default" if grants.previous_mode in closed else grants.previous_mode

    def change(self, mode: str | None) -> None:
        """Go into a mode and tell it; None leaves plan mode for the mode before it."""
        if mode is None:
            mode = self._previous if self.current == "plan" else self.current
            if mode == "bypassPermissions" and not self._session.may_bypass():
                mode = "default"
        if mode != self.current:
            self._previous, self.current = self.current, mode
            if not self._session.journal.is_empty:
                self.append()
            self._session.send(Status(status=None, permissionMode=mode))

    def append(self) -> None:
        """So that a resume finds the mode. It waits for the first turn: a session without one leaves no log."""
        session, grants = self._session, self._session.journal.grants
        if self.current != (grants.mode or session.config.permissions.mode):
            try:
                session.journal.append_event("mode", grants.mode_record(self.current, self._previous))
            except SessionError as exc:
                session.config.warn(str(exc))


def is_session_update(update: Json) -> bool:
    """The mode has records of its own."""
    return update.get("destination", "session") in SESSION_DESTINATIONS and update.get("type") != "setMode"


def restricts(update: Json) -> bool:
    return update.get("type") == "addRules" and update.get("behavior") in ("deny", "ask")
