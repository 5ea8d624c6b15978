"""Forks of a session, through a real server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.gateway import Server, following

TOUCH = 'call Bash {"command": "touch made", "description": "Make a file"}'
PARENTS_ONLY = ("control_request", "control_cancel_request", "gateway")


async def read_lines(server: Server, session_id: str) -> list[dict[str, Any]]:
    async with await server.connect(f"/sessions/{session_id}/ws"):  # only a session in use knows its last line
        _, info = await server.request("GET", f"/sessions/{session_id}")
    async with following(server, session_id) as viewer:
        await viewer.wait_for(lambda: viewer.last >= info["last_line"])
        assert [number for number, _ in viewer.lines] == list(range(1, viewer.last + 1))
        return [json.loads(line) for _, line in viewer.lines]


def texts(lines: list[dict[str, Any]]) -> list[str]:
    """What the assistant said."""
    found = [block for line in lines if line["type"] == "assistant" for block in line["message"]["content"]]
    return [block["text"] for block in found if block["type"] == "text"]


def moved(lines: list[dict[str, Any]], session_id: str) -> list[dict[str, Any]]:
    """Lines as a fork has them."""
    kept = [line for line in lines if line["type"] not in PARENTS_ONLY]
    kept = [line for line in kept if line.get("subtype") != "session_state_changed"]
    return [{**line, "session_id": session_id} if "session_id" in line else line for line in kept]


@pytest.mark.parametrize("isolation", ["task", "process"])
async def test_a_fork_has_the_conversation_up_to_a_message(tmp_path: Path, isolation: str) -> None:
    async with Server(tmp_path, "--model", "offline", "--isolation", isolation) as server:
        (server.root / "sub").mkdir()
        parent = await server.create(title="plans", cwd="sub", options={"max_turns": 7})
        await server.ask(parent, "say One.")
        await server.ask(parent, "say Two.")
        lines = await read_lines(server, parent)
        first = next(line for line in lines if line["type"] == "assistant")

        status, whole = await server.request("POST", f"/sessions/{parent}/fork", {"uuid": None})
        assert (status, whole["work_dir"]) == (201, str(server.root / "sub"))
        status, part = await server.request("POST", f"/sessions/{parent}/fork", {"uuid": first["uuid"], "title": "b"})
        assert status == 201
        ids = parent, whole["session_id"], part["session_id"]
        assert len(set(ids)) == 3
        titles = [(await server.request("GET", f"/sessions/{each}"))[1]["title"] for each in ids]
        assert titles == ["plans", "plans (fork)", "b"]
        assert await read_lines(server, ids[1]) == moved(lines, ids[1])
        cut = await read_lines(server, ids[2])
        assert cut == moved(lines[: lines.index(first) + 1], ids[2])

        # Each continues on its own, with what it remembers, also after a restart.
        await server.kill()
        await server.start()
        assert (await server.ask(ids[2], "say Three."))["result"] == "Three."
        assert texts(await read_lines(server, ids[2])) == ["One.", "Three."]
        _, context = await server.request("POST", f"/sessions/{ids[2]}/control", {"subtype": "export_conversation"})
        assert "say One." in context["response"]["text"]
        assert "say Two." not in context["response"]["text"]
        assert texts(await read_lines(server, parent)) == ["One.", "Two."]
        assert texts(await read_lines(server, ids[1])) == ["One.", "Two."]

        # It does not need its parent.
        assert (await server.request("DELETE", f"/sessions/{parent}"))[0] == 204
        assert (await server.ask(ids[1], "say Four."))["result"] == "Four."


async def test_a_question_stays_with_the_session_that_asked(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        parent = await server.create()
        async with following(server, parent) as viewer:
            await server.request("POST", f"/sessions/{parent}/prompts", {"content": TOUCH})
            await viewer.wait_for(lambda: any('"can_use_tool"' in line for _, line in viewer.lines))
        status, made = await server.request("POST", f"/sessions/{parent}/fork", {})
        assert status == 201
        fork = made["session_id"]
        assert "control_request" not in [line["type"] for line in await read_lines(server, fork)]
        assert (await server.ask(fork, "say Free."))["result"] == "Free."
        (question,) = (await server.request("GET", "/questions"))[1]["questions"]
        assert question["session"] == parent
        assert not (server.root / "made").exists()
        path = f"/questions/{parent}/{question['request_id']}/answer"
        async with following(server, parent) as viewer:
            assert (await server.request("POST", path, {"behavior": "allow"}))[0] == 200
            await viewer.wait_for(viewer.results)
        assert (server.root / "made").exists()


async def test_a_fork_needs_what_a_new_session_needs(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        (server.root / "a").mkdir()
        (server.root / "b").mkdir()
        fork = "/sessions/{}/fork"

        async def code(path: str, body: Any, token: str) -> str:
            status, answer = await server.request("POST", path, body, token)
            return "made" if status == 201 else str(answer["error"]["code"])

        own = await server.make_token("own", "create", "prompt", tenant="acme", quotas={"sessions": 2})
        status, made = await server.request("POST", "/sessions", {"cwd": "a"}, own)
        assert status == 201
        parent = fork.format(made["session_id"])
        narrow = await server.make_token("narrow", "create", tenant="acme", roots=[str(server.root / "b")])
        cases = [
            (parent, {}, await server.make_token("prompter", "prompt", "approve", tenant="acme"), "forbidden"),
            (parent, {}, await server.make_token("other", "create", tenant="other"), "unknown_session"),
            (parent, {}, narrow, "outside_roots"),
            (parent, {"uuid": "no-such-message"}, own, "unknown_message"),
            (parent, {"uuid": 7}, own, "invalid_body"),
            (parent, {"title": ["x"]}, own, "invalid_body"),
            (fork.format("nope"), {}, own, "unknown_session"),
            (parent, {}, own, "made"),
            (parent, {}, own, "quota_exceeded"),
        ]
        for path, body, token, expected in cases:
            assert await code(path, body, token) == expected

        # A copy that an administrator makes stays with its tenant.
        _, copy = await server.request("POST", parent, {})
        assert (await server.request("GET", f"/sessions/{copy['session_id']}", token=own))[0] == 200
        audit = (server.folder / "config" / "gateway" / "audit.jsonl").read_text().splitlines()
        acts = [(act["who"], act["source"]) for act in map(json.loads, audit) if act["act"] == "fork"]
        assert ("admin", made["session_id"]) in acts


async def test_forks_during_a_turn_are_whole(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        parent = await server.create()
        await server.ask(parent, "say One.")
        running = asyncio.create_task(server.ask(parent, "wait 1\nsay Two."))
        forks = []
        for _ in range(5):
            status, made = await server.request("POST", f"/sessions/{parent}/fork", {})
            assert status == 201
            forks.append(made["session_id"])
        assert (await running)["result"] == "Two."
        for fork in forks:
            assert (await server.ask(fork, "say Mine."))["result"] == "Mine."
            assert texts(await read_lines(server, fork))[0] == "One."
