"""Refresh a server's lists after `list_changed` notifications: one refresh at a time, and no notification is lost.

A server may notify very often, during a refresh, or before it is connected. Notifications that arrive together cause
one refresh; one that arrives during a refresh causes another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

PAUSE_SECONDS = 0.1
"""Pause between refreshes, for servers that notify whenever they are listed."""


class ListRefresher:
    def __init__(self, refresh: Callable[[str], Awaitable[None]]) -> None:
        self._refresh = refresh
        self._is_open = False
        self._stale: set[str] = set()
        """Lists that changed and are not refreshed yet."""
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def mark_stale(self, name: str) -> None:
        self._stale.add(name)
        if self._is_open and name not in self._tasks:
            self._tasks[name] = asyncio.get_running_loop().create_task(self._work(name))

    def open(self) -> None:
        """Start refreshing, including lists that changed before."""
        self._is_open = True
        for name in tuple(self._stale):
            self.mark_stale(name)

    def tasks(self) -> list[asyncio.Task[None]]:
        """The running refreshes."""
        return list(self._tasks.values())

    def close(self) -> None:
        self._is_open = False
        self._stale.clear()
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    async def _work(self, name: str) -> None:
        await asyncio.sleep(0)  # combine notifications that arrive together
        while True:
            self._stale.discard(name)
            await self._refresh(name)
            if name not in self._stale:
                break
            await asyncio.sleep(PAUSE_SECONDS)
        del self._tasks[name]
