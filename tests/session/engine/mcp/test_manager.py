"""MCP servers in a session: real servers of the official package, over every way there is."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.mcp import (
    ALL,
    PROGRAMS,
    answer,
    config,
    news,
    one_turn,
    own,
    results,
    script,
    states,
    visit,
    workshop,
)
from tests.helpers.patience import wait_until
from tests.helpers.ports import free_port
from tests.helpers.session import Json, SessionHarness

EVERYTHING = script(
    [
        ("mcp__workshop__add", {"a": 2, "b": 3}),
        ("mcp__workshop__measure", {"word": "plank"}),
        ("mcp__workshop__draw", {}),
        ("mcp__workshop__fail", {}),
        ("mcp__workshop__add", {"a": "two"}),
    ],
    [("ListMcpResourcesTool", {}), ("ReadMcpResourceTool", {"server": "workshop", "uri": "workshop://rules"})],
    "Done.",
)


CHILDREN = [
    {"uri": "book://shelf/a", "name": "a"},
    {"uri": "book://shelf/low", "name": "low", "mimeType": "inode/directory"},
]


async def test_directories_among_resources_are_listed_by_the_server_or_taken_from_its_resources(tmp_path: Path) -> None:
    servers = config(library=own("plain.py", "library"), archive=own("plain.py", "archive"))
    tool = "ReadMcpResourceDirTool"
    asked = [("library", "book://shelf"), ("archive", "book://shelf/"), ("library", "book://nothing")]
    turns = script([(tool, {"server": server, "uri": uri}) for server, uri in asked], "Done.")
    harness = await visit(tmp_path, turns, one_turn, mcp_config=servers)
    listed, taken, refused = results(harness)
    assert json.loads(listed) == json.loads(taken) == CHILDREN
    assert refused == "MCP server 'library': not a directory (error -32602)"
    details = [line["tool_use_result"] for line in harness.messages("user") if "tool_use_result" in line]
    assert {"resources": CHILDREN} in details
    assert {"resources": [], "error": refused} in details


async def test_the_directory_tool_is_offered_if_a_server_lists_directories(tmp_path: Path) -> None:
    harness = await visit(tmp_path, script("Done."), one_turn, mcp_config=config(a=own("plain.py", "archive")))
    init = next(line for line in harness.messages("system") if line["subtype"] == "init")
    assert ("ReadMcpResourceTool" in init["tools"], "ReadMcpResourceDirTool" in init["tools"]) == (True, False)


def check_everything(harness: SessionHarness) -> None:
    added, measured, [picture], failed, wrong, listed, read = results(harness)
    assert added == [{"type": "text", "text": "5"}]
    assert measured == '{"letters":5}'
    assert (picture["type"], picture["source"]["media_type"]) == ("image", "image/png")
    assert "Error executing tool fail" in failed
    assert "add" in wrong
    assert json.loads(listed)[0]["uri"] == "workshop://rules"
    assert [item["text"] for item in json.loads(read)["contents"]] == ["Wear glasses."]
    assert states(harness) == {"workshop": "connected"}


async def test_a_stdio_server_returns_text_images_structured_content_errors_and_resources(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        await one_turn(harness)
        answer = (await harness.request("mcp_status"))["response"]["response"]
        [server] = answer["mcpServers"]
        assert server == {
            **server,
            "name": "workshop",
            "status": "connected",
            "serverInfo": {"name": "workshop", "version": "1.2.3"},
            "transport": "stdio",
            "scope": "dynamic",
            "source": "dynamic",
        }
        assert server["tools"][0] == {"name": "add", "annotations": {"readOnly": True}}

    harness = await visit(
        tmp_path, EVERYTHING, scenario, mcp_config=config(workshop=own("workshop.py", "stdio")), allowed_tools=ALL
    )
    check_everything(harness)
    assert next(line["tool_use_meta"] for line in harness.messages("assistant") if "tool_use_meta" in line) == [
        {"id": "t1", "display_name": "Add", "server_display_name": "workshop", "tool_name": "add"}
    ]


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def listening(transport: str) -> Iterator[str]:
    """A server of the package on a port of this machine; its address."""
    port = free_port()
    process = subprocess.Popen([sys.executable, str(PROGRAMS / "workshop.py"), transport, str(port)])
    try:
        wait_until(lambda: is_open(port), "the port")
        yield f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("transport", ["sse", "http"])
async def test_a_server_behind_a_url_returns_the_same(tmp_path: Path, transport: str) -> None:
    with listening(transport) as url:
        servers = config(workshop={"type": transport, "url": url, "headers": {"X-From": "parley"}, "required": True})
        harness = await visit(tmp_path, EVERYTHING, one_turn, mcp_config=servers, allowed_tools=ALL)
    check_everything(harness)


async def test_a_server_asks_the_person_through_the_host_and_no_answer_cancels(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        await harness.request("initialize")
        harness.prompt("go")
        for action in ({"action": "accept", "content": {"name": "Ada"}}, {"action": "cancel"}, {"action": "sing"}):
            asked = await harness.receive("control_request")
            assert asked["request"] == {
                **asked["request"],
                "subtype": "elicitation",
                "mcp_server_name": "workshop",
                "message": "What is your name?",
            }
            assert asked["request"]["requested_schema"]["properties"]["name"]["type"] == "string"
            again = (await harness.request("initialize"))["response"]
            assert again["pending_elicitation_requests"] == [asked]
            assert again["response"]["session_state"] == "requires_action"
            harness.send(answer(asked, action))
        await harness.receive("result")
        assert (await harness.request("initialize"))["response"]["response"]["session_state"] == "idle"

    greet: list[tuple[str, Json]] = [("mcp__workshop__greet", {})]
    turns = script(greet, greet, greet, "Done.")
    harness = await visit(tmp_path, turns, scenario, mcp_config=config(workshop=workshop()), allowed_tools=ALL)
    assert [content[0]["text"] for content in results(harness)] == ["Hello, Ada.", "(cancel)", "(cancel)"]


async def test_a_prompt_of_a_server_is_a_slash_command(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("/mcp__workshop__plan 'a chair' by next week")
        assert "mcp__workshop__plan" in (await harness.receive("system", "init"))["slash_commands"]
        await harness.receive("result")
        again = await harness.request("initialize")
        assert again["response"]["response"]["commands"][-1] == {
            "name": "mcp__workshop__plan",
            "description": "Plan a piece of work.",
            "argumentHint": "<thing> <when>",
        }
        harness.prompt("/mcp__workshop__plan")
        failed = await harness.receive("result")
        assert failed["subtype"] == "error_during_execution"
        assert failed["errors"][0].startswith("/mcp__workshop__plan could not be expanded: MCP server 'workshop': ")

    turns = script("Yes.", "Yes.")
    harness = await visit(
        tmp_path,
        turns,
        scenario,
        mcp_config=config(workshop=workshop()),
        replay_user_messages=True,
    )
    heard = harness.session.journal.history.render()[0]["content"]
    assert "Plan how to build a chair by next week." in json.dumps(heard)
    echoes = [line["message"]["content"] for line in harness.messages("user") if line.get("isReplay")]
    assert echoes[0] == "/mcp__workshop__plan 'a chair' by next week"


async def test_a_server_that_has_another_tool_shows_it_to_the_model_in_the_same_turn(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive_until(lambda line: "tools_added" in line.get("mcp_server", {}))
        await harness.receive("result")

    turns = script([("mcp__workshop__extend", {})], [("mcp__workshop__build", {"steps": 1, "seconds": 0.3})], "Done.")
    harness = await visit(tmp_path, turns, scenario, mcp_config=config(workshop=workshop()), allowed_tools=ALL)
    assert [change["tools_added"] for change in news(harness)] == [["mcp__workshop__plane"]]
    assert "mcp__workshop__plane" in harness.session.config.tools


async def test_a_tool_that_is_announced_by_a_call_is_there_at_the_next_model_call(tmp_path: Path) -> None:
    turns = script([("mcp__workshop__extend", {})], [("mcp__workshop__plane", {})], "Done.")
    servers = config(workshop=workshop())
    harness = await visit(tmp_path, turns, one_turn, mcp_config=servers, allowed_tools=ALL)
    assert results(harness)[1] == [{"type": "text", "text": "planed"}]


async def test_a_command_of_a_server_that_joins_a_turn_is_what_it_stands_for(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("assistant")
        harness.prompt("/mcp__workshop__plan 'a chair' by next week")
        await harness.receive("result")

    turns = script([("mcp__workshop__build", {"steps": 1, "seconds": 0.3})], "Done.")
    servers = config(workshop=workshop())
    harness = await visit(tmp_path, turns, scenario, mcp_config=servers, allowed_tools=ALL)
    heard = json.dumps(harness.session.journal.history.render())
    assert "Plan how to build a chair by next week." in heard
    assert "/mcp__workshop__plan" not in heard
    assert len(list(harness.messages("result"))) == 1


async def test_a_resource_that_is_too_long_or_no_text_is_in_a_file(tmp_path: Path) -> None:
    uris = ("workshop://stock", "workshop://rules")
    turns = script([("ReadMcpResourceTool", {"server": "workshop", "uri": uri}) for uri in uris], "Done.")
    servers = config(workshop=workshop())
    limit = {"MAX_MCP_OUTPUT_TOKENS": "2"}
    harness = await visit(tmp_path, turns, one_turn, limit, mcp_config=servers, allowed_tools=ALL)
    [stock], [rules] = (json.loads(result)["contents"] for result in results(harness))
    assert "Output too large (13 characters). Full output saved to: " in rules["text"]
    assert Path(stock["blobSavedTo"]).read_bytes() == bytes(range(256))
    about = (
        "[Resource from workshop at workshop://stock] Binary content (application/octet-stream, 256 bytes) saved to "
    )
    assert stock["text"] == about + stock["blobSavedTo"]
    assert "blob" not in stock


def saved_in(block: Json) -> Path:
    """The file that a text names at its end."""
    return Path(block["text"].rpartition(" saved to ")[2])


async def test_binary_content_of_a_result_is_in_files_that_the_result_names(tmp_path: Path) -> None:
    turns = script([("mcp__workshop__pack", {}), ("mcp__workshop__pack", {"structured": True})], "Done.")
    servers = config(workshop=workshop())
    harness = await visit(tmp_path, turns, one_turn, mcp_config=servers, allowed_tools=ALL)
    for packed, first in zip(results(harness), ("Packed.", '{"parts":2}'), strict=True):
        text, plan, sound = packed
        assert text == {"type": "text", "text": first}
        about = "[Resource from workshop at workshop://plan] Binary content (text/plain, 7 bytes) saved to "
        assert plan["text"].startswith(about)
        assert sound["text"].startswith("[Audio from workshop] Binary content (audio/wav, 6 bytes) saved to ")
        assert (saved_in(plan).suffix, saved_in(plan).read_bytes()) == (".txt", b"A plan.")
        assert (saved_in(sound).suffix, saved_in(sound).read_bytes()) == (".wav", b"\x00knock")


async def test_servers_of_the_client_come_first_followed_by_their_tools(tmp_path: Path) -> None:
    tools = [{"name": "one", "inputSchema": {"type": "object"}}]

    def serve(asked: Json) -> Json:
        message = asked["request"]["message"]
        result: Json = {}
        if message.get("method") == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "calc"}}
        elif message.get("method") == "tools/list":
            result = {"tools": tools}
        return answer(asked, {"mcp_response": {"jsonrpc": "2.0", "id": message.get("id"), "result": result}})

    async def scenario(harness: SessionHarness) -> None:
        harness.send(ask("i1", "initialize", sdkMcpServers=["calc"]))
        for method in ("initialize", "notifications/initialized", "tools/list"):
            asked = await harness.receive("control_request")
            assert asked["request"]["message"]["method"] == method
            harness.send(serve(asked))
        harness.prompt("go")
        assert "mcp__calc__one" in (await harness.receive("system", "init"))["tools"]
        await harness.receive("result")
        tools.append({"name": "two", "inputSchema": {"type": "object"}})
        changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        harness.send(ask("m1", "mcp_message", server_name="calc", message=changed))
        asked = await harness.receive("control_request")
        harness.send(serve(asked))
        await harness.receive_until(lambda line: line.get("mcp_server", {}).get("tools_added") == ["mcp__calc__two"])
        refused = await harness.request("mcp_message", server_name="nobody", message=changed)
        assert refused["response"]["error"] == "Server not found: nobody"

    harness = await visit(tmp_path, script("Done."), scenario)
    kinds = [
        line["request"]["message"]["method"] if line["type"] == "control_request" else line["response"]["request_id"]
        for line in harness.lines
        if line["type"] in ("control_request", "control_response")
    ]
    # As recorded: the MCP handshake goes out before initialize is answered, and nothing else does.
    assert kinds[:4] == ["initialize", "i1", "notifications/initialized", "tools/list"]


def ask(request_id: str, subtype: str, **fields: object) -> Json:
    return {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}}


async def test_a_host_calls_tools_changes_servers_and_switches_them_off(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        async def told(subtype: str, **fields: object) -> Json:
            response: Json = (await harness.request(subtype, **fields))["response"]
            return response

        await told("initialize")
        plain = {"plain": own("plain.py", "well"), "odd": {"type": "pigeon"}, "gone": {"command": "/no/such/program"}}
        added = (await told("mcp_set_servers", servers=plain))["response"]
        assert (added["added"], added["removed"], sorted(added["errors"])) == (["plain", "gone"], [], ["gone", "odd"])
        called = await told("mcp_call", tool="mcp__plain__echo", arguments={"a": 1})
        assert called["response"]["content"] == [{"type": "text", "text": '{"a": 1}'}]
        assert (await told("mcp_call", tool="mcp__plain__fly"))["error"].startswith("There is no MCP tool")
        assert "denied" in (await told("mcp_call", tool="mcp__plain__which"))["error"]

        assert (await told("mcp_toggle", serverName="plain", enabled=False))["subtype"] == "success"
        assert "disabled" in (await told("mcp_call", tool="mcp__plain__echo"))["error"]
        assert (await told("mcp_toggle", serverName="plain", enabled=True))["subtype"] == "success"
        assert (await told("mcp_reconnect", serverName="plain"))["subtype"] == "success"
        assert "failed" in (await told("mcp_reconnect", serverName="gone"))["error"]
        assert (await told("mcp_reconnect", serverName="zzz"))["error"] == "Server not found: zzz"

        left = (await told("mcp_set_servers", servers={}))["response"]
        assert (left["added"], left["removed"], left["errors"]) == ([], ["gone", "plain"], {})
        assert (await told("mcp_status"))["response"] == {"mcpServers": []}

    await visit(tmp_path, script("Done."), scenario, disallowed_tools=("mcp__plain__which",))


async def test_tools_stand_after_our_own_in_the_order_of_their_servers_and_denied_ones_nowhere(tmp_path: Path) -> None:
    servers = config(zoo=own("plain.py", "well"), ape=own("plain.py", "well"))
    harness = await visit(
        tmp_path, script("Done."), one_turn, mcp_config=servers, disallowed_tools=("mcp__ape__which",)
    )

    init = next(line for line in harness.messages("system") if line["subtype"] == "init")
    assert init["tools"][-3:] == ["mcp__zoo__echo", "mcp__zoo__which", "mcp__ape__echo"]
    assert states(harness) == {"zoo": "connected", "ape": "connected"}
    names = [schema["name"] for schema in harness.session.config.tools.schemas()]
    assert names == ["Agent" if name == "Task" else name for name in init["tools"]]
    said = "About the tools of the MCP server 'zoo', in its own words:\nEcho softly."
    assert said in (harness.session.journal.system_text or "")


async def test_progress_is_reported_and_a_call_without_any_is_given_up_at_its_limit(tmp_path: Path) -> None:
    servers = config(workshop=workshop(timeout=1000))
    turns = script(
        [("mcp__workshop__build", {"steps": 2, "seconds": 0.1})],
        [("mcp__workshop__stall", {})],
        [("mcp__workshop__add", {"a": 1, "b": 1})],
        "Done.",
    )
    harness = await visit(tmp_path, turns, one_turn, mcp_config=servers, allowed_tools=ALL)
    built, stalled, added = results(harness)
    assert built == [{"type": "text", "text": "built"}]
    assert stalled == "MCP server 'workshop': tools/call got no response and no progress for 1 s"
    assert added == [{"type": "text", "text": "2"}]
    assert [line["tool_use_id"] for line in harness.messages("tool_progress")] != []


async def test_an_interrupt_withdraws_the_call_and_the_server_stays(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("assistant")
        await asyncio.sleep(0)
        await harness.request("interrupt")
        assert (await harness.receive("result"))["terminal_reason"] == "aborted_tools"
        harness.prompt("again")
        assert (await harness.receive("result"))["result"] == "Done."

    turns = script([("mcp__workshop__stall", {})], [("mcp__workshop__add", {"a": 1, "b": 1})], "Done.")
    servers = config(workshop=workshop())
    harness = await visit(tmp_path, turns, scenario, mcp_config=servers, allowed_tools=ALL)
    assert results(harness)[-1] == [{"type": "text", "text": "2"}]


async def test_a_server_gets_its_variables_and_none_of_our_keys(tmp_path: Path) -> None:
    servers = config(workshop=workshop(env={"COLOUR": "${PAINT:-red}"}))
    turns = script(
        [("mcp__workshop__environment", {"name": name}) for name in ("COLOUR", "ANTHROPIC_API_KEY", "PATH")], "Done."
    )
    keys = {"ANTHROPIC_API_KEY": "sk-secret"}
    harness = await visit(tmp_path, turns, one_turn, keys, mcp_config=servers, allowed_tools=ALL)
    assert [content[0]["text"] for content in results(harness)] == ["red", "(not set)", "/usr/bin:/bin"]


async def test_what_is_not_seen_reaches_no_person_that_decides(tmp_path: Path) -> None:
    hidden = "\u200b\u2066\ufeff"
    listed = {"name": f"wipe{hidden}_all", "description": f"Wipes{hidden}", "inputSchema": {"type": "object"}}
    answers: Json = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}},
        "tools/list": {"tools": [listed]},
    }

    async def scenario(harness: SessionHarness) -> None:
        harness.send(ask("i1", "initialize", sdkMcpServers=["calc"]))
        harness.prompt("go")
        while True:
            asked = await harness.receive_until(lambda line: line["type"] in ("control_request", "result"))
            if asked["type"] == "result":
                break
            request = asked["request"]
            if request["subtype"] == "can_use_tool":
                assert (request["display_name"], request["title"]) == ("Wipe all", "Use Wipe all?")
                assert request["description"] == r"touch\u200b\u2066\ufeff x"
                harness.send(answer(asked, {"behavior": "deny", "message": "no"}))
                continue
            message = request["message"]
            result = answers.get(message.get("method"), {})
            harness.send(answer(asked, {"mcp_response": {"jsonrpc": "2.0", "id": message.get("id"), "result": result}}))
        [server] = (await harness.request("mcp_status"))["response"]["response"]["mcpServers"]
        assert [tool["name"] for tool in server["tools"]] == ["wipe_all"]

    turns = script([("mcp__calc__wipe____all", {"command": f"touch{hidden} x"})], "Done.")
    await visit(tmp_path, turns, scenario, permission_prompt_tool="stdio")


async def test_a_server_whose_name_cannot_be_read_in_full_is_refused(tmp_path: Path) -> None:
    servers = config(**{"git\u200bhub": own("plain.py", "well", required=False)})
    harness = await visit(tmp_path, script("Done."), one_turn, mcp_config=servers)

    assert list(states(harness).values()) == ["failed"]
    assert "the name contains invisible characters: 'git\\u200bhub'" in harness.warnings[0]
