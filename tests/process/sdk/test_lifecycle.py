"""However a program leaves a client, no process stays and no warning is issued. Warnings are errors here.

Each row is a way to leave. It is tried on every event loop, with an engine in a subprocess, in this process and in a
worker process, during a turn whose model would take a minute.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley import (
    ClaudeSDKError,
    CLIConnectionError,
    Client,
    ControlTimeout,
    Options,
    ProcessError,
    SystemMessage,
    query,
)
from tests.helpers.descriptors import spare_descriptors
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.sdk import ClientHarness, children, run

BUSY = 'at_end = "repeat"\n[[turn]]\ntext = "Never."\ndelay_ms = 60000\n'
COMMAND = 'at_end = "repeat"\n[[turn]]\ntools = [{ name = "Bash", input = { command = "sleep 60" } }]\n'


@pytest.fixture(autouse=True)
def nothing_is_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    before = children()
    yield
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("parley "):  # not the idle threads of tools
            thread.join(60)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert children() <= before


async def until_it_works(stream: Any) -> None:
    """Read until the turn has started."""
    async for message in stream:
        if isinstance(message, SystemMessage):
            return


async def leave_by_break(options: Options) -> None:
    async for message in query(prompt="go", options=options):
        if isinstance(message, SystemMessage):
            break


async def leave_by_exception(options: Options) -> None:
    with pytest.raises(ZeroDivisionError):
        await divide_on_the_first_word(options)


async def divide_on_the_first_word(options: Options) -> None:
    async with Client(options) as client:
        async for message in await client.ask("go"):
            if isinstance(message, SystemMessage):
                _ = 1 / 0


async def leave_by_cancel(options: Options) -> None:
    works = anyio.Event()

    async def read() -> None:
        stream = query(prompt="go", options=options)
        await until_it_works(stream)
        works.set()
        await until_it_works(stream)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await works.wait()
        tasks.cancel_scope.cancel()


async def leave_by_timeout(options: Options) -> None:
    async with Client(options) as client:
        turn = await client.ask("go")
        await until_it_works(turn)
        with anyio.move_on_after(0.05):
            await turn.wait()


async def leave_by_closing_elsewhere(options: Options) -> None:
    """One task connects, another closes."""
    client = Client(options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.connect)
    await until_it_works(await client.ask("go"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.close)


async def leave_by_dropping(options: Options) -> None:
    client = Client(options)
    await client.connect()
    await until_it_works(await client.ask("go"))
    del client
    gc.collect()


async def leave_by_dropping_a_query(options: Options) -> None:
    stream = query(prompt="go", options=options)
    await until_it_works(stream)
    del stream
    gc.collect()


async def leave_open(options: Options) -> Client:
    """The loop ends while the client is still connected."""
    client = Client(options)
    await client.connect()
    await until_it_works(await client.ask("go"))
    return client


async def leave_at_once(options: Options) -> None:
    async with Client(options):
        pass


async def leave_while_connecting(options: Options) -> None:
    with anyio.move_on_after(0.001):
        await Client(options).connect()


async def leave_by_closing_a_query(options: Options) -> None:
    stream = query(prompt="go", options=options)
    await until_it_works(stream)
    await stream.aclose()
    assert [message async for message in stream] == []


async def leave_by_cancelling_again(options: Options) -> None:
    """Cancelled while it is closing, with the loop's own cancellation where it has one."""
    if library() == "trio":
        await leave_by_cancel(options)
        return
    client = Client(options)
    await client.connect()
    await until_it_works(await client.ask("go"))
    closing = asyncio.get_running_loop().create_task(client.close())
    await asyncio.sleep(0)
    closing.cancel()
    with suppress(asyncio.CancelledError):
        await closing


def library() -> str:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return "trio"
    return "asyncio"


WAYS: list[Callable[[Options], Any]] = [
    leave_by_break,
    leave_by_exception,
    leave_by_cancel,
    leave_by_timeout,
    leave_by_closing_elsewhere,
    leave_by_closing_a_query,
    leave_by_dropping,
    leave_by_dropping_a_query,
    leave_open,
    leave_at_once,
    leave_while_connecting,
    leave_by_cancelling_again,
]


# The combinations that differ; tests/stress/sdk/client_lifecycle.py tries every way on every loop with both engines.
CASES = [("process", "asyncio", way) for way in WAYS]
CASES += [("local", "asyncio", way) for way in (leave_by_break, leave_by_cancel, leave_by_dropping, leave_open)]
CASES += [("process", "trio", way) for way in (leave_by_cancel, leave_by_dropping_a_query, leave_open)]
CASES += [("local", "trio", way) for way in (leave_by_break, leave_by_dropping, leave_open)]
CASES += [("process", "uvloop", way) for way in (leave_by_break, leave_open)]


