"""The lifecycle of an MCP server with a virtual clock: requests that arrive while the previous one is running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from parley.mcp.base import ConnectionLost, McpTimeouts, ServerSpec, ServerTransport
from parley.mcp.server_connection import ListRefresher, McpServer
from parley.protocol.base import Json
from parley.testing.virtual_time import run_in_virtual_time

FACTS = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "far"}}
TOOL = {"name": "one", "inputSchema": {"type": "object"}}


class Slow(ServerTransport):
    """A transport that closes slowly."""

    living = 0

    async def open(self, on_message: Callable[[Json], None], on_lost: Callable[[ConnectionLost | str], None]) -> None:
        await super().open(on_message, on_lost)
        Slow.living += 1

    async def send(self, message: Json) -> None:
        if "id" in message:
            result = FACTS if message["method"] == "initialize" else {"tools": [TOOL]}
            self._on_message({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def close(self) -> None:
        await asyncio.sleep(5)
        Slow.living -= 1


class Ears:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_change(self, server: McpServer) -> None:
        self.heard.append(server.status)

    async def on_request(self, server: McpServer, method: str, params: Json) -> Json:
        return {}

    def on_notification(self, server: McpServer, method: str, params: Json) -> None:
        pass


async def connected() -> tuple[McpServer, Ears]:
    async def wire() -> ServerTransport:
        return Slow()

    Slow.living, ears = 0, Ears()
    server = McpServer(ServerSpec(name="far", kind="stdio", source="user"), wire, ears, McpTimeouts(), {})
    await server.reconnect()
    return server, ears


@pytest.mark.parametrize(
    ("wishes", "status"),
    [
        (["disable", "enable"], "connected"),
        (["enable", "disable"], "disabled"),
        (["reconnect", "disable"], "disabled"),
        (["disable", "reconnect", "enable", "disable", "enable"], "connected"),
        (["reconnect", "close"], "disabled"),
        (["close", "reconnect"], "disabled"),
    ],
)
def test_the_last_request_takes_effect_and_nothing_is_left_behind(wishes: list[str], status: str) -> None:
    async def wish() -> tuple[Any, ...]:
        server, _ = await connected()
        tasks = []
        for name in wishes:
            tasks.append(asyncio.create_task(getattr(server, name)()))
            await asyncio.sleep(1)
        await asyncio.gather(*tasks)
        found = server.status, len(server.tools), Slow.living
        await server.close()
        return *found, Slow.living

    _, found = run_in_virtual_time(wish())
    there = int(status == "connected")
    assert found == (status, there, there, 0)


def test_a_request_is_carried_out_even_if_no_one_waits_for_it_any_more() -> None:
    async def wish() -> tuple[Any, ...]:
        server, ears = await connected()
        waiting = asyncio.create_task(server.reconnect())
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.sleep(30)
        found = server.status, len(server.tools), Slow.living, ears.heard
        await server.close()
        return found

    _, found = run_in_virtual_time(wish())
    assert found == ("connected", 1, 1, ["pending", "connected", "pending", "connected"])


def test_no_one_waits_on_for_a_server_that_was_removed() -> None:
    async def remove() -> str:
        async def wire() -> ServerTransport:
            return await asyncio.Event().wait()  # type: ignore[return-value]  # never

        server = McpServer(ServerSpec(name="far", kind="stdio", source="user"), wire, Ears(), McpTimeouts(), {})
        waiting = asyncio.create_task(server.reconnect())
        await asyncio.sleep(1)
        await server.close()
        await waiting
        return server.reason

    seconds, reason = run_in_virtual_time(remove())
    assert (seconds, reason) == (1, "removed")


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
