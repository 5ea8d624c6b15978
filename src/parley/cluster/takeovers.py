"""Continues the work of hosts that died, until it is known that they died of it.

A session with something to do has a row `work.SHARD.TENANT.SESSION` in the registry. Who continues it after another
host has left it without a word writes that down there first:

    empty       the first host works on it, or the last one has given it up in order
    a Takeover  another host continues it. If the row still says so when the next one comes, that host died, too

Then the session may be what hosts die of. If it is the only one that the dead host had taken over, it is stopped: its
prompts are answered with an error, and it takes no other until an operator releases it. If there are several, each host
tries one of them at a time, and the one of which a host dies is stopped. A host that lives for a while, finishes the
prompt or gives the session up in order clears the row.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import msgspec

from parley.cluster.base import Cluster, ClusterError, Registry, Row, SessionKey
from parley.cluster.subjects import encode_token, parse_session_tokens, session_tokens
from parley.errors import UsageError
from parley.protocol.base import Struct

SURVIVED_SECONDS = 30.0
"""A host that lives so long with a session does not die of it."""
LOADING = ""
"""The prompt of a takeover while the session is being loaded."""


class HostsFailed(ClusterError):
    """Hosts died when they loaded a session. No other one tries."""


class Takeover(Struct, frozen=True, kw_only=True):
    host: str
    prompt: str = LOADING
    """The first one without a result."""
    is_alone: bool = False
    """Whether the host has tried no other session at the same time of which an earlier one may have died."""
    is_one_of_many: bool = False
    """Whether the host that died had taken over others, too."""


class _Trial(Struct):
    """A takeover of this host."""

    started_at: float
    prompt: str
    is_alone: bool
    revision: int = 0
    """Of the row."""


class Takeovers:
    def __init__(self, registry: Registry, host: str, shards: int) -> None:
        self._registry = registry
        self._host = host
        self._shards = shards
        self._trials: dict[SessionKey, _Trial] = {}
        self._survived: set[SessionKey] = set()
        """The sessions that this process has taken over and lost. It lives, so it did not die of them."""
        self.stopped: dict[str, str] = {}
        """The sessions that take no prompt, with the reason."""

    def work_key(self, key: SessionKey) -> str:
        return f"work.{session_tokens(key, self._shards)}"

    def _stopped_key(self, key: SessionKey) -> str:
        return f"stopped.{session_tokens(key, self._shards)}"

    async def begin(self, key: SessionKey) -> str | None:
        """Before a session is loaded: returns the prompt that it must not continue, if any.

        Raises HostsFailed if hosts died when they loaded it, ClusterError if it has to wait for its turn.
        """
        work, stopped = await asyncio.gather(
            self._registry.get(self.work_key(key)), self._registry.get(self._stopped_key(key))
        )
        before = None
        with suppress(msgspec.MsgspecError):  # empty, or of a newer version
            before = None if work is None else msgspec.json.decode(work.value, type=Takeover)
        if before is not None and before.host == self._host and key in self._survived:
            before = None
        if stopped is not None:
            self.stopped[key.session] = stopped.value.decode()
            if before is not None:
                raise HostsFailed(self.stopped[key.session])
        if work is None or stopped is not None:
            return None
        if before is not None and (before.is_alone or await self._is_only(before)):
            if before.prompt == LOADING:
                raise HostsFailed(await self._write_stopped(key))
            return before.prompt
        if before is not None and any(trial.is_alone for trial in self._trials.values()):
            raise ClusterError(f"two hosts failed that ran the session {key.session}; it waits until others were tried")
        trial = self._trials[key] = _Trial(time.monotonic(), LOADING, before is not None)
        await self._write(key, trial)
        return None

    async def abandon(self, key: SessionKey) -> None:
        """The session could not be loaded, but this host lives."""
        with suppress(ClusterError):
            await self.clear(key)
        self.forget(key)

    async def _is_only(self, before: Takeover) -> bool:
        """Whether a host that died had taken over one session only. The others are told, before one is tried."""
        if before.is_one_of_many:
            return False
        found: list[tuple[Row, Takeover]] = []
        for row in await self._registry.rows("work.>"):
            with suppress(msgspec.MsgspecError):
                takeover = msgspec.json.decode(row.value, type=Takeover)
                if takeover.host == before.host:
                    found.append((row, takeover))
        if len(found) <= 1:
            return True
        for row, takeover in found:
            value = msgspec.json.encode(msgspec.structs.replace(takeover, is_one_of_many=True))
            await self._registry.update(row.key, value, row.revision)
        return False

    async def _write(self, key: SessionKey, trial: _Trial) -> None:
        takeover = Takeover(host=self._host, prompt=trial.prompt, is_alone=trial.is_alone)
        trial.revision = await self._registry.put(self.work_key(key), msgspec.json.encode(takeover))

    def has(self, key: SessionKey) -> bool:
        """Whether this host has taken the work of a session over."""
        return key in self._trials

    async def loaded(self, key: SessionKey, prompt: str | None) -> None:
        """The session is loaded; `prompt` is the first without a result, which is about to be continued."""
        trial = self._trials.get(key)
        if trial is None:
            return
        if prompt is None:
            await self.clear(key)
        else:
            trial.started_at, trial.prompt = time.monotonic(), prompt
            await self._write(key, trial)

    async def settle(self, first_prompts: dict[SessionKey, str | None]) -> None:
        """Clear what the host has survived. Raises ClusterError.

        `first_prompts`: of the sessions that are loaded, the first prompt without a result.
        """
        since = time.monotonic() - SURVIVED_SECONDS
        for key, trial in list(self._trials.items()):
            if trial.prompt != LOADING and (trial.started_at < since or first_prompts.get(key) != trial.prompt):
                await self.clear(key)
        if self.stopped:
            rows = await self._registry.rows("stopped.>")
            kept = {parse_session_tokens(row.key)[1].session for row in rows}
            self.stopped = {session: why for session, why in self.stopped.items() if session in kept}

    async def clear(self, key: SessionKey) -> None:
        """The host did not die of a session, or gives it up in order. Raises ClusterError."""
        if (trial := self._trials.get(key)) is not None:
            if trial.revision:  # nothing happens if the row was deleted, because the work is done
                await self._registry.update(self.work_key(key), b"", trial.revision)
            self.forget(key)

    def forget(self, key: SessionKey) -> None:
        """The session is not loaded any more."""
        if self._trials.pop(key, None) is not None:
            self._survived.add(key)

    async def stop(self, key: SessionKey) -> str:
        """Take no further prompt of a session; returns the reason. Raises ClusterError."""
        reason = await self._write_stopped(key)
        await self._registry.put(self.work_key(key), b"")
        return reason

    async def _write_stopped(self, key: SessionKey) -> str:
        reason = (
            f"hosts of the cluster failed one after the other while they ran the session {key.session}, so it was "
            f"stopped; `parley cluster release {key.session}` lets it continue"
        )
        await self._registry.put(self._stopped_key(key), reason.encode())
        self.stopped[key.session] = reason
        return reason

    def find_stopped(self, session: str) -> str | None:
        """Why a session takes no prompt."""
        return self.stopped.get(session)

    async def remove(self, key: SessionKey) -> None:
        """The session is deleted. Raises ClusterError."""
        await self._registry.delete(self._stopped_key(key))
        self.stopped.pop(key.session, None)


async def list_stopped(registry: Registry) -> dict[str, str]:
    """The sessions that were stopped because hosts died of them, and why. Raises ClusterError."""
    rows = await registry.rows("stopped.>")
    return {parse_session_tokens(row.key)[1].session: row.value.decode() for row in rows}


async def release_session(cluster: Cluster, session: str) -> None:
    """Let a session that was stopped take prompts again. Raises UsageError, ClusterError."""
    rows = await cluster.registry.rows(f"stopped.*.*.{encode_token(session)}")
    if not rows:
        raise UsageError(f"the session {session} was not stopped")
    for row in rows:
        await cluster.registry.put(f"work.{row.key.partition('.')[2]}", b"")
        await cluster.registry.delete(row.key)
