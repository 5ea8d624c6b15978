"""Who cancels the reader of a turn interrupts the turn, and the next prompt runs at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing

import anyio
import pytest

from parley import Client, Options, ResultError, Script, ScriptedTurn
from parley.testing import call
from tests.helpers.sdk import LOOPS, ClientHarness, run

# Without an interrupt the next prompt would wait for ten minutes. Of two cues the first in the script counts: "begin"
# stands in front of the next prompt if the interrupt came before the model's first answer.
SLOW = Script(
    [
        ScriptedTurn(when="once more", text="Done."),
        ScriptedTurn(when="go on", text="Going on."),
        ScriptedTurn(when="begin", text="Wait.", tools=[call("Bash", command="touch started; sleep 600")]),
    ]
)
Way = Callable[[Client], Awaitable[None]]


async def wait_for_command(client: Client) -> None:
    with anyio.fail_after(60):
        while not await anyio.Path(str(client.options.cwd), "started").exists():  # noqa: ASYNC110  # another process
            await anyio.sleep(0.01)


async def cancel_run(client: Client) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.run, "begin")
        await wait_for_command(client)
        tasks.cancel_scope.cancel()


async def cancel_iteration(client: Client) -> None:
    async def read() -> None:
        async for _ in await client.ask("begin"):
            pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await wait_for_command(client)
        tasks.cancel_scope.cancel()


async def cancel_before_it_starts(client: Client) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.run, "begin")
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


async def close_generator(client: Client) -> None:
    turn = await client.ask("begin")
    async with aclosing(turn.text_stream()) as texts:
        async for text in texts:
            assert text == "Wait."
            break


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("way", [cancel_run, cancel_iteration, cancel_before_it_starts, close_generator])
def test_a_cancelled_reader_interrupts_its_turn(harness: ClientHarness, engine: str, loop: str, way: Way) -> None:
    async def play(options: Options) -> list[str]:
        async with Client(options) as client:
            await way(client)
            return [(await client.run("go on")).text, (await client.run("once more")).text]

    options = harness.options(engine, model=SLOW, permission_mode="bypassPermissions")
    assert run(loop, play, options) == ["Going on.", "Done."]


def test_a_cancelled_prompt_does_not_interrupt_the_turn_that_it_joined(harness: ClientHarness, engine: str) -> None:
    script = Script([call("Bash", command="touch started; while ! test -e go; do sleep 0.02; done"), "Done."])

    async def play(options: Options) -> str:
        async with Client(options) as client:
            first = await client.ask("begin")
            await wait_for_command(client)
            joined = await client.ask("and this", join=True)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(joined.wait)
                await joined.until("queued")
                tasks.cancel_scope.cancel()
            await anyio.Path(str(options.cwd), "go").touch()
            return await first.text()

    assert run("asyncio", play, harness.options(engine, model=script, permission_mode="bypassPermissions")) == "Done."


def test_the_reason_of_an_interrupt_is_interrupted(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> str:
        async with Client(options) as client:
            turn = await client.ask("begin")
            await wait_for_command(client)
            await client.interrupt()
            with pytest.raises(ResultError) as exc:
                await turn
            return exc.value.reason

    options = harness.options(engine, model=SLOW, permission_mode="bypassPermissions")
    assert run("asyncio", play, options) == "interrupted"
