"""What others see of a session without loading it: rows in the registry.

    sessions.SHARD.TENANT.SESSION    what lists show, a moment old
    work.SHARD.TENANT.SESSION        the session has something to do (takeovers.py)

The second row is there before the first prompt is committed, so that a new owner of the shard finds the session. It may
stay longer than the work.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec

from parley.cluster.base import ClusterError, Registry, SessionKey
from parley.cluster.cluster_hub import ClusterHub
from parley.cluster.subjects import parse_session_tokens, session_tokens
from parley.cluster.takeovers import Work
from parley.gateway.hub import SERVER
from parley.gateway.index.session_list import SessionInfo
from parley.gateway.refusal import Refusal
from parley.protocol.base import Struct


class ClusterSession(Struct, frozen=True, kw_only=True):
    """A session, as the registry has it."""

    tenant: str
    creator: str
    host: str
    """The host that wrote this."""
    has_work: bool
    """Whether it may have unfinished prompts or open questions."""
    info: SessionInfo | None
    """What lists show; None before the first prompt is indexed."""
    stored_bytes: int = 0
    """How long its lines are."""


_decoder = msgspec.json.Decoder(ClusterSession)


class Summaries:
    def __init__(self, registry: Registry, host: str, life: str, shards: int, hub: ClusterHub) -> None:
        self._registry = registry
        self._own_work = msgspec.json.encode(Work(life=life))
        self._host = host
        self._shards = shards
        self._hub = hub
        self._marked: set[SessionKey] = set()
        """The sessions with a row about their work."""
        self._written: dict[SessionKey, bytes] = {}
        self._locks: dict[SessionKey, asyncio.Lock] = {}
        self._changed: set[SessionKey] = set()

    def row_key(self, key: SessionKey) -> str:
        return f"sessions.{session_tokens(key, self._shards)}"

    def _work_key(self, key: SessionKey) -> str:
        return f"work.{session_tokens(key, self._shards)}"

    async def mark_work(self, key: SessionKey) -> None:
        """Before a commit: if the session has work, the registry says so when this returns. Raises ClusterError."""
        self._changed.add(key)
        if key in self._marked or not self._hub.has_work(key.session):
            return
        async with self._locks.setdefault(key, asyncio.Lock()):
            await self._registry.put(self._work_key(key), self._own_work)
            self._marked.add(key)

    def keep_work(self, key: SessionKey) -> None:
        """A session that is loaded has a row about its work, which stays as it is until the work is done."""
        self._marked.add(key)
        self._changed.add(key)

    async def hand_over(self, key: SessionKey) -> None:
        """The session is unloaded in order: who continues its work does not take this host for dead."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key in self._marked:
                await self._registry.put(self._work_key(key), b"")

    async def write_changed(self) -> None:
        """Write the rows of the sessions that had a commit. Raises ClusterError."""
        for key in list(self._changed):
            self._changed.discard(key)
            try:
                await self.write(key)
            except ClusterError:
                self._changed.add(key)
                raise

    async def write(self, key: SessionKey) -> None:
        """Raises ClusterError."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            summary = self._describe(key)
            if summary is None:
                return
            if not summary.has_work and key in self._marked:
                self._marked.discard(key)  # from now on, a new prompt waits for this lock and writes the row again
                await self._registry.delete(self._work_key(key))
            value = msgspec.json.encode(summary)
            if self._written.get(key) != value:
                self._written.pop(key, None)
                await self._registry.put(self.row_key(key), value)
                self._written[key] = value

    def _describe(self, key: SessionKey) -> ClusterSession | None:
        row = self._hub.database.row("SELECT tenant, creator FROM sessions WHERE id=?", key.session)
        if row is None:
            return None
        info = None
        with suppress(Refusal):
            info = self._hub.describe(SERVER, key.session)
        return ClusterSession(
            tenant=row["tenant"],
            creator=row["creator"],
            host=self._host,
            has_work=self._hub.has_work(key.session),
            info=info,
            stored_bytes=self._hub.stored_bytes(key.session),
        )

    async def remove(self, key: SessionKey) -> None:
        """Raises ClusterError."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            await self._registry.delete(self.row_key(key))
            await self._registry.delete(self._work_key(key))
        self.forget(key)

    def forget(self, key: SessionKey) -> None:
        """The session is not loaded any more."""
        self._marked.discard(key)
        self._changed.discard(key)
        self._written.pop(key, None)
        self._locks.pop(key, None)

    async def list_keys(self, shard: int) -> set[SessionKey]:
        """The sessions of a shard that lists show. Raises ClusterError."""
        return {parse_session_tokens(row.key)[1] for row in await self._registry.rows(f"sessions.{shard}.>")}

    async def find_work(self, shard: int) -> list[SessionKey]:
        """The sessions of a shard that may have something to do. Raises ClusterError."""
        found = [parse_session_tokens(row.key)[1] for row in await self._registry.rows(f"work.{shard}.>")]
        self._marked |= set(found)
        self._changed |= set(found)
        return found


async def list_summaries(registry: Registry) -> list[ClusterSession]:
    """What the registry says of all sessions. Raises ClusterError."""
    found = []
    for row in await registry.rows("sessions.>"):
        with suppress(msgspec.MsgspecError):
            found.append(_decoder.decode(row.value))
    return found
