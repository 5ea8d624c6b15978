"""An interrupt in every state a turn can be in: answered first, one result, and the session continues."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio import StreamReader, StreamWriter
from pathlib import Path
from typing import Any

import pytest

from parley.engine.session.pump import Pump
from parley.models.event_synthesis import event_objects, message_json
from parley.protocol.base import Role
from parley.protocol.connection import Connection
from parley.protocol.dialects.base import StreamJson
from parley.protocol.messages.requests import HookCallback, McpMessage, Request
from parley.transports.base import create_pair
from tests.helpers.session import Json, SessionHarness

DONE = '[[turn]]\ntext = "Done."\n'
SLOW = '[[turn]]\ntext = "long long long"\nchunk_chars = 2\nevent_delay_ms = 50\n'
BUSY = '[[turn]]\nerror = {status = 529, type = "overloaded_error", message = "busy", retry_after_seconds = 60}\n'
ID = "{0}0000000-0000-4000-8000-000000000000".format
BYPASS = {"permission_mode": "bypassPermissions"}
ASKS = {"permission_prompt_tool": "stdio"}


def calls(command: str) -> str:
    return f'[[turn]]\ntools = [{{name = "Bash", input = {{command = \'{command}\'}}, id = "t1"}}]\n'


async def interrupted(harness: SessionHarness) -> tuple[list[str], Json]:
    """What still waits, as the answer has it, and the result that follows."""
    answer = await harness.request("interrupt")
    result = await harness.receive("result")
    return answer["response"]["response"]["still_queued"], result


def check_end(result: Json, where: str) -> None:
    assert (result["subtype"], result["is_error"]) == ("error_during_execution", True)
    assert result["terminal_reason"] == f"aborted_{where}"


async def goes_on(harness: SessionHarness) -> None:
    """The next prompt is answered, and nothing of the turn before is in its turn."""
    so_far = len(harness.lines)
    harness.prompt("and now?")
    result = await harness.receive("result")
    said = [line["message"]["content"][0].get("text") for line in harness.lines[so_far:] if line["type"] == "assistant"]
    assert (result["result"], said) == ("Done.", ["Done."])
    blocks = [
        block for message in harness.session.conversation.build_request().messages for block in message["content"]
    ]
    used = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert used == [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


# Before anything.


async def test_with_nothing_to_interrupt_it_is_answered_and_changes_nothing(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE + DONE) as harness:
        before_initialize = await harness.request("interrupt")
        await harness.request("initialize")
        idle = await harness.request("interrupt")
        await goes_on(harness)
        after = await harness.request("interrupt")
        await goes_on(harness)
    answers = [line["response"]["response"] for line in (before_initialize, idle, after)]
    assert answers == [{"still_queued": []}] * 3
    assert len(list(harness.messages("result"))) == 2


# While the model is asked, over a real connection.


class Holding:
    """A model server that answers the first request as far as it is told to, and then holds the line."""

    def __init__(self, events: int) -> None:
        self._events = events
        self.asked = asyncio.Event()
        self.closed = asyncio.Event()
        """The client has closed the connection of the request that was held."""

    async def __aenter__(self) -> Holding:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *problem: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            if self.asked.is_set():
                self._send(writer, events("Done."))
                break
            if self._events:
                self._send(writer, events("never ends")[: self._events])
            self.asked.set()
            assert await reader.read() == b""
            self.closed.set()
            break
        writer.close()

    def _send(self, writer: StreamWriter, told: list[Json]) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for event in told:
            writer.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())


def events(text: str) -> list[Json]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = message_json([{"type": "text", "text": text}], id=f"msg_{len(text)}", model="m", usage=usage)
    return list(event_objects(message, chunk_chars=4))


@pytest.mark.parametrize(("told", "kept"), [(0, []), (1, []), (3, ["neve"]), (4, ["never en"])])
async def test_the_request_is_closed_and_what_was_said_is_kept(tmp_path: Path, told: int, kept: list[str]) -> None:
    async with Holding(told) as server:
        harness = SessionHarness(tmp_path, DONE, model="sonnet", include_partial_messages=True)
        harness.environment |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "k"}
        async with harness:
            harness.prompt("go")
            for _ in range(told):
                await harness.receive("stream_event")
            async with asyncio.timeout(60):
                await server.asked.wait()
            waiting, result = await interrupted(harness)
            async with asyncio.timeout(60):
                await server.closed.wait()
            await goes_on(harness)
        aborted = [
            line["message"]["content"][0]["text"] for line in harness.messages("assistant") if line.get("aborted")
        ]
        assert (waiting, aborted) == ([], kept)
        check_end(result, "streaming")


async def test_a_wait_before_the_next_try_is_cut_short(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, BUSY + DONE) as harness:
        harness.prompt("go")
        await harness.receive("system", "api_retry")
        _, result = await interrupted(harness)
        await goes_on(harness)
    check_end(result, "streaming")


@pytest.mark.parametrize("by_itself", [False, True])
async def test_a_compaction_is_given_up_and_nothing_has_changed(tmp_path: Path, by_itself: bool) -> None:
    small = {"autocompact": "2000", "system_prompt": "Be brief."} if by_itself else {}
    long = f'[[turn]]\ntext = "{"word " * 900}"\n'

    async with SessionHarness(tmp_path, long + BUSY + DONE + DONE, **small) as harness:
        harness.prompt("go")
        await harness.receive("result")
        before = harness.session.journal.history.render()
        harness.prompt("second" if by_itself else "/compact")
        await harness.receive("system", "api_retry")
        _, result = await interrupted(harness)
        assert harness.session.journal.history.render()[: len(before)] == before
        if not by_itself:
            await goes_on(harness)
    check_end(result, "streaming")
    ends = [line for line in harness.messages("system") if line.get("compact_result")]
    assert [line["compact_error"] for line in ends] == ["interrupted"]


# While tools are called.


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
async def test_a_command_is_dead_by_the_time_of_the_result_and_its_whole_tree_dies(tmp_path: Path) -> None:
    fork = "sleep 600 & echo $! > half; mv half child; sleep 600"
    command = f"({fork}) & echo $$ > parent; echo > ready; sleep 600"
    async with SessionHarness(tmp_path, calls(command) + DONE, **BYPASS) as harness:
        harness.prompt("go")
        async with asyncio.timeout(60):
            while not all((tmp_path / name).exists() for name in ("ready", "child")):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # other processes write them
        child, parent = (int((tmp_path / name).read_text()) for name in ("child", "parent"))
        assert alive(child)
        assert alive(parent)
        _, result = await interrupted(harness)
        assert not alive(parent)
        async with asyncio.timeout(60):
            while alive(child):  # noqa: ASYNC110  # another process kills it
                await asyncio.sleep(0.01)
        await goes_on(harness)
    check_end(result, "tools")


async def test_an_open_question_is_withdrawn_and_a_late_answer_does_nothing(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, calls("touch x") + DONE, **ASKS) as harness:
        harness.prompt("go")
        asked = await harness.receive("control_request")
        _, result = await interrupted(harness)
        response = {"subtype": "success", "request_id": asked["request_id"], "response": {"behavior": "allow"}}
        harness.send({"type": "control_response", "response": response})
        await goes_on(harness)
    [cancelled] = harness.messages("control_cancel_request")
    assert cancelled["request_id"] == asked["request_id"]
    assert not (tmp_path / "x").exists()
    check_end(result, "tools")


@pytest.mark.parametrize(
    "request_", [HookCallback(callback_id="hook_0", input={}), McpMessage(server_name="s", message={"id": 1})]
)
async def test_whatever_the_host_is_asked_is_withdrawn_when_the_one_who_asked_is_cut_off(request_: Request) -> None:
    host, engine = create_pair()
    pump = Pump(Connection(Role.ENGINE, StreamJson()), engine, lambda: "r1")
    asking = asyncio.create_task(pump.request(request_))
    await asyncio.sleep(0)
    pending = [question.request_id for question in pump.pending_requests()]
    asking.cancel()
    await asyncio.wait({asking})
    engine.close()
    told = [json.loads(line) async for chunk in host.chunks() for line in chunk.splitlines()]
    assert asking.cancelled()
    assert (pending, pump.pending_requests()) == (["r1"], [])
    assert [line["type"] for line in told] == ["control_request", "control_cancel_request"]


TOOLS = [{"name": "wait", "inputSchema": {"type": "object"}}]
MCP_ANSWERS: dict[str, Json] = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "srv"}},
    "tools/list": {"tools": TOOLS},
}


async def serve_mcp(harness: SessionHarness) -> Json:
    """Be the MCP server `srv`, up to the first call of its tool, which is returned unanswered."""
    while True:
        asked = await harness.receive("control_request")
        message = asked["request"]["message"]
        if message["method"] == "tools/call":
            return asked
        result = MCP_ANSWERS.get(message["method"], {})
        answer = {"mcp_response": {"jsonrpc": "2.0", "id": message.get("id"), "result": result}}
        response = {"subtype": "success", "request_id": asked["request_id"], "response": answer}
        harness.send({"type": "control_response", "response": response})


async def test_a_call_of_the_hosts_mcp_server_is_withdrawn(tmp_path: Path) -> None:
    script = '[[turn]]\ntools = [{name = "mcp__srv__wait", input = {}, id = "t1"}]\n' + DONE

    async with SessionHarness(tmp_path, script, **BYPASS) as harness:
        harness.send(
            {
                "type": "control_request",
                "request_id": "init",
                "request": {"subtype": "initialize", "sdkMcpServers": ["srv"]},
            },
            {"type": "user", "message": {"role": "user", "content": "go"}},
        )
        asked = await serve_mcp(harness)
        answer = await harness.request("interrupt")
        result = await harness.receive("result")
        await goes_on(harness)
    assert answer["response"]["response"] == {"still_queued": []}
    assert asked["request_id"] in [line["request_id"] for line in harness.messages("control_cancel_request")]
    check_end(result, "tools")


@pytest.mark.parametrize(
    ("event", "where"), [("PreToolUse", "tools"), ("PostToolUse", "tools"), ("UserPromptSubmit", "streaming")]
)
async def test_a_hook_of_the_host_that_has_not_answered_is_withdrawn(tmp_path: Path, event: str, where: str) -> None:
    script = (calls("echo hi") if where == "tools" else "") + DONE
    async with SessionHarness(tmp_path, script, **BYPASS) as harness:
        await harness.request("initialize", hooks={event: [{"matcher": None, "hookCallbackIds": ["h"]}]})
        harness.prompt("go")
        asked = await harness.receive("control_request")
        answer = await harness.request("interrupt")
        result = await harness.receive("result")
        await harness.request("initialize", hooks={})
        await goes_on(harness)
    assert asked["request"]["subtype"] == "hook_callback"
    assert answer["response"]["response"] == {"still_queued": []}
    assert [line["request_id"] for line in harness.messages("control_cancel_request")] == [asked["request_id"]]
    check_end(result, where)


# What waits.


async def test_what_waits_is_listed_and_runs_afterwards(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, SLOW + DONE, include_partial_messages=True) as harness:
        harness.prompt("go", uuid=ID(1))
        await harness.receive("stream_event")
        harness.prompt("two", uuid=ID(2))
        harness.prompt("three", uuid=ID(3), priority="later")
        harness.prompt("nameless")
        waiting, result = await interrupted(harness)
        next_result = await harness.receive("result")
    assert waiting == [ID(2), ID(3)]
    assert (result["user_message_uuids"], next_result["user_message_uuids"]) == ([ID(1)], [ID(2)])
    check_end(result, "streaming")


async def test_a_second_interrupt_changes_nothing(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, SLOW + DONE, include_partial_messages=True) as harness:
        harness.prompt("go")
        await harness.receive("stream_event")
        asks: list[Json] = [
            {"type": "control_request", "request_id": f"i{number}", "request": {"subtype": "interrupt"}}
            for number in range(3)
        ]
        harness.send(*asks)
        result = await harness.receive("result")
        await goes_on(harness)
    assert len(list(harness.messages("control_response"))) == 3
    check_end(result, "streaming")


async def test_a_signal_ends_a_turn_that_waits_for_an_answer(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, calls("touch x") + DONE, **ASKS) as harness:
        harness.prompt("go", uuid=ID(1))
        await harness.receive("control_request")
        harness.prompt("two", uuid=ID(2))
        await harness.receive_until(lambda line: line.get("command_uuid") == ID(2))
        harness.session.stop()
        result = await harness.receive("result")
    check_end(result, "tools")
    assert len(list(harness.messages("control_cancel_request"))) == 1
    states: dict[str, list[Any]] = {}
    for line in harness.messages("command_lifecycle"):
        states.setdefault(line["command_uuid"], []).append(line["state"])
    assert states == {ID(1): ["queued", "started", "cancelled"], ID(2): ["queued", "cancelled"]}
