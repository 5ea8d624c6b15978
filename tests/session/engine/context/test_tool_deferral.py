"""Deferred tools in a session: what the model is told and given, and what survives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from parley.engine.mcp.server_tool import is_always_loaded
from parley.engine.session.config import SessionConfig
from parley.models.script import Script, ScriptedCall, ScriptedTurn
from parley.testing.model_server import ModelServer
from tests.helpers.mcp import answer, config, one_turn, own, results, script, visit
from tests.helpers.session import Json, SessionHarness

ON = {"ENABLE_TOOL_SEARCH": "true"}
MANY = config(many=own("many.py", "20"))
ALLOWED = ("mcp__many",)
FIRST = "mcp__many__create_invoice_0"
SECOND = "mcp__many__read_invoice_1"


def calling(*calls: tuple[str, Json]) -> ScriptedTurn:
    return ScriptedTurn(tools=[ScriptedCall(name=name, input=input) for name, input in calls])


SEARCH = calling(("ToolSearch", {"query": f"select:{FIRST}"}))
DONE = ScriptedTurn(text="Done.")


async def ask_server(
    folder: Path,
    turns: list[ScriptedTurn],
    talk: Callable[[SessionHarness], Awaitable[None]] = one_turn,
    environment: dict[str, str] = ON,
    **options: Any,
) -> tuple[SessionHarness, list[Json]]:
    """A session on the Messages API, and the requests it makes."""
    options = {"model": "sonnet", "mcp_config": MANY, "allowed_tools": ALLOWED, **options}
    async with ModelServer(Script(turn=turns)) as server:
        harness = await visit(folder, "", talk, {**environment, "ANTHROPIC_BASE_URL": server.url}, **options)
    return harness, [exchange.body for exchange in server.exchanges]


def names(request: Json) -> list[str]:
    return [tool["name"] for tool in request["tools"]]


def marked(request: Json) -> list[str]:
    return [tool["name"] for tool in request["tools"] if tool.get("defer_loading")]


def notices(request: Json) -> list[str]:
    """What the model was told about deferred tools."""
    blocks = [block for message in request["messages"] for block in message["content"]]
    return [block["text"] for block in blocks if block.get("text", "").startswith("<deferred-tools>")]


def has_mcp(request: Json) -> bool:
    return any(name.startswith("mcp__") for name in names(request))


async def test_names_are_told_once_and_found_tools_stay(tmp_path: Path) -> None:
    async def talk(harness: SessionHarness) -> None:
        await one_turn(harness)
        await one_turn(harness)

    _, [first, second, third] = await ask_server(tmp_path, [SEARCH, DONE, DONE], talk)
    [notice] = notices(first)
    assert "prefix mcp__many__: create_invoice_0, read_invoice_1," in notice
    assert "WebFetch" in first["tools"][-1]["description"]
    assert "WebFetch" not in notice
    assert not has_mcp(first)
    assert marked(second) == marked(third) == [FIRST]
    assert notices(third) == [notice]


async def test_a_deferred_tool_that_is_called_unseen_runs_and_the_list_stays(tmp_path: Path) -> None:
    harness, [first, second] = await ask_server(tmp_path, [calling((SECOND, {"id": "x"})), DONE])
    assert results(harness) == [[{"type": "text", "text": "read_invoice_1: x"}]]
    assert SECOND not in names(first)
    assert second["tools"] == first["tools"]


async def test_a_built_in_tool_can_be_deferred_and_wrong_input_names_its_parameters(tmp_path: Path) -> None:
    turns = [calling(("Glob", {"wrong": 1})), calling(("ToolSearch", {"query": "select:WebFetch"})), DONE]
    harness, [first, second, third] = await ask_server(tmp_path, turns)
    assert "Glob" not in names(first)
    assert any("pattern (required)" in content for content in results(harness))
    assert second["tools"] == first["tools"]
    assert marked(third) == ["WebFetch"]


async def test_a_search_without_a_match_and_an_empty_one_say_what_exists(tmp_path: Path) -> None:
    calls = [("ToolSearch", {"query": query}) for query in ("zebra", "select:", "select:mcp__other__tool")]
    harness = await visit(tmp_path, script(calls, "Done."), one_turn, ON, mcp_config=MANY)
    zebra, empty, other = results(harness)
    assert zebra.startswith("No deferred tool matches 'zebra'. Deferred tools: ")
    assert empty.startswith("The query is empty.")
    assert FIRST in other


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ({}, {"ENABLE_TOOL_SEARCH": "false"}),
        ({}, {}),  # not large enough to be deferred on a server that is not Anthropic's own
        ({}, {"ENABLE_TOOL_SEARCH": "auto:50"}),
        ({"disallowed_tools": ("ToolSearch",)}, ON),
        ({"tools": ("Read",)}, ON),
    ],
)
async def test_without_tool_search_all_tools_are_given(
    options: dict[str, Any], environment: dict[str, str], tmp_path: Path
) -> None:
    harness, [request] = await ask_server(tmp_path, [DONE], environment=environment, **options)
    assert sum(name.startswith("mcp__many__") for name in names(request)) == 20
    # It is offered for tools that come later, unless it is switched off.
    expected = environment.get("ENABLE_TOOL_SEARCH") != "false" and not options
    assert (notices(request), "ToolSearch" in names(request)) == ([], expected)
    [init] = [line for line in harness.lines if line.get("subtype") == "init"]
    assert ("ToolSearch" in init["tools"]) == expected


@pytest.mark.parametrize("environment", [{"ENABLE_TOOL_SEARCH": "auto:0"}, {"ENABLE_TOOL_SEARCH": "auto:1"}])
async def test_auto_defers_definitions_that_take_more_than_their_share(
    environment: dict[str, str], tmp_path: Path
) -> None:
    _, [request] = await ask_server(tmp_path, [DONE], environment=environment, autocompact="100000")
    assert not has_mcp(request)


async def test_denied_tools_are_neither_listed_nor_found(tmp_path: Path) -> None:
    search = calling(("ToolSearch", {"query": f"select:{FIRST},{SECOND}"}))
    _, [first, second] = await ask_server(tmp_path, [search, DONE], disallowed_tools=(FIRST,))
    assert ("create_invoice_0" in notices(first)[0], "read_invoice_1" in notices(first)[0]) == (False, True)
    assert marked(second) == [SECOND]


@pytest.mark.parametrize(
    ("by_server", "by_tool", "loaded"),
    [
        (None, None, False),
        (None, True, True),
        (None, False, False),
        (None, "yes", False),
        (True, None, True),
        (True, True, True),
        (True, False, False),
        (False, None, False),
        (False, True, False),
    ],
)
def test_servers_and_tools_declare_what_is_always_loaded(by_server: bool | None, by_tool: object, loaded: bool) -> None:
    assert is_always_loaded(by_server, by_tool) is loaded


async def test_tools_that_are_always_loaded_are_not_deferred(tmp_path: Path) -> None:
    servers = config(
        many=own("many.py", "20", "always"), small=own("plain.py", "well", alwaysLoad=True), bad={"alwaysLoad": 3}
    )
    _, [request] = await ask_server(tmp_path, [DONE], mcp_config=servers)
    loaded = [name for name in names(request) if name.startswith("mcp__")]
    assert loaded == ["mcp__many__archive_invoice_7", "mcp__small__echo", "mcp__small__which"]
    assert "archive_invoice_7" not in notices(request)[0]


async def test_after_a_compaction_the_names_are_told_again_and_found_tools_are_given_at_once(tmp_path: Path) -> None:
    async def talk(harness: SessionHarness) -> None:
        for text in ("go", "more", "/compact", "again"):
            harness.prompt(text)
            await harness.receive("result")

    summary = ScriptedTurn(text="<summary>It went well.</summary>")
    _, requests = await ask_server(tmp_path, [SEARCH, DONE, DONE, summary, DONE], talk)
    last = requests[-1]
    assert "tool_reference" not in json.dumps(last["messages"])
    assert (FIRST in names(last), marked(last), len(notices(last))) == (True, [], 1)


async def test_a_tool_that_is_gone_is_named_at_the_end_and_nothing_before_changes(tmp_path: Path) -> None:
    async def talk(harness: SessionHarness) -> None:
        await one_turn(harness)
        await harness.request("mcp_toggle", serverName="many", enabled=False)
        await one_turn(harness)

    _, [_, before, after] = await ask_server(tmp_path, [SEARCH, DONE, DONE], talk)
    assert marked(before) == [FIRST]
    assert after["tools"] == before["tools"]
    assert "tool_reference" in json.dumps(after)
    assert "These tools no longer exist:\nprefix mcp__many__: " in notices(after)[1]


async def test_a_subagent_searches_for_itself(tmp_path: Path) -> None:
    agent = ("Agent", {"description": "look", "prompt": "Look.", "subagent_type": "general-purpose"})
    _, requests = await ask_server(tmp_path, [calling(agent), SEARCH, calling((FIRST, {"id": "y"})), DONE, DONE])
    own_first, agent_first, agent_second, agent_last, own_last = requests
    assert not has_mcp(own_first)
    assert (has_mcp(agent_first), len(notices(agent_first))) == (False, 1)
    assert marked(agent_second) == marked(agent_last) == [FIRST]
    assert f"{FIRST.removeprefix('mcp__many__')}: y" in json.dumps(agent_last)
    assert not has_mcp(own_last)


async def test_the_context_report_has_the_deferred_tools(tmp_path: Path) -> None:
    found: list[Json] = []

    async def talk(harness: SessionHarness) -> None:
        await one_turn(harness)
        found.append((await harness.request("get_context_usage"))["response"]["response"])

    await ask_server(tmp_path, [SEARCH, DONE], talk)
    [usage] = found
    rows = {row["id"]: row for row in usage["categories"]}
    assert rows["mcp_tools_deferred"]["kind"] == rows["system_tools_deferred"]["kind"] == "deferred"
    assert {tool["name"] for tool in usage["mcpTools"] if tool["isLoaded"]} == {FIRST}
    assert len(usage["mcpTools"]) == 20
    assert {tool["name"] for tool in usage["deferredBuiltinTools"]} >= {"Glob", "WebFetch"}
    assert usage["totalTokens"] == sum(row["tokens"] for row in usage["categories"] if row["kind"] == "used")


class ImpatientHarness(SessionHarness):
    """Its turns do not wait for servers."""

    def furnish(self, setup: SessionConfig) -> SessionConfig:
        mcp = setup.extensions.mcp
        assert mcp is not None
        mcp = replace(mcp, timeouts=replace(mcp.timeouts, turn_seconds=0.0))
        return replace(setup, extensions=replace(setup.extensions, mcp=mcp))


LISTED = {"tools": [{"name": "add", "description": "Add numbers", "inputSchema": {"type": "object"}}]}


def answer_server(request: Json) -> Json:
    """What a server that the client runs says."""
    message = request["request"]["message"]
    result: Json = LISTED if message["method"] == "tools/list" else {"content": [{"type": "text", "text": "5"}]}
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "late"}}
    return answer(request, {"mcp_response": {"jsonrpc": "2.0", "id": message.get("id"), "result": result}})


async def with_late_server(folder: Path, turns: str, **others: Json) -> SessionHarness:
    """A session with a server, run by the client, that answers only once the first tool call is there."""
    servers = config(late={"type": "sdk", "name": "late"}, **others)
    harness = ImpatientHarness(folder, turns, mcp_config=servers, allowed_tools=("mcp__late",))
    harness.environment |= ON
    async with asyncio.timeout(60), harness:
        harness.prompt("go")
        answered = set[str]()
        await harness.receive("assistant")
        while not any(line["type"] == "result" for line in harness.lines):
            asked = [line for line in harness.lines if line.get("request", {}).get("subtype") == "mcp_message"]
            for line in asked:
                if line["request_id"] not in answered:
                    answered.add(line["request_id"])
                    harness.send(answer_server(line))
            seen = len(harness.lines)
            await harness.receive_until(lambda line, seen=seen: len(harness.lines) > seen or line["type"] == "result")
    return harness


async def test_a_model_can_wait_for_servers_that_are_still_connecting(tmp_path: Path) -> None:
    turns = script([("WaitForMcpServers", {})], [("mcp__late__add", {})], [("WaitForMcpServers", {})], "Done.")
    harness = await with_late_server(tmp_path, turns)
    [init] = [line for line in harness.lines if line.get("subtype") == "init"]
    assert "WaitForMcpServers" in init["tools"]
    waited, called, gone = results(harness)
    assert (waited, called) == ("late: connected", [{"type": "text", "text": "5"}])
    assert "No such tool available: WaitForMcpServers" in gone


async def test_a_search_waits_for_servers_that_are_still_connecting(tmp_path: Path) -> None:
    turns = script([("ToolSearch", {"query": "numbers"})], "Done.")
    harness = await with_late_server(tmp_path, turns, plain=own("plain.py", "well"))
    assert results(harness) == [[{"type": "tool_reference", "tool_name": "mcp__late__add"}]]


@pytest.mark.parametrize("on_own_api", [True, False])
async def test_rare_tools_are_deferred_without_any_server_and_the_client_is_told_of_all(
    on_own_api: bool, tmp_path: Path
) -> None:
    environment = ON if on_own_api else {}
    harness, [first, second] = await ask_server(
        tmp_path,
        [calling(("ToolSearch", {"query": "select:WebFetch"})), DONE],
        environment=environment,
        mcp_config=(),
        permission_prompt_tool="stdio",
    )
    init = next(line for line in harness.lines if line.get("subtype") == "init")
    assert {"WebFetch", "ExitPlanMode", "Read", "ToolSearch"} <= set(init["tools"])
    assert names(first) == ["Agent", "Bash", "Edit", "Grep", "Read", "Write", "ToolSearch"]
    assert "ExitPlanMode" in first["tools"][-1]["description"]
    assert notices(first) == []
    assert marked(second) == (["WebFetch"] if on_own_api else [])


@pytest.mark.parametrize(
    "options", [{"model": "openai:some-model"}, {"model": "sonnet", "tools": ("Read", "WebFetch")}]
)
async def test_nothing_is_deferred_for_other_models_and_in_a_chosen_set(options: Json, tmp_path: Path) -> None:
    harness = SessionHarness(tmp_path, "", **options)
    async with harness:
        conversation = harness.session.conversation
        assert "WebFetch" in [schema["name"] for schema in conversation.tool_schemas()]
