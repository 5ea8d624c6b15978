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

from parley.cluster.base import ClusterError, ClusterRegistry, LogKey
from parley.cluster.subjects import encode_token, parse_session_tokens, row_key
from parley.cluster.takeovers import Work
from parley.gateway.hub import SERVER, SessionHub
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


decode_session = msgspec.json.Decoder(ClusterSession).decode


class Summaries:
    def __init__(self, registry: ClusterRegistry, host: str, life: str, shards: int, hub: SessionHub) -> None:
        self._registry = registry
        self._own_work = msgspec.json.encode(Work(life=life))
        self._host = host
        self._shards = shards
        self._hub = hub
        self._marked: set[LogKey] = set()
        """The sessions with a row about their work."""
        self._written: dict[LogKey, bytes] = {}
        self._locks: dict[LogKey, asyncio.Lock] = {}
        self._changed: set[LogKey] = set()

    async def mark_work(self, key: LogKey) -> None:
        """Before a commit: if the session has work, the registry says so when this returns. Raises ClusterError."""
        self._changed.add(key)
        if key in self._marked or not self._hub.has_work(key.session):
            return
        async with self._locks.setdefault(key, asyncio.Lock()):
            await self._registry.put(row_key("work", key, self._shards), self._own_work)
            self._marked.add(key)

    def keep_work(self, key: LogKey) -> None:
        """A session that is loaded has a row about its work, which stays as it is until the work is done."""
        self._marked.add(key)
        self._changed.add(key)

    async def hand_over(self, key: LogKey) -> None:
        """The session is unloaded in order: who continues its work does not take this host for dead."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key in self._marked:
                await self._registry.put(row_key("work", key, self._shards), b"")

    async def write_changed(self) -> None:
        """Write the rows of the sessions that had a commit. Raises ClusterError."""
        for key in list(self._changed):
            self._changed.discard(key)
            try:
                await self.write(key)
            except ClusterError:
                self._changed.add(key)
                raise

    async def write(self, key: LogKey) -> None:
        """Raises ClusterError."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            summary = self._describe(key)
            if summary is None:
                return
            if not summary.has_work and key in self._marked:
                self._marked.discard(key)  # from now on, a new prompt waits for this lock and writes the row again
                await self._registry.delete(row_key("work", key, self._shards))
            value = msgspec.json.encode(summary)
            if self._written.get(key) != value:
                self._written.pop(key, None)
                await self._registry.put(row_key("sessions", key, self._shards), value)
                self._written[key] = value

    def _describe(self, key: LogKey) -> ClusterSession | None:
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

    async def remove(self, key: LogKey) -> None:
        """Raises ClusterError."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            await self._registry.delete(row_key("sessions", key, self._shards))
            await self._registry.delete(row_key("work", key, self._shards))
        self.forget(key)

    def forget(self, key: LogKey) -> None:
        """The session is not loaded any more."""
        self._marked.discard(key)
        self._changed.discard(key)
        self._written.pop(key, None)
        self._locks.pop(key, None)

    async def list_keys(self, shard: int) -> set[LogKey]:
        """The sessions of a shard that lists show. Raises ClusterError."""
        return {parse_session_tokens(row.key) for row in await self._registry.rows(f"sessions.{shard}.>")}

    async def find_work(self, shard: int) -> list[LogKey]:
        """The sessions of a shard that may have something to do. Raises ClusterError."""
        found = [parse_session_tokens(row.key) for row in await self._registry.rows(f"work.{shard}.>")]
        self._marked |= set(found)
        self._changed |= set(found)
        return found


async def list_summaries(registry: ClusterRegistry, tenant: str | None = None) -> list[ClusterSession]:
    """What the registry says of the sessions of a tenant, or of all. Raises ClusterError."""
    found = []
    for row in await registry.rows(f"sessions.*.{'*' if tenant is None else encode_token(tenant)}.*"):
        with suppress(msgspec.MsgspecError):  # a newer version wrote it
            found.append(decode_session(row.value))
    return found
