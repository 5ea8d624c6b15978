"""Many sessions in a few worker processes: `Options(engine="local", workers=N)`.

What a client can do with an engine in a worker is tested with the other engines; here is what workers add.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parley import ClaudeSDKError, Client, Options, ProcessError, get_session_messages, run_many, run_sync
from parley.sdk.launch.worker_pool import get_pool
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.sdk import ClientHarness

HOST = """
import asyncio, os, sys
from parley import Client, Options
folder, way = sys.argv[1:]
async def main():
    options = Options(model="offline", engine="local", workers=2, cwd=folder, permission_mode="bypassPermissions",
                      env={"HOME": folder, "IS_SANDBOX": "1"})
    clients = [Client(options) for _ in range(4)]
    for client in clients:
        await client.connect()
    if way == "fork" and os.fork() == 0:
        os.read(0, 1)  # this process has copies of all sockets, and outlives the host
        os._exit(0)
    turn = await clients[0].ask('call Bash {"command": "echo $$ > shell; sleep 600 & echo $! > sleeper; wait"}')
    while not (os.path.exists("sleeper") and open("sleeper").read().endswith("\\n")):
        await asyncio.sleep(0.01)
    print(*{client.pid for client in clients}, flush=True)
    if way == "exit":
        sys.exit(3)
    if way == "return":
        return
    await turn.text()
asyncio.run(main())
"""
ACKNOWLEDGED = """
import asyncio, json, sys
from parley import Client, Options
folder, workers = sys.argv[1:]
async def talk(number):
    options = Options(model="offline", engine="local", workers=int(workers) or None, cwd=folder, env={"HOME": folder})
    async with Client(options) as client:
        for turn in range(1000):
            result = await client.run(f"say Answer {number}-{turn}.")
            print(json.dumps([result.session_id, result.text]), flush=True)
async def main():
    await asyncio.gather(*map(talk, range(8)))
asyncio.run(main())
"""


@pytest.fixture
def harness(tmp_path: Path) -> ClientHarness:
    return ClientHarness(tmp_path)


async def connected(*options: Options) -> list[Client[Any]]:
    clients = [Client(each) for each in options]
    for client in clients:
        await client.connect()
    return clients


async def close(clients: list[Client[Any]]) -> None:
    for client in clients:
        await client.close()


def wait_gone(pids: list[int]) -> None:
    """Wait until processes have ended that are not our children."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([descriptor], [], [], PATIENCE_SECONDS)[0], f"process {pid} is still running"
        finally:
            os.close(descriptor)


async def test_sessions_go_to_the_worker_with_the_fewest(harness: ClientHarness) -> None:
    clients = await connected(*[harness.options("workers", workers=2)] * 4)
    pids = [client.pid for client in clients]
    await clients[1].close()
    clients += await connected(harness.options("workers", workers=2))
    next_pid = clients[-1].pid
    await close(clients)

    assert len(set(pids)) == 2
    assert None not in pids
    assert os.getpid() not in pids
    assert pids.count(pids[0]) == 2
    assert next_pid == pids[1]


async def test_a_worker_starts_when_the_others_are_in_use(harness: ClientHarness) -> None:
    options = harness.options("workers", workers=3)
    before = len(get_pool().workers)
    pids = set()
    for _ in range(5):
        clients = await connected(options)
        pids.add(clients[0].pid)
        await close(clients)

    assert len(pids) == 1
    assert len(get_pool().workers) == max(before, 1)


async def test_many_prompts_use_the_workers(harness: ClientHarness) -> None:
    outcomes = await run_many(["go"] * 12, harness.options("workers", workers=2), concurrency=6)

    assert [outcome.unwrap().text for outcome in outcomes] == ["Hello."] * 12
    assert [worker.sessions for worker in get_pool().workers] == [0] * len(get_pool().workers)


def test_workers_serve_programs_that_start_one_loop_after_the_other(harness: ClientHarness) -> None:
    texts = [run_sync("go", harness.options("workers")).text for _ in range(3)]

    assert texts == ["Hello."] * 3


