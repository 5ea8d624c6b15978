"""The interface for a program's own session store.

    SessionStore           the interface; only two methods are required
    InMemorySessionStore   an implementation in memory, for tests
    fold_session_summary   updates a summary that a store may keep, so that listing need not read all entries

A store receives a copy of every transcript line (mirror.py). A session can be resumed from it on another
machine (checkout.py).
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from parley.protocol.base import Json
from parley.sdk.types.shapes import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)
from parley.stores.search_text import first_prompt


class SessionStore(Protocol):
    """Only `append` and `load` are required. Leave out what your store does not support."""

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries. An entry whose `uuid` is already stored can be skipped."""

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """All entries in order; None for an unknown key."""

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project. Optional."""
        raise NotImplementedError

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """The summaries of all sessions of a project, so that listing need not read all entries. Optional."""
        raise NotImplementedError

    async def delete(self, key: SessionKey) -> None:
        """Delete a session, or with `subpath` one subagent of it. Optional."""
        raise NotImplementedError

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The `subpath` of every subagent of a session. Optional."""
        raise NotImplementedError


def has_method(store: Any, method: str) -> bool:
    """Whether a store implements an optional method."""
    found = getattr(type(store), method, None) or getattr(store, method, None)
    return found is not None and found is not getattr(SessionStore, method)


StoreKey = tuple[str, str, str]


def store_key(key: Any) -> StoreKey:
    return key["project_key"], key["session_id"], key.get("subpath") or ""


class InMemorySessionStore(SessionStore):
    """A `SessionStore` in memory, for tests."""

    def __init__(self) -> None:
        self._lines: dict[StoreKey, list[SessionStoreEntry]] = {}
        self._times: dict[StoreKey, int] = {}
        self._summaries: dict[StoreKey, SessionSummaryEntry] = {}

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        if not entries:
            return
        stored = store_key(key)
        lines = self._lines.setdefault(stored, [])
        known = {line["uuid"] for line in lines if line.get("uuid")}
        lines += [entry for entry in entries if entry.get("uuid") not in known]
        # Two appends within one millisecond must have different times.
        self._times[stored] = max(int(time.time() * 1000), self._times.get(stored, 0) + 1)
        if not stored[2]:
            summary = fold_session_summary(self._summaries.get(stored), key, entries)
            self._summaries[stored] = {**summary, "mtime": self._times[stored]}

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        lines = self._lines.get(store_key(key))
        return None if lines is None else list(lines)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        return [
            {"session_id": session_id, "mtime": self._times[project, session_id, subpath]}
            for project, session_id, subpath in self._lines
            if project == project_key and not subpath
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        return [summary for stored, summary in self._summaries.items() if stored[0] == project_key]

    async def delete(self, key: SessionKey) -> None:
        project, session_id, subpath = store_key(key)
        for stored in list(self._lines):
            if stored[:2] == (project, session_id) and subpath in ("", stored[2]):
                self._lines.pop(stored)
                self._times.pop(stored)
                self._summaries.pop(stored, None)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        session = (key["project_key"], key["session_id"])
        return [stored[2] for stored in self._lines if stored[:2] == session and stored[2]]

    # For tests.

    def get_entries(self, key: SessionKey) -> list[SessionStoreEntry]:
        """All entries of a session; empty for an unknown key."""
        return list(self._lines.get(store_key(key), ()))

    @property
    def size(self) -> int:
        """Number of sessions."""
        return sum(1 for stored in self._lines if not stored[2])

    def clear(self) -> None:
        """Forget all sessions."""
        self._lines.clear()
        self._times.clear()
        self._summaries.clear()


LAST = {"customTitle": "custom_title", "aiTitle": "ai_title", "gitBranch": "git_branch"}
"""Keys whose last value is used, and their names in the summary."""


def fold_session_summary(
    prev: SessionSummaryEntry | None, key: SessionKey, entries: list[SessionStoreEntry]
) -> SessionSummaryEntry:
    """Update a session's summary with new entries. The store sets `mtime`."""
    data: Json = dict(prev["data"]) if prev is not None else {}
    for entry in entries:
        fold_entry(data, dict(entry))
    return {"session_id": key["session_id"], "mtime": prev["mtime"] if prev is not None else 0, "data": data}


def fold_entry(data: Json, entry: Json) -> None:
    if "is_sidechain" not in data:
        data["is_sidechain"] = entry.get("isSidechain") is True
    if isinstance(entry.get("timestamp"), str):
        data.setdefault("created_at", entry["timestamp"])
    if isinstance(entry.get("cwd"), str):
        data.setdefault("cwd", entry["cwd"])
    if "first_prompt" not in data and (prompt := first_prompt(str(entry.get("type")), entry)):
        data["first_prompt"] = prompt
    if entry.get("type") == "tag":
        data["tag"] = entry.get("tag") or None
    for name, summary_name in LAST.items():
        if isinstance(entry.get(name), str) and entry[name]:
            data[summary_name] = entry[name]
