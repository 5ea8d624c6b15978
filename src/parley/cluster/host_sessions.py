"""The sessions that a host has loaded: those of the shards that it owns.

    async with sessions.use(key) as session:      loads it if need be; it is not evicted meanwhile
        ...                                       call the application of the host
        await session.writer.wait_committed(session.writer.position)

What a session says leaves the host only after `wait_committed` of the position at which it was said.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol

from parley.cluster.base import SessionKey
from parley.gateway.live_session import LiveSession

MOVED = "moved"
"""Another host runs the session, or will soon: gateways ask again."""
DELETED = "deleted"


class Writer(Protocol):
    """What the bridge needs of `SessionWriter`."""

    @property
    def position(self) -> int:
        """How many records the session has made so far, committed or not. Also takes in what the database changed."""

    async def wait_committed(self, position: int) -> None:
        """Wait until the records up to a position are in the log. Raises Fenced or ClusterError if the session dies."""

    def hold(self) -> AbstractContextManager[None]:
        """Commit what is written inside in one batch. Nothing that waits for the engine may be awaited inside."""


class Hosted(Protocol):
    """What the bridge needs of `HostedSession`."""

    key: SessionKey
    writer: Writer
    closed: asyncio.Future[str]
    """Gets the reason, MOVED or DELETED, when the session must not be used any more. Its streams end."""

    @property
    def live(self) -> LiveSession | None:
        """None if the session does not exist (yet): the request may create it, with the id of the key."""

    def find_command(self, command_id: str) -> bytes | None:
        """The reply to a command that was carried out before, also on another host."""

    def record_command(self, command_id: str, reply: bytes) -> None:
        """Remember the reply. With `writer.hold()` around the command, both are committed together."""


class Sessions(Protocol):
    """What the bridge needs of `HostSessions`."""

    def use(self, key: SessionKey) -> AbstractAsyncContextManager[Hosted]:
        """Load a session. Raises NotOwner if the shard is not (or no longer) this host's, NewerVersion, ClusterError."""


class ShardService(Protocol):
    """Something that a host does for each shard that it owns: the bridge, which subscribes to its subjects."""

    async def serve(self, shard: int) -> None:
        """The host has acquired a shard and loads its sessions on demand."""

    async def leave(self, shard: int) -> None:
        """The host is about to give a shard up, or has lost it. Its sessions are closed after this."""

    async def close(self) -> None:
        """The host ends."""