async def test_the_death_of_a_worker_ends_its_sessions_only_and_it_is_replaced(harness: ClientHarness) -> None:
    script = 'at_end = "repeat"\n[[turn]]\ntext = "Never."\ndelay_ms = 60000\n'
    busy = await connected(*[harness.options("workers", script, workers=2)] * 2)
    turns = [await client.ask("go") for client in busy]
    dead, other = busy[0].pid, busy[1].pid
    assert dead is not None
    os.kill(dead, signal.SIGKILL)
    with pytest.raises(ProcessError, match=f"worker process {dead} was killed by SIGKILL") as raised:
        await turns[0].text()
    with pytest.raises(ClaudeSDKError):
        await busy[0].run("go")
    others_turn_ended = turns[1].result is not None
    new = await connected(harness.options("workers", workers=2))
    new_pid, text = new[0].pid, (await new[0].run("go")).text
    await close([*busy, *new])

    assert raised.value.exit_code == -signal.SIGKILL
    assert not others_turn_ended
    assert text == "Hello."
    assert new_pid not in (dead, other)


async def test_sessions_of_a_worker_have_their_own_environment_and_directory(
    harness: ClientHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
at_end = "repeat"
[[turn]]
tools = [{ name = "Bash", input = { command = 'echo "$SECRET:$OTHER:$HOST_SECRET:$PWD" > seen' } }]
[[turn]]
text = "Done."
"""
    monkeypatch.setenv("HOST_SECRET", "of-the-host")
    folders = [tmp_path / "a", tmp_path / "b"]
    clients = []
    for folder, name in zip(folders, ("SECRET", "OTHER"), strict=True):
        folder.mkdir()
        env = {name: f"of-{folder.name}"}
        given = {"env": env, "command_env": "all", "permission_mode": "bypassPermissions"}
        clients += await connected(harness.options("workers", script, cwd=folder, **given))
        monkeypatch.delenv("HOST_SECRET", raising=False)
    pids = {client.pid for client in clients}
    await asyncio.gather(*(client.run("go") for client in clients))
    inherited = Path(f"/proc/{clients[0].pid}/environ").read_text()
    await close(clients)

    assert len(pids) == 1
    seen = [(folder / "seen").read_text().strip() for folder in folders]
    assert seen == [f"of-a::of-the-host:{folders[0]}", f":of-b::{folders[1]}"]
    assert "of-a" not in inherited
    assert "of-b" not in inherited
    assert "a-key-for-tests" not in inherited


@pytest.mark.parametrize("way", ["kill", "exit", "return", "fork"])
def test_workers_and_commands_end_with_the_program(tmp_path: Path, way: str) -> None:
    """However it ends, and even if a process that it forked has copies of its sockets."""
    command = [sys.executable, "-c", HOST, str(tmp_path), way]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as host:
        assert host.stdout is not None
        workers = [int(pid) for pid in host.stdout.readline().split()]
        commands = [int((tmp_path / name).read_text()) for name in ("shell", "sleeper")]
        if way in ("kill", "fork"):
            host.kill()
        host.wait(PATIENCE_SECONDS)
        if way in ("exit", "return"):
            left = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
        else:
            wait_gone(workers)
            left = []
        wait_gone(commands)
    assert len(workers) == 2
    assert left == []


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_was_acknowledged_survives_the_death_of_the_program(tmp_path: Path, workers: str) -> None:
    """The program and its workers are killed while eight sessions work."""
    command = [sys.executable, "-c", ACKNOWLEDGED, str(tmp_path), workers]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        lines = [host.stdout.readline() for _ in range(60)]
        host.kill()
        lines += [line for line in host.stdout if line.endswith(b"\n")]
    for session_id, text in map(json.loads, lines):
        messages = get_session_messages(session_id, str(tmp_path), env={"HOME": str(tmp_path)})
        answers = [block["text"] for one in messages if one.type == "assistant" for block in one.message["content"]]
        assert text in answers


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"workers": 0}, ValueError, "workers must be a whole number, 1 or more, not 0"),
        ({"workers": -2}, ValueError, "workers must be a whole number, 1 or more, not -2"),
        ({"workers": True}, TypeError, "workers must be a whole number, 1 or more, not bool"),
        ({"workers": "2"}, TypeError, "workers must be a whole number, 1 or more, not str"),
        ({"workers": 2, "engine": "process"}, ValueError, "workers needs engine='local', but engine is 'process'"),
    ],
)
async def test_invalid_values_are_refused(given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        await Client(Options(**{"engine": "local", **given})).connect()
