"""A gateway of a cluster: any gateway reaches any session, and clients do not notice which host runs it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.helpers.cluster import LocalCluster, local_cluster
from tests.helpers.gateway import Server, open_question
from tests.helpers.patience import PATIENCE_SECONDS
from tests.process.gateway.test_editors import connect


async def test_a_session_is_created_and_prompted_through_any_gateway(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as (cluster, server):
        other = await cluster.add_gateway()
        session = await server.create(cwd=".")
        result = await other.ask(session, "Hi")
        assert result["subtype"] == "success"
        found = await server.get(f"/sessions/{session}")
        assert (found["id"], found["turns"]) == (session, 1)
        listed = await other.get("/sessions")
        assert [row["id"] for row in listed["sessions"]] == [session]


async def test_events_about_questions_continue_after_the_death_of_a_host(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as (cluster, server):
        events = asyncio.create_task(read_states(server, 2))
        session = await server.create()
        await server.request("POST", f"/sessions/{session}/prompts", {"content": 'call Bash {"command": "touch a"}'})
        asked = await open_question(server, session)
        await cluster.kill_owner(session)
        path = f"/questions/{session}/{asked['request_id']}/answer"
        assert (await server.request("POST", path, {"behavior": "allow"}))[0] == 200
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await events == ["open", "decided"]


async def read_states(server: Server, count: int) -> list[str]:
    """The states of questions, each time that one changes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = f"GET /questions/events HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n\r\n"
    writer.write(head.encode())
    states: list[str] = []
    while len(states) < count:
        line = await reader.readline()
        assert line
        if line.startswith(b"data: "):
            state = json.loads(line[6:])["state"]
            states += [state] if states[-1:] != [state] else []
    writer.close()
    return states


async def test_searches_and_costs_have_the_sessions_that_are_not_loaded(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, idle_seconds=0)

    async def find() -> list[tuple[str, str]]:
        found = await server.get("/sessions?search=pineapple")
        return [(row["id"], row.get("match")) for row in found["sessions"]]

    async def count_turns() -> int:
        return sum(row["turns"] for row in (await server.get("/costs"))["by_day"])

    try:
        host = await cluster.add_host("one")
        server = await cluster.add_gateway()
        session = await server.create()
        await server.ask(session, "say pineapple")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(host.host.sessions):  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(0.02)
        assert await find() == [(session, "pineapple")]
        assert await count_turns() == 1

        await cluster.kill_owner(session)
        await cluster.add_host("two")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await find() != [(session, "pineapple")]:  # noqa: ASYNC110  # it reads the log by and by
                await asyncio.sleep(0.02)
        assert await find() == [(session, "pineapple")]
        assert await count_turns() == 1
        await server.ask(session, "say mango")  # now it is loaded
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await count_turns() != 2:  # noqa: ASYNC110  # what was there is indexed again
                await asyncio.sleep(0.02)
    finally:
        await cluster.close()


async def test_a_prompt_and_a_session_that_are_sent_while_nobody_runs_them(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, hosts=1) as (cluster, gateway):
        session = await gateway.create()
        await cluster.kill_owner(session)
        waiting = asyncio.gather(
            gateway.request("POST", f"/sessions/{session}/prompts", {"content": "say Hello."}),
            gateway.request("POST", "/sessions", {}),
            gateway.request("GET", "/sessions"),
        )
        await cluster.add_host("late")
        (accepted, _), (created, other), (listed, found) = await waiting
        assert (accepted, created, listed) == (202, 201, 200)
        assert {row["id"] for row in found["sessions"]} >= {session}
        result = await gateway.ask(other["session_id"], "say Hi.")
        assert result["result"] == "Hi."


async def test_a_token_of_one_gateway_is_valid_at_the_other(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as (cluster, first):
        second = await cluster.add_gateway()
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
        assert socket.close_code == 4401
        assert (await second.request("GET", "/me", token=token))[0] == 401
        own = await first.make_token("own", "admin")
        assert (await first.request("DELETE", "/tokens/own", token=own))[0] == 204  # the reply comes before the end


async def test_an_editor_continues_on_another_host(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as (cluster, server):
        async with await connect(server, answer=None) as editor:
            session = await editor.new(server.root)
            await editor.start(session, 'call Bash {"command": "touch made"}\nsay Made.')
            await editor.wait_for(lambda: editor.asked)
            asked = await open_question(server, session)
            await cluster.kill_owner(session)
            path = f"/questions/{session}/{asked['request_id']}/answer"
            status, reply = await server.request("POST", path, {"behavior": "allow"})
            assert status == 200, reply
            await editor.wait_for(lambda: "Made." in editor.texts("agent_message_chunk"))
            again = await editor.prompt(session, "say Again.")
        assert again["result"]["stopReason"] == "end_turn"
        assert editor.texts("agent_message_chunk") == "Made.Again."
        assert len(editor.asked) == 1
        assert (cluster.root / "made").exists()
