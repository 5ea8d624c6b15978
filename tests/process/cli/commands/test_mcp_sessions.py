"""The sessions of `parley mcp serve` through the real executable, driven by the official client.

Each test runs over both transports and at both revisions.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import MCPError, StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.helpers.gateway import Server
from tests.helpers.mcp import alive
from tests.helpers.mcp_http import McpServer
from tests.helpers.patience import PATIENCE_SECONDS, wait_until

MOST_OPEN = 32
PARLEY = str(Path(sys.executable).with_name("parley"))
TOUCH = 'call Bash {"command": "touch made"}\nshow'
CHOICE = {
    "question": "Which one?",
    "header": "Choice",
    "multiSelect": False,
    "options": [{"label": "A", "description": "the first"}, {"label": "B", "description": "the second"}],
}


class Sessions:
    """The tools of a server."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self._folder = folder

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        result = await self.client.call_tool(name, arguments)
        assert not result.is_error, result.content
        assert result.structured_content == json.loads(result.content[0].text)  # type: ignore[union-attr]
        return dict(result.structured_content)

    async def fail(self, name: str, **arguments: Any) -> str:
        result = await self.client.call_tool(name, arguments)
        assert result.is_error
        return str(result.content[0].text)  # type: ignore[union-attr]

    async def start(self) -> str:
        return str((await self.call("session_start", cwd=str(self._folder)))["session_id"])

    async def prompt(self, session_id: str, prompt: str, wait_seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        return await self.call("session_prompt", session_id=session_id, prompt=prompt, wait_seconds=wait_seconds)


def text_of(result: dict[str, Any], kind: str = "agent_message_chunk") -> str:
    return "".join(each["content"]["text"] for each in result["updates"] if each["sessionUpdate"] == kind)


@pytest.fixture(params=["stdio", "http"])
def connect(request: pytest.FixtureRequest, tmp_path: Path, environment: dict[str, str]) -> Any:
    """Starts a server and connects to it. Each call is another process with the same files."""

    @asynccontextmanager
    async def open_sessions(*options: str, mode: str = "auto") -> AsyncIterator[Sessions]:
        options = ("--model", "offline", *options)
        if request.param == "stdio":
            server = StdioServerParameters(
                command=PARLEY, args=["mcp", "serve", *options], env=environment, cwd=tmp_path
            )
            async with Client(stdio_client(server), mode=mode) as client:
                yield Sessions(client, tmp_path)
            return
        async with (
            McpServer(tmp_path, *options, environment=environment) as served,
            httpx2.AsyncClient(
                headers={"Authorization": f"Bearer {served.token}"}, timeout=PATIENCE_SECONDS
            ) as http_client,
            Client(streamable_http_client(f"{served.url}/mcp", http_client=http_client), mode=mode) as client,
        ):
            yield Sessions(client, tmp_path)
            assert await served.kill(signal.SIGTERM) == 0

    return open_sessions


@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_a_prompt_runs_at_both_revisions(connect: Any, mode: str, version: str) -> None:
    async with connect(mode=mode) as sessions:
        assert sessions.client.protocol_version == version
        names = {tool.name for tool in (await sessions.client.list_tools()).tools}
        session_id = await sessions.start()
        result = await sessions.prompt(session_id, "say one\nsay two")

    assert {f"session_{name}" for name in ("start", "prompt", "answer", "read", "interrupt", "list")} <= names
    assert (result["state"], result["stop_reason"], result["has_more"]) == ("idle", "end_turn", False)
    assert text_of(result) == "one\ntwo"


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_a_call_runs_only_after_it_was_allowed(connect: Any, tmp_path: Path, is_allowed: bool) -> None:
    async with connect() as sessions:
        session_id = await sessions.start()
        asked = await sessions.prompt(session_id, TOUCH)
        [question] = asked["questions"]
        assert (asked["state"], question["kind"]) == ("question", "permission")
        assert question["tool_call"]["rawInput"] == {"command": "touch made"}
        again = await sessions.call("session_read", session_id=session_id, cursor=asked["cursor"])
        assert again["questions"] == [question]
        assert not (tmp_path / "made").exists()

        given = {"session_id": session_id, "question_id": question["id"]}
        assert "unknown option 'yes'" in await sessions.fail("session_answer", **given, option="yes")
        assert "has a turn already" in await sessions.fail("session_prompt", session_id=session_id, prompt="say x")
        assert not (tmp_path / "made").exists()

        option = "allow_once" if is_allowed else "reject_once"
        result = await sessions.call("session_answer", **given, option=option, wait_seconds=PATIENCE_SECONDS)
        assert "no open question" in await sessions.fail("session_answer", **given, option="allow_once")

    assert (result["state"], result["questions"]) == ("idle", [])
    assert (tmp_path / "made").exists() is is_allowed


async def test_deny_rules_apply_without_a_question(connect: Any, tmp_path: Path) -> None:
    async with connect("--disallowedTools", "Bash(touch *)") as sessions:
        result = await sessions.prompt(await sessions.start(), TOUCH)

    assert (result["state"], result["questions"]) == ("idle", [])
    assert not (tmp_path / "made").exists()


async def test_a_question_of_the_model_is_answered_with_a_form(connect: Any) -> None:
    async with connect() as sessions:
        session_id = await sessions.start()
        asked = await sessions.prompt(session_id, f"call AskUserQuestion {json.dumps({'questions': [CHOICE]})}\nshow")
        [question] = asked["questions"]
        field = question["requestedSchema"]["properties"]["question_1"]
        result = await sessions.call(
            "session_answer",
            session_id=session_id,
            question_id=question["id"],
            option="accept",
            content={"question_1": "B"},
            wait_seconds=PATIENCE_SECONDS,
        )

    assert (question["kind"], [each["const"] for each in field["oneOf"]]) == ("form", ["A", "B"])
    assert "Which one? B" in text_of(result)


async def test_a_turn_that_takes_longer_is_read_from_the_cursor(connect: Any) -> None:
    async with connect() as sessions:
        session_id = await sessions.start()
        before = await sessions.prompt(session_id, "say first")
        started = await sessions.prompt(session_id, "wait 1\nsay second", wait_seconds=0)
        assert (started["state"], started["cursor"]) == ("running", before["cursor"])
        read = await sessions.call(
            "session_read", session_id=session_id, cursor=started["cursor"], wait_seconds=PATIENCE_SECONDS
        )

    assert (read["state"], text_of(read)) == ("idle", "second")


async def test_an_interrupt_ends_a_turn_and_withdraws_its_question(connect: Any, tmp_path: Path) -> None:
    async with connect() as sessions:
        session_id = await sessions.start()
        await sessions.prompt(session_id, "wait 600", wait_seconds=0)
        ended = await sessions.call("session_interrupt", session_id=session_id)
        assert (ended["state"], ended["stop_reason"]) == ("idle", "cancelled")

        [question] = (await sessions.prompt(session_id, TOUCH))["questions"]
        ended = await sessions.call("session_interrupt", session_id=session_id)
        assert (ended["state"], ended["stop_reason"], ended["questions"]) == ("idle", "cancelled", [])
        given = {"session_id": session_id, "question_id": question["id"], "option": "allow_once"}
        assert "no open question" in await sessions.fail("session_answer", **given)
        assert text_of(await sessions.prompt(session_id, "say next")) == "next"

    assert not (tmp_path / "made").exists()


async def test_a_cancelled_wait_does_not_end_the_turn(connect: Any) -> None:
    async with connect() as sessions:
        session_id = await sessions.start()
        with pytest.raises(MCPError):
            await sessions.client.call_tool(
                "session_prompt",
                {"session_id": session_id, "prompt": "wait 2\nsay done", "wait_seconds": 600},
                read_timeout_seconds=0.5,
            )
        read = await sessions.call("session_read", session_id=session_id, wait_seconds=PATIENCE_SECONDS)

    assert (read["state"], text_of(read)) == ("idle", "done")


async def test_a_session_is_listed_and_resumed_by_another_process(connect: Any, tmp_path: Path) -> None:
    async with connect() as sessions:
        session_id = await sessions.start()
        cursor = (await sessions.prompt(session_id, "say from the first process"))["cursor"]
        [listed] = (await sessions.call("session_list"))["sessions"]
        assert (listed["session_id"], listed["state"]) == (session_id, "idle")
    async with connect() as sessions:
        [listed] = (await sessions.call("session_list", cwd=str(tmp_path)))["sessions"]
        refused = await sessions.fail("session_read", session_id=session_id, cursor=cursor)
        history = await sessions.call("session_read", session_id=session_id)
        result = await sessions.prompt(session_id, "say from the second")

    assert (listed["session_id"], listed["cwd"], listed["state"]) == (session_id, str(tmp_path), "saved")
    assert "unknown cursor" in refused
    assert text_of(history, "user_message_chunk") == "say from the first process"
    assert text_of(history) == "from the first process"
    assert text_of(result) == "from the second"


async def test_a_failed_turn_is_reported_and_the_next_one_runs(connect: Any) -> None:
    async with connect() as sessions:
        session_id = await sessions.start()
        failed = await sessions.prompt(session_id, "fail 400 broken")
        assert (failed["state"], failed["stop_reason"]) == ("idle", "error")
        assert "broken" in failed["error"]
        assert text_of(await sessions.prompt(session_id, "say better")) == "better"


async def test_bad_arguments_are_errors_of_their_call(connect: Any, tmp_path: Path) -> None:
    async with connect() as sessions:
        session_id = await sessions.start()
        unknown = await sessions.fail("session_prompt", session_id="../../etc/passwd", prompt="say x")
        assert unknown == "there is no session '../../etc/passwd'"
        for name, arguments, expected in (
            ("session_prompt", {"session_id": session_id}, "missing required field `prompt`"),
            ("session_prompt", {"session_id": session_id, "prompt": 3}, "Expected `str`"),
            ("session_prompt", {"session_id": session_id, "prompt": "x", "wait_seconds": 1e9}, "<= 600"),
            ("session_prompt", {"session_id": session_id, "prompt": "x", "mode": "plan"}, "unknown field `mode`"),
            ("session_prompt", {"session_id": session_id, "prompt": "x" * 1_000_001}, "length <= 1000000"),
            ("session_read", {"session_id": session_id, "cursor": "5"}, "unknown cursor '5'"),
            ("session_start", {"cwd": "relative"}, "not the absolute path"),
            ("session_start", {"cwd": str(tmp_path / "none")}, "not the absolute path"),
            ("session_list", {"cursor": "x"}, "unknown cursor 'x'"),
        ):
            assert expected in await sessions.fail(name, **arguments)
        assert text_of(await sessions.prompt(session_id, "say still here")) == "still here"


async def test_a_long_answer_is_read_in_parts(connect: Any, tmp_path: Path) -> None:
    lines = "".join(f"{number} {'x' * 1000}\n" for number in range(600))
    (tmp_path / "script.toml").write_text(f"[[turn]]\ntext = {json.dumps(lines)}\nchunk_chars = 2000\n")
    async with connect("--model", f"scripted:{tmp_path / 'script.toml'}") as sessions:
        session_id = await sessions.start()
        result = await sessions.prompt(session_id, "Count.")
        text, parts = text_of(result), 1
        while result["has_more"]:
            result = await sessions.call("session_read", session_id=session_id, cursor=result["cursor"])
            text, parts = text + text_of(result), parts + 1

    assert text == lines
    assert parts > 2


async def test_an_idle_session_makes_room_for_another_one(connect: Any) -> None:
    async with connect() as sessions:
        first = await sessions.start()
        await sessions.prompt(first, "say first")
        others = [await sessions.start() for _ in range(MOST_OPEN)]
        states = {each["session_id"]: each["state"] for each in (await sessions.call("session_list"))["sessions"]}
        assert states == {first: "saved"}

        for session_id in others:
            await sessions.prompt(session_id, "wait 600", wait_seconds=0)
        assert "wait for one or interrupt it" in await sessions.fail("session_start")
        assert "wait for one or interrupt it" in await sessions.fail("session_read", session_id=first)
        await sessions.call("session_interrupt", session_id=others[0])
        assert text_of(await sessions.prompt(first, "say again")) == "again"


async def post(server: Server, body: object, **headers: str) -> tuple[int, Any]:
    found = {"Authorization": f"Bearer {server.token}", **headers}
    status, _, data = await server.fetch("POST", "/mcp", body, found)
    return status, json.loads(data) if data else None


async def test_http_needs_the_token_and_the_names_of_this_machine(tmp_path: Path, environment: dict[str, str]) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with McpServer(tmp_path, environment=environment) as server:
        assert await post(server, ping) == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})
        assert (await post(server, ping, Authorization="Bearer wrong"))[0] == 401
        assert (await server.fetch("POST", "/mcp", ping))[0] == 401
        assert (await post(server, ping, Host="evil.example"))[0] == 421
        assert (await post(server, ping, Origin="http://evil.example"))[0] == 403
        assert (await server.request("GET", "/mcp"))[0] == 405
        assert (await post(server, [ping]))[1]["error"]["code"] == -32600
        assert (await post(server, ping, **{"Mcp-Protocol-Version": "1999-01-01"}))[0] == 400
        assert (await post(server, {"jsonrpc": "2.0", "method": "notifications/initialized"})) == (202, None)


def test_a_process_that_is_ended_leaves_no_command_behind(tmp_path: Path, environment: dict[str, str]) -> None:
    command = json.dumps({"command": f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 600"})
    with subprocess.Popen(
        [PARLEY, "mcp", "serve", "--model", "offline", "--allowedTools", "Bash"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        cwd=tmp_path,
    ) as process:

        def call(name: str, **arguments: Any) -> Any:
            params = {"name": name, "arguments": arguments}
            line = json.dumps({"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params})
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())["result"]["structuredContent"]

        session_id = call("session_start")["session_id"]
        call("session_prompt", session_id=session_id, prompt=f"call Bash {command}", wait_seconds=0)
        wait_until((tmp_path / "pid").exists, "the command")
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not alive(pid), "the end of the command")


def test_flags_of_http_need_http(run: Any) -> None:
    done = run("mcp", "serve", "--listen", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "option '--listen' needs '--http'" in done.stderr
    done = run("mcp", "serve", "--http", "--listen", "127.0.0.1:1")
    assert "option '--token-file' is required" in done.stderr
