"""What the clients of documents 003 (an editor) and 004 (a broker) rely on, as each of them sees it."""

from __future__ import annotations

import ast
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import parley
from tests.helpers.session import Json, SessionHarness

HELLO = "[[turn]]\ntext = 'Hello.'\n"
TOUCH = "[[turn]]\ntools = [{ name = 'Bash', id = 't1', input = { command = 'touch made' } }]\n" + HELLO


async def visit(
    folder: Path, script: str, client: Callable[[SessionHarness], Awaitable[None]], **options: Any
) -> SessionHarness:
    async with SessionHarness(folder, script, **options) as harness:
        await client(harness)
    return harness


async def one_turn(harness: SessionHarness) -> None:
    harness.prompt("go")
    await harness.receive("result")


def events(harness: SessionHarness) -> list[Json]:
    return [line["event"] for line in harness.messages("stream_event")]


async def test_the_fragments_of_thinking_are_the_finished_block(tmp_path: Path) -> None:
    thought = "Let me analyze this code carefully, step by step."
    script = f"[[turn]]\nthinking = '{thought}'\ntext = 'So.'\nchunk_chars = 7\n"
    harness = await visit(tmp_path, script, one_turn, include_partial_messages=True)

    deltas = [event["delta"] for event in events(harness) if event["type"] == "content_block_delta"]
    fragments = [delta["thinking"] for delta in deltas if delta["type"] == "thinking_delta"]
    [finished] = [
        block
        for line in harness.messages("assistant")
        for block in line["message"]["content"]
        if block["type"] == "thinking"
    ]
    assert len(fragments) > 1
    assert "".join(fragments) == finished["thinking"] == thought


async def test_a_call_is_streamed_as_json_and_then_sent_whole(tmp_path: Path) -> None:
    harness = await visit(tmp_path, TOUCH, one_turn, include_partial_messages=True)

    [start] = [event for event in events(harness) if event.get("content_block", {}).get("type") == "tool_use"]
    pieces = [event["delta"] for event in events(harness) if event.get("delta", {}).get("type") == "input_json_delta"]
    assert (start["content_block"]["id"], start["content_block"]["name"]) == ("t1", "Bash")
    assert json.loads("".join(piece["partial_json"] for piece in pieces)) == {"command": "touch made"}


async def test_hooks_and_servers_of_the_client_are_called_in_stream_json(tmp_path: Path) -> None:
    async def client(harness: SessionHarness) -> None:
        hooks = {"UserPromptSubmit": [{"matcher": None, "hookCallbackIds": ["hook_0"]}]}
        request = {"subtype": "initialize", "hooks": hooks, "sdkMcpServers": ["calc"]}
        harness.send({"type": "control_request", "request_id": "i", "request": request})
        server = await harness.receive("control_request")
        harness.send(failure(server))
        other = await harness.receive("control_request")  # it may know the revision without a handshake
        harness.send(failure(other))
        harness.prompt("go")
        hook = await harness.receive("control_request")
        harness.send(success(hook, {}))
        await harness.receive("result")
        assert set(server["request"]) == {"subtype", "server_name", "message"}
        asked = [each["request"]["message"]["method"] for each in (server, other)]
        assert asked == ["initialize", "server/discover"]
        assert {"subtype", "callback_id", "input"} <= set(hook["request"])
        assert {"hook_name", "hook_data", "tool_name"}.isdisjoint(hook["request"])

    await visit(tmp_path, HELLO, client)


def success(question: Json, response: Json) -> Json:
    inner = {"subtype": "success", "request_id": question["request_id"], "response": response}
    return {"type": "control_response", "response": inner}


def failure(question: Json) -> Json:
    inner = {"subtype": "error", "request_id": question["request_id"], "error": "no such server"}
    return {"type": "control_response", "response": inner}


async def test_the_handshake_alone_does_not_make_a_client_answer_questions(tmp_path: Path) -> None:
    async def client(harness: SessionHarness) -> None:
        await harness.request("initialize", protocolVersion="1.0", features=[])
        await one_turn(harness)

    harness = await visit(tmp_path, TOUCH, client)

    assert list(harness.messages("control_request")) == []
    assert not (tmp_path / "made").exists()


async def test_a_line_of_ten_megabytes_is_a_prompt_like_any_other(tmp_path: Path) -> None:
    async def client(harness: SessionHarness) -> None:
        harness.prompt("A" * 10_000_000)
        assert (await harness.receive("result"))["result"] == "Hello."

    harness = await visit(tmp_path, HELLO, client)

    assert len(harness.session.journal.history.render()[0]["content"][0]["text"]) == 10_000_000


async def test_the_log_names_the_client(tmp_path: Path) -> None:
    harness = SessionHarness(tmp_path, HELLO)
    harness.environment["CLAUDE_CODE_ENTRYPOINT"] = "sdk-ts"
    async with harness:
        await one_turn(harness)

    [log] = (tmp_path / "home").glob(".claude/projects/*/*.jsonl")
    kept = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["entrypoint"] for line in kept if line["type"] in ("user", "assistant")} == {"sdk-ts"}


async def test_a_server_may_choose_the_older_version_of_its_protocol(tmp_path: Path) -> None:
    async def client(harness: SessionHarness) -> None:
        harness.send({"type": "control_request", "request_id": "i", "request": {"subtype": "initialize", **SERVERS}})
        asked = await harness.receive("control_request")
        facts = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "calc"}}
        harness.send(success(asked, mcp(asked, facts)))
        told = await harness.receive("control_request")
        harness.send(success(told, mcp(told, {})))
        listing = await harness.receive("control_request")
        harness.send(success(listing, mcp(listing, {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]})))
        harness.prompt("go")
        assert "mcp__calc__add" in (await harness.receive("system", "init"))["tools"]
        assert asked["request"]["message"]["params"]["protocolVersion"] > "2024-11-05"

    await visit(tmp_path, HELLO, client)


SERVERS = {"sdkMcpServers": ["calc"]}


def mcp(asked: Json, result: Json) -> Json:
    return {"mcp_response": {"jsonrpc": "2.0", "id": asked["request"]["message"].get("id"), "result": result}}


def test_the_engine_never_sends_what_only_document_004_has() -> None:
    source = Path(parley.__file__).parent
    makers = {"ApiErrorLine", "SdkControlInterrupt"}
    named = {
        (path.relative_to(source).parts[0], node.func.id)
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in makers
    }

    assert named == set()
