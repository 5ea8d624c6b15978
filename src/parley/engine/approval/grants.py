"""Permissions that the client granted for the rest of a session. They are journalled and restored on resume.

    grant   {"updates": [...], "session_id", "cwd"}      the updates of a reply whose destination is the session
    mode    {"mode", "before", "session_id", "cwd"}      the new mode, and the mode before it

A grant belongs to one session in one working directory. In a fork, or in another directory, only updates that
restrict the session apply. Updates for settings files are stored in those files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parley.engine.session.identity import SessionIdentity
from parley.permissions.base import InvalidUpdate, Policy
from parley.protocol.base import Json
from parley.stores.base import Entry

SESSION_DESTINATIONS = ("session", "cliArg")
STRICT_MODES = frozenset({"default", "plan", "dontAsk"})
"""Modes that approve nothing in advance."""


class Grants:
    def __init__(self, identity: SessionIdentity, cwd: str) -> None:
        self._identity = identity
        self._cwd = cwd
        self._updates: list[list[Json]] = []
        self.mode: str | None = None
        """The journalled mode; None if none applies here."""
        self.previous_mode = "default"

    def apply(self, entry: Entry) -> None:
        """Fold one entry of the log."""
        match entry.kind:
            case "grant":
                updates = [update for update in entry.message["updates"] if is_session_update(update)]
                is_own = self._is_own(entry.message)
                self._updates.append([update for update in updates if is_own or restricts(update)])
            case "mode":
                self.mode = self._effective_mode(entry.message, entry.message["mode"])
                self.previous_mode = self._effective_mode(entry.message, entry.message["before"]) or "default"

    def restore(self, policy: Policy, warn: Callable[[str], None]) -> None:
        """Apply the grants of a resumed session."""
        for update in (update for updates in self._updates for update in updates):
            try:
                policy.update([update])  # one by one: an invalid update must not drop those that restrict the session
            except InvalidUpdate as exc:
                warn(f"a permission grant in the session's log is invalid and is ignored: {exc}")

    def updates_record(self, updates: Sequence[Json]) -> Json | None:
        """The updates to journal; None if none of them is for the session."""
        own = [update for update in updates if is_session_update(update)]
        return {"updates": own, **self._given_to} if own else None

    def mode_record(self, mode: str, before: str) -> Json:
        return {"mode": mode, "before": before, **self._given_to}

    def take_records(self) -> list[tuple[str, Json]]:
        """The kinds and records that give the next session the same permissions. What is folded is forgotten."""
        records: list[tuple[str, Json]] = [
            ("grant", {"updates": updates, **self._given_to}) for updates in self._updates if updates
        ]
        if self.mode is not None:
            records.append(("mode", self.mode_record(self.mode, self.previous_mode)))
        self._updates, self.mode = [], None
        return records

    @property
    def _given_to(self) -> Json:
        return {"session_id": self._identity.id, "cwd": self._cwd}

    def _effective_mode(self, record: Json, mode: str) -> str | None:
        return str(mode) if mode in STRICT_MODES or self._is_own(record) else None

    def _is_own(self, record: Json) -> bool:
        return all(record.get(key) == value for key, value in self._given_to.items())


def is_session_update(update: Json) -> bool:
    """Whether an update is journalled as a grant. The mode has its own records."""
    return update.get("destination", "session") in SESSION_DESTINATIONS and update.get("type") != "setMode"


def restricts(update: Json) -> bool:
    return update.get("type") == "addRules" and update.get("behavior") in ("deny", "ask")
