"""Real gateways and hosts on a real NATS server: hosts are killed, and clients do not notice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.helpers.gateway import PATIENCE_SECONDS, control, following, read_until, reply, user
from tests.helpers.gateway_process import freeze, process_cluster, thaw

HOOKS = {"PreToolUse": [{"matcher": "Bash", "hookCallbackIds": ["judge"]}]}
TOUCH = 'call Bash {"command": "touch made"}'


async def test_an_official_client_gets_every_line_once_while_hosts_are_killed(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster:
        (gateway,) = cluster.gateways
        socket = await gateway.connect("/ws")
        await socket.send(control("i", "initialize"))
        await read_until(socket, "control_response")
        seen: list[dict[str, Any]] = []
        session = ""
        for number in range(3):
            await socket.send(user(f"wait 1\nsay answer {number}"))
            lines = await read_until(socket, "system")
            session = lines[-1]["session_id"]
            await cluster.kill_owner(session)
            seen += lines + await read_until(socket, "result")
        results = [line["result"] for line in seen if line["type"] == "result"]
        assert results == ["answer 0", "answer 1", "answer 2"]
        uuids = [line["uuid"] for line in seen if line["type"] in ("assistant", "result")]
        assert len(uuids) == len(set(uuids))
        assert not [line for line in seen if line["type"] == "user"]  # its own prompts are not sent back
        stored = [line for line in await cluster.rig.lines(session) if line["type"] in ("assistant", "result")]
        assert uuids == [line["uuid"] for line in stored]


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


async def test_numbered_lines_and_events_have_no_gap_and_no_double(tmp_path: Path) -> None:
    async with process_cluster(tmp_path, gateways=2) as cluster:
        first, second = cluster.gateways
        session = await first.create()
        events = asyncio.create_task(read_events(second.port, session, second.token, 2))
        async with following(first, session) as viewer:
            for number in range(2):
                status, _ = await second.request(
                    "POST", f"/sessions/{session}/prompts", {"content": f"wait 1\nsay {number}"}
                )
                assert status == 202
                await cluster.kill_owner(session)
                await viewer.wait_for(lambda number=number: len(viewer.results()) == number + 1)
            assert viewer.cuts == 0
            assert [number for number, _ in viewer.lines] == list(range(1, len(viewer.lines) + 1))
        async with asyncio.timeout(PATIENCE_SECONDS):
            numbers = await events
        assert numbers == list(range(1, numbers[-1] + 1))


async def read_events(port: int, session: str, token: str, results: int) -> list[int]:
    """The ids of the events of a session up to a number of results."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET /sessions/{session}/events?after=0 HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )
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


async def test_a_prompt_and_a_session_that_are_sent_while_nobody_runs_them(tmp_path: Path) -> None:
    async with process_cluster(tmp_path, hosts=1) as cluster:
        (gateway,) = cluster.gateways
        session = await gateway.create()
        (host,) = cluster.hosts.values()
        await host.kill()
        waiting = asyncio.gather(
            gateway.request("POST", f"/sessions/{session}/prompts", {"content": "say Hello."}),
            gateway.request("POST", "/sessions", {}),
            gateway.request("GET", "/sessions"),
        )
        await cluster.add_host()
        (accepted, _), (created, other), (listed, found) = await waiting
        assert (accepted, created, listed) == (202, 201, 200)
        assert {row["id"] for row in found["sessions"]} >= {session}
        result = await gateway.ask(other["session_id"], "say Hi.")
        assert result["result"] == "Hi."


async def test_a_frozen_owner_is_replaced_without_the_client(tmp_path: Path) -> None:
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
        await socket.send(user("say Three."))
        assert (await read_until(socket, "result"))[-1]["result"] == "Three."
        assert results_of(await cluster.rig.lines(session)) == ["One.", "Two.", "Three."]


def results_of(lines: list[dict[str, Any]]) -> list[str]:
    return [line["result"] for line in lines if line["type"] == "result"]


async def test_a_gateway_without_nats_says_so_and_recovers(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster:
        (gateway,) = cluster.gateways
        session = await gateway.create()
        socket = await gateway.connect(f"/sessions/{session}/ws")
        await socket.send(user("say One."))
        await read_until(socket, "result")
        cluster.rig.nats.kill()
        status, refused = await gateway.request("GET", f"/sessions/{session}")
        assert (status, refused["error"]["code"]) == (503, "cluster_unavailable")
        assert "NATS" in refused["error"]["message"]
        assert (await gateway.request("GET", "/readyz"))[0] == 503
        assert (await gateway.request("GET", "/healthz"))[0] == 200
        await socket.send(user("say Two."))
        cluster.rig.nats.restart()
        assert (await read_until(socket, "result"))[-1]["result"] == "Two."
        assert (await gateway.request("GET", f"/sessions/{session}"))[0] == 200


async def test_a_token_of_one_gateway_is_valid_at_the_other(tmp_path: Path) -> None:
    async with process_cluster(tmp_path, gateways=2) as cluster:
        first, second = cluster.gateways
        token = await first.make_token("ann", "create", "prompt", tenant="acme")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await second.request("GET", "/me", token=token))[0] != 200:
                pass
        status, made = await second.request("POST", "/sessions", {}, token)
        assert status == 201
        assert (await first.request("GET", f"/sessions/{made['session_id']}", token=token))[0] == 200
        assert (await second.request("GET", f"/sessions/{made['session_id']}"))[0] == 200  # the administrator's
        other = await first.make_token("bob", "view", tenant="other")
        assert (await first.request("GET", f"/sessions/{made['session_id']}", token=other))[0] == 404
        socket = await second.connect(f"/sessions/{made['session_id']}/ws", token)
        assert (await first.request("DELETE", "/tokens/ann"))[0] == 204
        async with asyncio.timeout(PATIENCE_SECONDS):
            await socket.wait_closed()
        assert socket.close_code == 1012
        assert (await second.request("GET", "/me", token=token))[0] == 401
