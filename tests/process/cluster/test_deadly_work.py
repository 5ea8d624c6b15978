"""Sessions of which hosts die: they are stopped, and the others continue."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedError

from parley.cluster.takeovers import read_work
from tests.helpers.gateway import read_until
from tests.helpers.host_process import Rig, cluster_rig
from tests.helpers.patience import PATIENCE_SECONDS

PARENT = "$(awk '/^PPid/ {print $2}' /proc/%s/status)"
KILL_HOST = f"kill -9 {PARENT % (PARENT % '$PPID')}; sleep 60"
"""Ends the host. Between it and the shell are the two processes that start and watch commands."""
OPTIONS = ("--model", "offline", "--permission-mode", "bypassPermissions")


def deadly_prompt(times: int) -> str:
    call = f"call Bash {json.dumps({'command': KILL_HOST})}"
    return "\n".join([*["say I try.", call] * times, "say survived"])


def run_cluster(rig: Rig, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "parley", "cluster", *words, "--nats", rig.nats.url]
    return subprocess.run(command, capture_output=True, text=True, check=False)


async def test_a_session_of_which_two_hosts_died_is_stopped_and_the_others_continue(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig, AsyncExitStack() as stack:
        hosts = [await stack.enter_async_context(rig.host(name, *OPTIONS)) for name in ("one", "two", "three")]
        other = await rig.gateway.create(cwd=".")
        deadly = await rig.gateway.create(cwd=".")
        uuid = await rig.prompt(deadly, deadly_prompt(4))
        result = await rig.result(deadly, uuid)
        again = await rig.gateway.request("POST", f"/sessions/{deadly}/prompts", {"content": "say again"})
        answer = await rig.gateway.ask(other, "say hello")
        status = await asyncio.to_thread(run_cluster, rig, "status")
        released = await asyncio.to_thread(run_cluster, rig, "release", deadly)

        assert sum(host.is_running for host in hosts) == 1
        assert result["is_error"]
        assert "failed one after the other" in json.dumps(result)
        assert again[0] == 500
        assert again[1]["error"]["code"] == "hosts_failed"
        assert answer["result"] == "hello"
        assert status.returncode == 1
        assert f"parley cluster release {deadly}" in status.stdout
        assert released.returncode == 0, released.stderr
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = 0
            while code != 202:
                code, sent = await rig.gateway.request("POST", f"/sessions/{deadly}/prompts", {"content": "say well"})
        assert (await rig.result(deadly, sent["uuid"]))["result"] == "well"


async def test_a_turn_that_ran_beside_a_deadly_one_continues(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig, AsyncExitStack() as stack:
        hosts = [await stack.enter_async_context(rig.host("host-0", *OPTIONS))]
        await rig.wait_owned(**{"host-0": 8})
        innocent, deadly = await rig.gateway.create(cwd="."), await rig.gateway.create(cwd=".")
        calm = await rig.prompt(innocent, "wait 6\nsay fine")
        uuid = await rig.prompt(deadly, deadly_prompt(8))
        results = asyncio.gather(rig.result(innocent, calm), rig.result(deadly, uuid))
        while not results.done():
            assert hosts[-1].process is not None
            ended = asyncio.ensure_future(hosts[-1].process.wait())
            either: set[asyncio.Future[Any]] = {results, ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not results.done():
                hosts.append(await stack.enter_async_context(rig.host(f"host-{len(hosts)}", *OPTIONS)))
        fine, failed = await results

        assert fine["result"] == "fine"
        assert failed["is_error"]
        assert len(hosts) <= 4
        status = await asyncio.to_thread(run_cluster, rig, "status")
        assert innocent not in status.stdout


async def test_a_host_that_was_only_slow_does_not_count_as_dead(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig, rig.host("one", *OPTIONS) as slow:
        await rig.wait_owned(one=8)
        session = await rig.gateway.create(cwd=".")
        # A host that continues does not repeat the first call. The second one keeps its turn from ending.
        wait = f'call Bash {{"command": "until test -e {tmp_path}/gate; do sleep 0.1; done"}}'
        uuid = await rig.prompt(session, f"{wait}\n{wait}")
        await rig.wait_line(session, lambda line: line["type"] == "assistant")
        slow.signal(signal.SIGSTOP)
        async with rig.host("two", *OPTIONS) as second:
            await rig.wait_owned(two=8)
            await rig.wait_work(session, left=1)
            slow.signal(signal.SIGCONT)
            await second.kill()
        (tmp_path / "gate").touch()
        result = await rig.result(session, uuid)

        assert not result["is_error"], result
        assert (await rig.gateway.ask(session, "say well"))["result"] == "well"


async def interrupt(rig: Rig, gate: Path) -> tuple[str, str]:
    """A session whose host died during a turn that ends when the gate exists, and the prompt."""
    async with rig.host("first", *OPTIONS) as host:
        await rig.wait_owned(first=8)
        session = await rig.gateway.create(cwd=".")
        uuid = await rig.prompt(session, f"call Bash {json.dumps({'command': f'until test -e {gate}; do :; done'})}")
        await rig.wait_line(session, lambda line: line["type"] == "assistant")
        await host.kill()
    return session, uuid


async def note_deaths(rig: Rig, session: str, **work: Any) -> None:
    """Two hosts have died of a session: the row of its work is as they have left it."""
    (row,) = await rig.cluster.registry.rows("work.>")
    assert row.key.endswith(session)
    value = {"life": "second", "left": [read_work(row.value).life], **work}
    await rig.cluster.registry.put(row.key, json.dumps(value).encode())


async def test_a_session_of_which_one_host_died_while_it_loaded_it_continues(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig:
        session, uuid = await interrupt(rig, tmp_path / "gate")
        await note_deaths(rig, session)
        (tmp_path / "gate").touch()
        async with rig.host("third", *OPTIONS):
            result = await rig.result(session, uuid)

        assert not result["is_error"], result


async def test_a_session_of_which_two_hosts_died_while_they_loaded_it_waits_for_an_operator(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig:
        session, uuid = await interrupt(rig, tmp_path / "gate")
        await note_deaths(rig, session, is_alone=True, loads=1)
        (tmp_path / "gate").touch()
        async with rig.host("third", *OPTIONS):
            refused = await rig.gateway.request("GET", f"/sessions/{session}")
            with pytest.raises(ConnectionClosedError) as closed:
                await read_until(await rig.gateway.connect(f"/sessions/{session}/ws?after=0"), "result")
            released = await asyncio.to_thread(run_cluster, rig, "release", session)
            result = await rig.result(session, uuid)

        assert (refused[0], refused[1]["error"]["code"]) == (500, "hosts_failed")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4400
        assert released.returncode == 0, released.stderr
        assert not result["is_error"], result
