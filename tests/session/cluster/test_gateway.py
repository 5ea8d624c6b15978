"""A gateway of a cluster: any gateway reaches any session, and clients do not notice which host runs it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.helpers.cluster import local_cluster
from tests.helpers.gateway import PATIENCE_SECONDS, Server, open_question


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
