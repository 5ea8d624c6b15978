"""Real gateways and hosts on a real NATS server: hosts are killed, and clients do not notice."""

from __future__ import annotations

import asyncio
import json
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.helpers.cluster_processes import RunningCluster
from tests.helpers.gateway import Server, control, following, read_until, reply, user
from tests.helpers.gateway_process import freeze, process_cluster, thaw
from tests.helpers.patience import PATIENCE_SECONDS

HOOKS = {"PreToolUse": [{"matcher": "Bash", "hookCallbackIds": ["judge"]}]}
TOUCH = 'call Bash {"command": "touch made"}'


async def test_every_client_gets_every_line_once_while_hosts_are_killed(tmp_path: Path) -> None:
    async with process_cluster(tmp_path, gateways=2) as cluster:
        first, second = cluster.gateways
        session = await first.create()
        events = asyncio.create_task(read_events(second.port, session, second.token, 2))
        official = await second.connect(f"/sessions/{session}/ws")
        await official.send(control("i", "initialize"))
        await read_until(official, "control_response")
        seen: list[dict[str, Any]] = []
        async with following(first, session) as viewer:
            for number in range(2):
                await official.send(user(f"wait 1\nsay answer {number}"))
                seen += await read_until(official, "system")
                await cluster.kill_owner(session)
                seen += await read_until(official, "result")
            await viewer.wait_for(lambda: len(viewer.results()) == 2)
            numbers = [number for number, _ in viewer.lines]
        assert (viewer.cuts, numbers) == (0, list(range(1, len(numbers) + 1)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            of_events = await events
        assert of_events == list(range(1, of_events[-1] + 1))

        assert results_of(seen) == ["answer 0", "answer 1"]
        assert not [line for line in seen if line["type"] == "user"]  # its own prompts are not sent back
        said = [line["uuid"] for line in seen if line["type"] in ("assistant", "result")]
        stored = [line for line in await cluster.rig.lines(session) if line["type"] in ("assistant", "result")]
        assert said == [line["uuid"] for line in stored]
        assert len(said) == len(set(said))


async def test_a_question_hooks_and_its_answer_survive_the_owner(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster:
        (gateway,) = cluster.gateways
        socket = await gateway.connect("/ws")
        await socket.send(control("i", "initialize", hooks=HOOKS))
        await read_until(socket, "control_response")
        await socket.send(user(TOUCH))
        hook = (await read_until(socket, "control_request"))[-1]
        await socket.send(reply(hook["request_id"], {}))
        asked = (await read_until(socket, "control_request"))[-1]
        assert asked["request"]["subtype"] == "can_use_tool"
        (listed,) = (await gateway.get("/sessions"))["sessions"]
        await cluster.kill_owner(listed["id"])
        # The new engine runs the hook again. The client is still thinking about the question: it is not asked again,
        # and its answer counts on the new owner.
        again = (await read_until(socket, "control_request"))[-1]
        assert again["request"]["subtype"] == "hook_callback"
        assert again["request_id"] != hook["request_id"]
        await socket.send(reply(again["request_id"], {}))
        await socket.send(reply(asked["request_id"], {"behavior": "allow"}))
        lines = await read_until(socket, "result")
        assert [line for line in lines if line["type"] == "control_request"] == []
        assert (lines[-1]["is_error"], (cluster.rig.root / "made").exists()) == (False, True)
        # The hooks of the client apply on the new owner, too.
        await socket.send(user('call Bash {"command": "touch second"}'))
        hook = (await read_until(socket, "control_request"))[-1]
        assert hook["request"]["subtype"] == "hook_callback"
        decision = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no"}
        await socket.send(reply(hook["request_id"], {"hookSpecificOutput": decision}))
        await read_until(socket, "result")
        assert not (cluster.rig.root / "second").exists()


async def read_events(port: int, session: str, token: str, results: int) -> list[int]:
    """The ids of the events of a session up to a number of results."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /sessions/{session}/events?after=0 HTTP/1.0\r\nHost: localhost\r\n"
    writer.write(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
    numbers: list[int] = []
    number = 0
    while results:
        line = await reader.readline()
        assert line, numbers
        if line.startswith(b"id: "):
            number = int(line[4:])
        elif line.startswith(b"data: "):
            numbers.append(number)
            results -= json.loads(line[6:])["type"] == "result"
    writer.close()
    return numbers


def results_of(lines: list[dict[str, Any]]) -> list[str]:
    return [line["result"] for line in lines if line["type"] == "result"]


async def test_a_frozen_owner_and_a_dead_nats_server_are_waited_for(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster:
        (gateway,) = cluster.gateways
        session = await gateway.create()
        socket = await gateway.connect(f"/sessions/{session}/ws")
        await socket.send(user("say One."))
        await read_until(socket, "result")
        owner = await cluster.find_owner(session)
        freeze(owner.process)
        await socket.send(user("say Two."))
        assert (await read_until(socket, "result"))[-1]["result"] == "Two."
        thaw(owner.process)

        cluster.rig.nats.kill()
        status, refused = await gateway.request("GET", f"/sessions/{session}")
        assert (status, refused["error"]["code"]) == (503, "cluster_unavailable")
        assert "NATS" in refused["error"]["message"]
        assert (await gateway.request("GET", "/readyz"))[0] == 503
        assert (await gateway.request("GET", "/healthz"))[0] == 200
        await socket.send(user("say Three."))
        cluster.rig.nats.restart()
        assert (await read_until(socket, "result"))[-1]["result"] == "Three."
        assert (await gateway.request("GET", f"/sessions/{session}"))[0] == 200
        assert results_of(await cluster.rig.lines(session)) == ["One.", "Two.", "Three."]


async def test_a_list_does_not_wait_for_a_host_that_is_frozen_and_says_what_is_missing(tmp_path: Path) -> None:
    async with RunningCluster(tmp_path, lease_seconds=10) as cluster:
        await cluster.wait_until_balanced()
        (gateway,) = cluster.gateways
        sessions = [await gateway.create() for _ in range(4)]
        for session in sessions:
            await gateway.ask(session, "say hello")
        owner = await cluster.owner_of(sessions[0])
        owner.freeze()
        headers, listed = await asyncio.to_thread(get_sessions, gateway)

        assert headers["parley-incomplete"] == f"no reply from {owner.name}"
        assert {row["id"] for row in listed["sessions"]} == set(sessions)
        owner.thaw()


def get_sessions(gateway: Server) -> tuple[Message, dict[str, Any]]:
    request = Request(f"http://127.0.0.1:{gateway.port}/sessions", headers={"Authorization": f"Bearer {gateway.token}"})
    with urlopen(request, timeout=PATIENCE_SECONDS) as reply:
        return reply.headers, json.loads(reply.read())
