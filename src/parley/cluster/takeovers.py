"""Continues the work of hosts that died, until it is known that they died of it.

A session with something to do has a row `work.SHARD.TENANT.SESSION` in the registry. It names the process of the host
that works on it, and the processes that had it before and left it without a word. Who continues it writes itself there
first. A host that lives for a while, finishes the prompt or gives the session up in order clears the names before it.

If two of the processes before have died, the session may be what hosts die of. If it is the only one that the last of
them had taken over, it is stopped: its prompts are answered with an error, and it takes no other until an operator
releases it. If there are several, each host tries one of them at a time, and the one of which a host dies is stopped. A
host that was only slow still renews its row about itself, and counts as alive.

A host that dies while it loads a session may have died of the log instead of the prompt. The next one tries it alone.
If two have died so, no host loads the session, and it cannot be read, until an operator releases it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import msgspec

from parley.cluster.base import Cluster, ClusterError, ClusterRegistry, LogKey
from parley.cluster.shards import list_hosts
from parley.cluster.subjects import encode_token, parse_session_tokens, row_key
from parley.errors import UsageError
from parley.protocol.base import Struct

SURVIVED_SECONDS = 30.0
"""A host that lives so long with a session does not die of it."""
DEADLY = 2
"""So many hosts that died with a session, or while they loaded it, are no accident."""
LOADING = ""
"""The prompt of a takeover while the session is being loaded."""


class HostsFailed(ClusterError):
    """Hosts died when they loaded a session. No other one tries."""


class Work(Struct, frozen=True, kw_only=True):
    """Who works on a session."""

    life: str = ""
    """The process of the host; empty if it has given the session up in order."""
    left: list[str] = []
    """The processes that had it before, one after the other, and left it without a word."""
    prompt: str = LOADING
    """The first one without a result."""
    is_alone: bool = False
    """Whether the host has tried no other session at the same time of which an earlier one may have died."""
    is_one_of_many: bool = False
    """Whether the host that died had taken over others, too."""
    loads: int = 0
    """How many of the processes before died while they loaded the session, and nothing else of which one died."""


def read_work(value: bytes) -> Work:
    try:
        return msgspec.json.decode(value, type=Work)
    except msgspec.MsgspecError:  # empty, or of another version
        return Work()


class _Trial(Struct):
    """A takeover of this host."""

    started_at: float
    prompt: str
    is_alone: bool
    left: list[str]
    loads: int
    revision: int = 0
    """Of the row."""


class Takeovers:
    def __init__(self, registry: ClusterRegistry, life: str, shards: int) -> None:
        """`life`: the id of this process."""
        self._registry = registry
        self._life = life
        self._shards = shards
        self._trials: dict[LogKey, _Trial] = {}
        self._renewals: dict[LogKey, float] = {}
        """When the host that left a session had last renewed its row, when this one first looked."""
        self.stopped: dict[str, str] = {}
        """The sessions that take no prompt, with the reason."""

    async def begin(self, key: LogKey) -> str | None:
        """Before a session is loaded: returns the prompt that it must not continue, if any.

        Raises HostsFailed if hosts died when they loaded it, ClusterError if it has to wait for its turn.
        """
        work, stopped = await asyncio.gather(
            self._registry.get(row_key("work", key, self._shards)),
            self._registry.get(row_key("stopped", key, self._shards)),
        )
        before = Work() if work is None else read_work(work.value)
        if stopped is not None:
            self.stopped[key.session] = stopped.value.decode()
            if before.left:
                raise HostsFailed(self.stopped[key.session])
        if work is None or stopped is not None:
            return None
        left = [life for life in (*before.left, before.life) if life not in ("", self._life)]
        if len(left) >= DEADLY:
            left = await self._find_dead(key, left)
        is_deadly, loads = len(left) >= DEADLY, before.loads
        if is_deadly and before.life in left and (before.is_alone or await self._is_only(before)):
            if before.prompt != LOADING:
                return before.prompt
            loads += 1
            if loads >= DEADLY:
                raise HostsFailed(await self._write_stopped(key))
        if is_deadly and any(trial.is_alone for trial in self._trials.values()):
            raise ClusterError(f"two hosts failed that ran the session {key.session}; it waits until others were tried")
        trial = self._trials[key] = _Trial(time.monotonic(), LOADING, is_deadly, left, loads)
        await self._write(key, trial)
        return None

    async def _find_dead(self, key: LogKey, lives: list[str]) -> list[str]:
        """Those of the processes that have died. Raises ClusterError as long as that is not known of the last one."""
        renewals = {info.life: info.at for info in (await list_hosts(self._registry)).values()}
        renewed_at = renewals.get(lives[-1])
        if renewed_at is not None and self._renewals.setdefault(key, renewed_at) == renewed_at:
            # It may have died since.
            raise ClusterError(f"the session {key.session} waits until it is known whether its host has failed")
        self._renewals.pop(key, None)
        return [life for life in lives if life not in renewals]

    async def abandon(self, key: LogKey) -> None:
        """The session could not be loaded, but this host lives."""
        with suppress(ClusterError):
            await self.clear(key)
        self.forget(key)

    async def _is_only(self, before: Work) -> bool:
        """Whether a host that died had taken over one session only. The others are told, before one is tried."""
        if before.is_one_of_many:
            return False
        found = [(row, read_work(row.value)) for row in await self._registry.rows("work.>")]
        found = [(row, work) for row, work in found if work.left and work.life == before.life]
        if len(found) <= 1:
            return True
        for row, work in found:
            value = msgspec.json.encode(msgspec.structs.replace(work, is_one_of_many=True))
            await self._registry.update(row.key, value, row.revision)
        return False

    async def _write(self, key: LogKey, trial: _Trial) -> None:
        left, loads = trial.left, trial.loads
        work = Work(life=self._life, left=left, prompt=trial.prompt, is_alone=trial.is_alone, loads=loads)
        trial.revision = await self._registry.put(row_key("work", key, self._shards), msgspec.json.encode(work))

    def has(self, key: LogKey) -> bool:
        """Whether this host has taken the work of a session over."""
        return key in self._trials

    async def loaded(self, key: LogKey, prompt: str | None) -> None:
        """The session is loaded; `prompt` is the first without a result, which is about to be continued."""
        trial = self._trials.get(key)
        if trial is None:
            return
        if prompt is None:
            await self.clear(key)
        else:
            trial.started_at, trial.prompt, trial.loads = time.monotonic(), prompt, 0
            await self._write(key, trial)

    async def settle(self, first_prompts: dict[LogKey, str | None]) -> None:
        """Clear what the host has survived. Raises ClusterError.

        `first_prompts`: of the sessions that are loaded, the first prompt without a result.
        """
        since = time.monotonic() - SURVIVED_SECONDS
        for key, trial in list(self._trials.items()):
            if trial.prompt != LOADING and (trial.started_at < since or first_prompts.get(key) != trial.prompt):
                await self.clear(key)
        if self.stopped:
            rows = await self._registry.rows("stopped.>")
            kept = {parse_session_tokens(row.key).session for row in rows}
            self.stopped = {session: why for session, why in self.stopped.items() if session in kept}

    async def clear(self, key: LogKey) -> None:
        """The host did not die of a session. Raises ClusterError."""
        if (trial := self._trials.get(key)) is not None:
            if trial.revision:  # nothing happens if the row was deleted, because the work is done
                own = msgspec.json.encode(Work(life=self._life))
                await self._registry.update(row_key("work", key, self._shards), own, trial.revision)
            self.forget(key)

    def forget(self, key: LogKey) -> None:
        """The session is not loaded any more."""
        self._trials.pop(key, None)

    async def stop(self, key: LogKey) -> str:
        """Take no further prompt of a session; returns the reason. Raises ClusterError."""
        reason = await self._write_stopped(key)
        await self._registry.put(row_key("work", key, self._shards), b"")
        return reason

    async def _write_stopped(self, key: LogKey) -> str:
        reason = (
            f"hosts of the cluster failed one after the other while they ran the session {key.session}, so it was "
            f"stopped; `parley cluster release {key.session}` lets it continue"
        )
        await self._registry.put(row_key("stopped", key, self._shards), reason.encode())
        self.stopped[key.session] = reason
        return reason

    async def remove(self, key: LogKey) -> None:
        """The session is deleted. Raises ClusterError."""
        await self._registry.delete(row_key("stopped", key, self._shards))
        self.stopped.pop(key.session, None)


async def list_stopped(registry: ClusterRegistry) -> dict[str, str]:
    """The sessions that were stopped because hosts died of them, and why. Raises ClusterError."""
    rows = await registry.rows("stopped.>")
    return {parse_session_tokens(row.key).session: row.value.decode() for row in rows}


async def release_session(cluster: Cluster, session: str) -> None:
    """Let a session that was stopped take prompts again. Raises UsageError, ClusterError."""
    rows = await cluster.registry.rows(f"stopped.*.*.{encode_token(session)}")
    if not rows:
        raise UsageError(f"the session {session} was not stopped")
    for row in rows:
        await cluster.registry.put(f"work.{row.key.partition('.')[2]}", b"")
        await cluster.registry.delete(row.key)
