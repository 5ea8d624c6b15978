"""The list of sessions, as the console shows it: fields, search, filters, changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.gateway import Server, open_question, run_turn
from tests.helpers.patience import PATIENCE_SECONDS

TOUCH = 'call Bash {"command": "touch made"}'


class Events:
    """Reads server-sent events."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream

    async def wait_for(self, condition: Any) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := await self._stream.readline():
                if line.startswith(b"data: "):
                    event: dict[str, Any] = json.loads(line[6:])
                    if condition(event):
                        return event
        raise AssertionError("the stream ended")


@asynccontextmanager
async def events(server: Server, path: str, token: str | None = None) -> AsyncIterator[Events]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token or server.token}\r\n\r\n"
    writer.write(head.encode())
    assert b"200" in await reader.readline()
    await reader.readuntil(b": connected\n")
    try:
        yield Events(reader)
    finally:
        writer.close()


async def test_a_session_says_what_it_does_and_what_it_said_last(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        [created] = (await server.get("/sessions"))["sessions"]
        await run_turn(server, session_id, "say The answer is 42.")
        listed = await server.get("/sessions")
        [info] = listed["sessions"]
        found = await server.get(f"/sessions/{session_id}")
        assert found == {**info, "clients": found["clients"]}  # the client of the turn is leaving
    assert listed["total"] == 1
    assert (created["title"], created["state"], created["model"], created["turns"]) == ("", "idle", None, 0)
    assert {name: info[name] for name in ("title", "state", "model", "permission_mode", "turns", "cost_usd")} == {
        "title": "say The answer is 42.",
        "state": "idle",
        "model": "offline",
        "permission_mode": "default",
        "turns": 1,
        "cost_usd": 0.0,
    }
    assert (info["last_error"], info["preview"]) == (None, "The answer is 42.")
    assert info["used_at"] > created["used_at"]


async def test_a_session_is_failed_until_a_turn_succeeds(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create(title="Mine")
        await run_turn(server, session_id, "fail 400 nothing works")
        failed = await server.get("/sessions?state=failed")
        assert [info["id"] for info in failed["sessions"]] == [session_id]
        assert "nothing works" in failed["sessions"][0]["last_error"]
        await run_turn(server, session_id, "say Well.")
        assert (await server.get("/sessions?state=failed"))["total"] == 0
        [info] = (await server.get("/sessions?state=idle,running"))["sessions"]
        assert (info["title"], info["state"], info["last_error"], info["turns"]) == ("Mine", "idle", None, 2)


async def test_an_open_question_is_a_state(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        await server.request("POST", f"/sessions/{session_id}/prompts", {"content": TOUCH})
        await open_question(server, session_id)
        [info] = (await server.get("/sessions?state=requires_action"))["sessions"]
        assert (info["id"], info["open_questions"]) == (session_id, 1)


async def test_search_finds_titles_folders_prompts_and_answers(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        (server.root / "atlas").mkdir()
        first = await server.create(title="Zebra crossing")
        second = await server.create(cwd="atlas")
        third = await server.create()
        await run_turn(server, third, "say Crème brûlée is a dessert.\nsay Second part.")

        async def find(text: str) -> list[str]:
            listed = await server.get(f"/sessions?search={text}")
            return [info["id"] for info in listed["sessions"]]

        assert await find("zebra%20cross") == [first]
        assert await find("ATLAS") == [second]
        assert await find("creme") == [third]
        assert await find("dess") == [third]
        assert await find("dessert%20part") == [third]
        assert await find("dessert%20zebra") == []
        assert await find("%22)%20OR%20*%20NEAR(") == []
        found = await server.get("/sessions?search=dessert")
        assert "brûlée is a dessert" in found["sessions"][0]["match"]
        assert "match" not in (await server.get("/sessions"))["sessions"][0]


async def test_a_tenant_finds_and_watches_only_its_own(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        tokens = {}
        for tenant in ("acme", "other"):
            body = {"name": tenant, "tenant": tenant, "scopes": ["create", "prompt", "approve"]}
            tokens[tenant] = (await server.request("POST", "/tokens", body))[1]["token"]
        ids = {}
        async with events(server, "/sessions/events", tokens["acme"]) as watched:
            for tenant in ("other", "acme"):
                ids[tenant] = (await server.request("POST", "/sessions", {}, tokens[tenant]))[1]["session_id"]
                await server.request(
                    "POST", f"/sessions/{ids[tenant]}/prompts", {"content": "say the secret word"}, tokens[tenant]
                )
            seen: set[str] = set()

            def is_done(event: dict[str, Any]) -> bool:
                seen.add(event["session"]["id"])
                return bool(event["session"]["id"] == ids["acme"] and event["session"]["turns"])

            await watched.wait_for(is_done)
        assert seen == {ids["acme"]}
        for tenant, token in tokens.items():
            for path in ("/sessions?search=secret", "/sessions"):
                assert [info["id"] for info in (await server.get(path, token))["sessions"]] == [ids[tenant]]
            costs = await server.get("/costs", token)
            assert [row["id"] for row in costs["by_session"]] == [ids[tenant]]


async def test_the_list_has_pages(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        ids = [await server.create() for _ in range(5)]
        page = await server.get("/sessions?limit=2&offset=1")
        assert ([info["id"] for info in page["sessions"]], page["total"]) == ([ids[3], ids[2]], 5)
        assert (await server.get("/sessions?limit=0&offset=99"))["sessions"] == []


@pytest.mark.parametrize("query", ["limit=-1", "limit=x", "offset=1e3", "limit=99999999999999999999", "state=asleep"])
async def test_wrong_parameters_are_refused(tmp_path: Path, query: str) -> None:
    async with Server(tmp_path) as server:
        status, answer = await server.request("GET", f"/sessions?{query}")
        assert (status, answer["error"]["code"]) == (400, "invalid_query")
        status, answer = await server.request("GET", f"/sessions?search={'x' * 5000}")
        assert (status, answer["error"]["code"]) == (400, "invalid_query")


async def test_changes_and_deletions_are_events(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, events(server, "/sessions/events") as watched:
        session_id = await server.create(title="Watched")
        created = await watched.wait_for(lambda event: event["type"] == "session")
        assert created["session"]["title"] == "Watched"
        await server.request("POST", f"/sessions/{session_id}/prompts", {"content": TOUCH})
        await watched.wait_for(lambda event: event["session"]["state"] == "requires_action")
        question = await open_question(server, session_id)
        await server.request("POST", f"/questions/{session_id}/{question['request_id']}/answer", {"behavior": "deny"})
        done = await watched.wait_for(lambda event: event["session"]["state"] == "idle")
        assert done["session"]["open_questions"] == 0
        await server.request("DELETE", f"/sessions/{session_id}")
        deleted = await watched.wait_for(lambda event: event["type"] == "deleted")
        assert deleted == {"type": "deleted", "id": session_id}
