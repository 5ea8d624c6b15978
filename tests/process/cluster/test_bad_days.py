"""Hosts that are drained, and NATS servers that are restarted or full, while sessions work."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.helpers.host_process import Rig, cluster_rig
from tests.helpers.patience import PATIENCE_SECONDS

SESSIONS = 6


async def begin(rig: Rig, text: str) -> list[tuple[str, str]]:
    """Sessions with a prompt each."""
    sessions = await asyncio.gather(*(rig.gateway.create(cwd=".") for _ in range(SESSIONS)))
    prompts = await asyncio.gather(*(rig.prompt(session, text) for session in sessions))
    return list(zip(sessions, prompts, strict=True))


async def check_results(rig: Rig, begun: list[tuple[str, str]], text: str) -> None:
    """Each prompt has one result."""
    for session, uuid in begun:
        await rig.result(session, uuid)
        found = [line["result"] for line in await rig.lines(session) if line["type"] == "result"]
        assert found == [text]


async def test_a_host_that_is_drained_finishes_its_turns_and_hands_the_rest_over(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig, rig.host("one") as one, rig.host("two"):
        await rig.wait_owned(one=4, two=4)
        begun = await begin(rig, "wait 0.5\nsay done")
        one.signal(signal.SIGTERM)
        assert await one.wait() == 0
        assert await rig.owned() == {"two": 8} or "one" not in await rig.owned()
        later = [await rig.gateway.ask(session, "say later") for session, _ in begun]

        assert {result["result"] for result in later} == {"later"}
        for session, uuid in begun:
            await rig.result(session, uuid)
            found = [line["result"] for line in await rig.lines(session) if line["type"] == "result"]
            assert found == ["done", "later"]


async def test_turns_continue_when_nats_was_restarted(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig, rig.host("one"):
        begun = await begin(rig, "wait 0.5\nsay one\ncall Read {}\nsay two")
        rig.nats.kill()
        rig.nats.restart()
        await check_results(rig, begun, "two")


async def test_turns_continue_when_nats_was_away_longer_than_a_lease(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig, rig.host("one") as one:
        begun = await begin(rig, "wait 1\nsay done")
        rig.nats.freeze()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not any("lost shard" in line for line in one.stderr):  # noqa: ASYNC110  # of another process
                await asyncio.sleep(0.05)
        rig.nats.thaw()
        await check_results(rig, begun, "done")


async def test_a_full_nats_server_keeps_a_turn_waiting_until_there_is_room(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path, "max_file_store: 3MB") as rig, rig.host("one") as one:
        session = await rig.gateway.create(cwd=".")
        text = "x" * 200_000
        sent = []
        for _ in range(30):
            path = f"/sessions/{session}/prompts"
            status, reply = await rig.gateway.request("POST", path, {"content": f"say {text}"})
            if status != 202:
                break
            sent.append(reply["uuid"])
        assert status >= 500, "the server never was full"
        rig.nats.stop()
        rig.nats.jetstream = "max_file_store: 300MB"
        rig.nats.restart()
        for uuid in sent:
            await rig.result(session, uuid)
        assert one.process is not None
        assert one.process.returncode is None


async def test_a_full_log_answers_503_and_names_nats_and_nothing_refused_runs_later(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig, rig.host("one"):
        session, other = await rig.gateway.create(cwd="."), await rig.gateway.create(cwd=".")
        await rig.gateway.ask(session, "say before")
        limit_log(rig, max_bytes=1)
        prompts = f"/sessions/{session}/prompts"
        refused = [await rig.gateway.request("POST", prompts, {"content": f"say {text}"}) for text in ("one", "two")]
        created = await rig.gateway.request("POST", "/sessions", {"cwd": "."})
        status, listed = await rig.gateway.request("GET", "/sessions")
        for code, reply in (*refused, created):
            assert (code, reply["error"]["code"]) == (503, "cluster_unavailable"), reply
            assert f"NATS at 127.0.0.1:{rig.nats.port}" in reply["error"]["message"]
            assert "no room" in reply["error"]["message"]
        assert (status, {row["id"] for row in listed["sessions"]}) == (200, {session, other})

        limit_log(rig, max_bytes=-1)
        assert (await rig.gateway.ask(session, "say after"))["result"] == "after"
        found = [line["result"] for line in await rig.lines(session) if line["type"] == "result"]
        assert found == ["before", "after"]


async def test_a_prompt_that_a_full_log_refuses_leaves_the_running_turn_to_be_finished(tmp_path: Path) -> None:
    """The prompt is what finds the log full, so the session is loaded again without it."""
    gate = tmp_path / "gate"
    command = json.dumps({"command": f"until test -e {gate}; do sleep 0.05; done"})
    options = ("--model", "offline", "--permission-mode", "bypassPermissions")
    async with cluster_rig(tmp_path) as rig, rig.host("one", *options):
        session = await rig.gateway.create(cwd=".")
        running = await rig.prompt(session, f"call Bash {command}\nsay finished")
        await rig.wait_line(session, lambda line: line["type"] == "assistant")
        limit_log(rig, max_bytes=1)
        status, reply = await rig.gateway.request("POST", f"/sessions/{session}/prompts", {"content": "say refused"})
        gate.touch()
        limit_log(rig, max_bytes=-1)

        assert status == 503, reply
        assert (await rig.result(session, running))["subtype"] == "success"
        assert (await rig.gateway.ask(session, "say after"))["result"] == "after"
        results = [line["result"] for line in await rig.lines(session) if line["type"] == "result"]
        assert results == ["finished", "after"], results


def limit_log(rig: Rig, max_bytes: int) -> None:
    """As an operator does with `nats stream edit`."""
    script = (
        "import asyncio, json, sys, nats\n"
        "async def main():\n"
        "    client = await nats.connect(sys.argv[1])\n"
        "    info = json.loads((await client.request('$JS.API.STREAM.INFO.parley_log')).data)\n"
        "    config = info['config'] | {'max_bytes': int(sys.argv[2])}\n"
        "    reply = await client.request('$JS.API.STREAM.UPDATE.parley_log', json.dumps(config).encode())\n"
        "    assert 'error' not in json.loads(reply.data), reply.data\n"
        "    await client.close()\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", script, rig.nats.url, str(max_bytes)], check=True)
