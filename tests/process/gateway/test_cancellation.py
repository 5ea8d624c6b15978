"""Who leaves a turn on a gateway stops it, as with an engine of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from parley import Client, Options
from tests.helpers.gateway import Server
from tests.helpers.patience import PATIENCE_SECONDS
from tests.process.sdk.test_cancellation import (
    SLOW,
    cancel_before_it_starts,
    cancel_iteration,
    cancel_run,
    close_generator,
    wait_for_command,
)


def options(server: Server) -> Options[Any]:
    return Options(
        engine=server.url, token=server.token, model=SLOW, cwd=server.root, permission_mode="bypassPermissions"
    )


@pytest.mark.parametrize("way", [cancel_run, cancel_iteration, cancel_before_it_starts, close_generator])
async def test_a_cancelled_reader_interrupts_its_turn(tmp_path: Path, way: Callable[[Client], Awaitable[None]]) -> None:
    async with (
        Server(tmp_path, environment={"IS_SANDBOX": "1"}) as server,
        asyncio.timeout(PATIENCE_SECONDS),
        Client(options(server)) as client,
    ):
        await way(client)
        assert [(await client.run("go on")).text, (await client.run("once more")).text] == ["Going on.", "Done."]


async def leave(client: Client) -> None:
    async with client:
        await client.ask("begin")
        await wait_for_command(client)


async def fail(client: Client) -> None:
    async def play() -> None:
        async with client:
            await client.query("begin")
            await wait_for_command(client)
            raise KeyError

    with pytest.raises(KeyError):
        await play()


async def be_cancelled(client: Client) -> None:
    job = asyncio.create_task(leave_late(client))
    await wait_for_command(client)
    job.cancel()
    await asyncio.wait([job])


async def leave_late(client: Client) -> None:
    async with client:
        await client.run("begin")


@pytest.mark.parametrize("way", [leave, fail, be_cancelled])
async def test_a_client_that_leaves_stops_its_turn(tmp_path: Path, way: Callable[[Client], Awaitable[None]]) -> None:
    async with Server(tmp_path, environment={"IS_SANDBOX": "1"}) as server, asyncio.timeout(PATIENCE_SECONDS):
        first = Client(options(server))
        await way(first)
        assert first.session_id is not None
        async with Client.attach(first.session_id, Options(engine=server.url, token=server.token)) as client:
            assert (await client.run("go on")).text == "Going on."


async def test_a_client_that_detaches_lets_its_turn_run(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, asyncio.timeout(PATIENCE_SECONDS):
        client: Client[Any] = Client(Options(engine=server.url, token=server.token))
        await client.connect()
        turn = await client.ask("wait 0.5\nsay One.")
        while client.session_id is None:
            await anext(turn)
        await client.detach()
        while sum(each["turns"] for each in (await server.get("/sessions"))["sessions"]) == 0:
            pass
        async with Client.attach(str(client.session_id), client.options) as again:
            assert (await again.run("say Two.")).text == "Two."
