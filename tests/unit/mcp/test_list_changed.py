"""Refreshing lists after `list_changed`: every change is seen, and concurrent ones are combined."""

from __future__ import annotations

import asyncio

from parley.mcp.list_changed import ListRefresher
from parley.testing.virtual_time import run_in_virtual_time


def test_announcements_that_come_together_are_one_look_and_one_that_comes_during_it_is_another() -> None:
    looks: list[str] = []

    async def look(what: str) -> None:
        looks.append(what)
        await asyncio.sleep(1)

    async def storm() -> None:
        lookout = ListRefresher(look)
        lookout.open()
        for _ in range(1000):
            lookout.mark_stale("tools")
        lookout.mark_stale("prompts")
        await asyncio.sleep(0.5)
        for _ in range(1000):
            lookout.mark_stale("tools")
        await asyncio.sleep(10)
        lookout.mark_stale("tools")
        await asyncio.sleep(10)
        lookout.close()

    run_in_virtual_time(storm())
    assert looks == ["tools", "prompts", "tools", "tools"]


def test_what_was_announced_too_early_is_looked_at_later_and_nothing_after_the_end() -> None:
    looks: list[str] = []

    async def look(what: str) -> None:
        looks.append(what)

    async def early_and_late() -> list[list[str]]:
        lookout = ListRefresher(look)
        lookout.mark_stale("tools")
        await asyncio.sleep(1)
        before = list(looks)
        lookout.open()
        lookout.mark_stale("prompts")
        await asyncio.sleep(1)
        then = list(looks)
        lookout.mark_stale("tools")
        lookout.close()
        await asyncio.sleep(1)
        return [before, then, looks]

    _, seen = run_in_virtual_time(early_and_late())
    assert seen == [[], ["tools", "prompts"], ["tools", "prompts"]]


def test_a_server_that_announces_a_change_at_every_look_does_not_keep_us_busy() -> None:
    looks = 0

    async def restless() -> None:
        async def look(what: str) -> None:
            nonlocal looks
            looks += 1
            lookout.mark_stale(what)

        lookout = ListRefresher(look)
        lookout.open()
        lookout.mark_stale("tools")
        await asyncio.sleep(10)
        lookout.close()

    run_in_virtual_time(restless())
    assert 50 < looks < 150