@pytest.mark.parametrize(("engine", "loop", "way"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_nothing_is_left_over(harness: ClientHarness, engine: str, loop: str, way: Callable[[Options], Any]) -> None:
    run(loop, way, harness.options(engine, BUSY))


def test_commands_of_the_model_end_too(harness: ClientHarness, engine: str) -> None:
    run("asyncio", leave_by_dropping, harness.options(engine, COMMAND, permission_mode="bypassPermissions"))


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_session_that_was_left_can_be_taken_up_at_once(harness: ClientHarness, loop: str) -> None:
    async def leave(options: Options) -> str:
        client = Client(options)
        await client.connect()
        await until_it_works(await client.ask("go"))
        assert client.session_id is not None
        return client.session_id

    async def take_up(options: Options) -> str:
        async with Client(options) as client:
            return await (await client.ask("on")).text()

    session = run(loop, leave, harness.options("local", BUSY))
    for thread in threading.enumerate():
        if thread.name.startswith("parley "):  # not the idle threads of tools
            thread.join(60)

    assert run(loop, take_up, harness.options("local", resume=session)) == "Hello."


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_failed_start_leaves_nothing_behind(harness: ClientHarness, engine: str, loop: str) -> None:
    async def play(options: Options) -> None:
        client = Client(options)
        with pytest.raises(ProcessError):
            await client.connect()
        with pytest.raises(CLIConnectionError):
            await client.query("nobody is there")

    run(loop, play, harness.options(engine, session_id="no uuid"))


@pytest.mark.parametrize(("kind", "loop"), [("process", "asyncio"), ("workers", "asyncio"), ("local", "trio")])
def test_too_many_open_files_are_a_connection_error(harness: ClientHarness, kind: str, loop: str) -> None:
    options = harness.options(kind)

    async def play() -> None:
        async with Client(options):  # with that, all modules are loaded
            pass
        for thread in threading.enumerate():
            if thread.name == "parley engine":
                thread.join(PATIENCE_SECONDS)  # it may have files open
        with spare_descriptors(0), pytest.raises(CLIConnectionError, match="Too many open files"):
            await Client(options).connect()

    run(loop, play)


def fake_engine(harness: ClientHarness, body: str) -> Path:
    path = harness.folder / "engine"
    path.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_an_engine_that_never_answers_is_given_up_and_ended(harness: ClientHarness, loop: str) -> None:
    async def play(options: Options) -> None:
        with pytest.raises(ControlTimeout, match="initialize"):
            await Client(options).connect()

    silent = fake_engine(harness, "time.sleep(60)")
    run(loop, play, harness.options("process", cli_path=silent, control_timeout_seconds=0.2))


def test_an_engine_that_dies_reports_its_last_words(harness: ClientHarness) -> None:
    async def play(options: Options) -> None:
        await Client(options).connect()

    dying = fake_engine(harness, "print('no room left', file=sys.stderr); sys.exit(7)")
    with pytest.raises(ProcessError, match="no room left") as exc:
        run("asyncio", play, harness.options("process", cli_path=dying))

    assert exc.value.exit_code == 7
    assert exc.value.argv[0] == str(dying)


def test_an_engine_that_is_killed_ends_the_turn_with_an_error(harness: ClientHarness) -> None:
    async def play(options: Options) -> None:
        async with Client(options) as client:
            turn = await client.ask("go")
            await until_it_works(turn)
            assert client.pid is not None
            os.kill(client.pid, signal.SIGKILL)
            with pytest.raises(ClaudeSDKError) as exc:
                await turn.wait()
            assert getattr(exc.value, "exit_code", None) == -9

    run("asyncio", play, harness.options("process", BUSY))


PROGRAM = """
import asyncio, sys
from parley import Client, Options
async def main():
    global client
    where = {"engine": "local", "workers": 1} if sys.argv[2] == "workers" else {"engine": sys.argv[2]}
    client = Client(Options(model="offline", env={"HOME": sys.argv[1]}, **where))
    await client.connect()
    print(client.pid or 0, flush=True)
asyncio.run(main())
"""


def test_an_engine_ends_with_the_program(harness: ClientHarness, engine: str) -> None:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(harness.folder), engine]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    pid = int(done.stdout)
    assert pid == 0 or not Path(f"/proc/{pid}").exists()
