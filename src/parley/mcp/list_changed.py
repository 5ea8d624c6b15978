"""What a server announces to be another now, looked at again: one look at a time, and none too few.

A server may announce a hundred changes a second, also while a look is under way or before it is
known to be there. Announcements that come together are one look; one that comes during a look is another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

PAUSE_SECONDS = 0.1
"""Between two looks, for servers that announce a change whenever they are looked at."""


class Lookout:
    def __init__(self, look: Callable[[str], Awaitable[None]]) -> None:
        self._look = look
        self._is_open = False
        self._stale: set[str] = set()
        """What was announced and is not looked at yet."""
        self._looking: dict[str, asyncio.Task[None]] = {}

    def announce(self, what: str) -> None:
        self._stale.add(what)
        if self._is_open and what not in self._looking:
            self._looking[what] = asyncio.get_running_loop().create_task(self._work(what))

    def open(self) -> None:
        """Look from now on, and at what was announced before."""
        self._is_open = True
        for what in tuple(self._stale):
            self.announce(what)

    def looks(self) -> list[asyncio.Task[None]]:
        """Those under way."""
        return list(self._looking.values())

    def close(self) -> None:
        self._is_open = False
        self._stale.clear()
        for task in self._looking.values():
            task.cancel()
        self._looking.clear()

    async def _work(self, what: str) -> None:
        await asyncio.sleep(0)  # announcements that came together are one
        while True:
            self._stale.discard(what)
            await self._look(what)
            if what not in self._stale:
                break
            await asyncio.sleep(PAUSE_SECONDS)
        del self._looking[what]
