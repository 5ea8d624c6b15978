"""The lifecycle of an MCP server with a virtual clock: requests that arrive while the previous one is running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from parley.mcp.base import ConnectionLost, McpTimeouts, ServerSpec, ServerTransport
from parley.mcp.server_connection import McpServer
from parley.protocol.base import Json
from parley.testing.virtual_time import run_in_virtual_time

FACTS = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "far"}}
TOOL = {"name": "one", "inputSchema": {"type": "object"}}


class Slow:
    """A transport that closes slowly."""

    living = 0

    async def open(self, take: Callable[[Json], None], lost: Callable[[ConnectionLost | str], None]) -> None:
        self._take = take
        Slow.living += 1

    async def send(self, message: Json) -> None:
        if "id" in message:
            result = FACTS if message["method"] == "initialize" else {"tools": [TOOL]}
            self._take({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def close(self) -> None:
        await asyncio.sleep(5)
        Slow.living -= 1

    def stderr_tail(self) -> str:
        return ""


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
