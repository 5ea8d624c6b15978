"""Answers to control requests have the declared fields, and the fields of requests have their effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parley.models.script import Script, ScriptedTurn
from parley.testing.model_server import running
from tests.helpers.mcp import config, own, script
from tests.helpers.session import Json, SessionHarness, texts

HELLO = "[[turn]]\ntext = 'Hello.'\n"
SLOW = "[[turn]]\ntext = 'long long long'\nchunk_chars = 2\nevent_delay_ms = 50\n"
AGENT = """\
[[turn]]
tools = [{ name = 'Agent', id = 't1', input = { description = 'Look', prompt = 'Look around' } }]
[[turn]]
text = 'Seen by the agent.'
[[turn]]
text = 'Done.'
"""


def payload(line: Json) -> Json:
    assert line["response"]["subtype"] == "success", line
    found: Json = line["response"].get("response", {})
    return found


class HostServer:
    """An MCP server in the host: it answers the `mcp_message` requests of the engine."""

    def __init__(self, harness: SessionHarness, **results: Any) -> None:
        self.harness = harness
        self.results = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}, "resources": {}},
                "serverInfo": {"name": "shop", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "buy", "inputSchema": {"type": "object"}}]},
            **results,
        }
        self.methods: list[str] = []

    def answer(self, line: Json) -> None:
        request = line.get("request", {})
        if line["type"] != "control_request" or request["subtype"] != "mcp_message":
            return
        message = request["message"]
        self.methods.append(message["method"])
        result = self.results.get(message["method"], {})
        if result is None:
            return
        field = "error" if isinstance(result, dict) and "code" in result else "result"
        reply = {"jsonrpc": "2.0", "id": message.get("id"), field: result}
        response = {"subtype": "success", "request_id": line["request_id"], "response": {"mcp_response": reply}}
        self.harness.send({"type": "control_response", "response": response})

    async def request(self, subtype: str, **fields: Any) -> Json:
        """The answer to a control request; the engine's own requests are answered meanwhile."""
        request_id = f"ask-{subtype}-{len(self.harness.lines)}"
        request = {"subtype": subtype, **fields}
        self.harness.send({"type": "control_request", "request_id": request_id, "request": request})
        return await self.receive_until(lambda line: line.get("response", {}).get("request_id") == request_id)

    async def receive_until(self, wanted: Callable[[Json], bool]) -> Json:
        def look(line: Json) -> bool:
            self.answer(line)
            return wanted(line)

        return await self.harness.receive_until(look)


async def test_the_usage_is_answered_with_every_declared_field(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        harness.prompt("Hi")
        await harness.receive("result")
        usage = payload(await harness.request("get_usage"))

    assert usage.keys() == {"session", "subscription_type", "rate_limits_available", "rate_limits", "behaviors"}
    assert usage["session"]["total_cost_usd"] == 0
    assert (usage["subscription_type"], usage["rate_limits_available"], usage["rate_limits"]) == (None, False, None)


async def test_the_context_usage_is_answered_with_every_declared_field(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        harness.prompt("Hi")
        await harness.receive("result")
        usage = payload(await harness.request("get_context_usage"))

    assert usage.keys() >= {
        *("categories", "totalTokens", "maxTokens", "rawMaxTokens", "percentage", "model", "isAutoCompactEnabled"),
        *("memoryFiles", "mcpTools", "agents", "gridRows", "apiUsage", "messageBreakdown"),
    }
    assert {"name", "tokens", "color"} <= usage["categories"][0].keys()
    assert 0 < usage["totalTokens"] < usage["maxTokens"] == usage["rawMaxTokens"]


async def test_the_handshake_is_answered_with_every_field_that_applies(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        answer = payload(await harness.request("initialize"))

    assert {command["name"] for command in answer["commands"]} >= {"clear", "compact", "context"}
    assert "general-purpose" in {agent["name"] for agent in answer["agents"]}
    assert (answer["output_style"], answer["available_output_styles"][0]) == ("default", "default")
    assert (answer["hook_on_failure_supported"], answer["fast_mode_state"]) == (True, "off")


async def test_the_hooks_listing_has_every_declared_field(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO, settings='{"disableAllHooks": true}') as harness:
        listing = payload(await harness.request("get_hooks_listing"))

    assert (listing["events"], listing["hooks"], listing["errors"]) == ([], [], [])
    assert listing["policy"] == {
        "disabledByPolicy": False,
        "managedOnly": False,
        "pluginOnly": False,
        "allDisabled": True,
        "policyHookCount": 0,
    }
    assert listing["eventCatalog"][0] == {
        "name": "PreToolUse",
        "summary": "before the engine decides about a tool call and runs it",
        "supportsMatcher": True,
        "matchField": "tool_name",
    }
    assert "safeMode" not in listing
    assert "bareMode" not in listing


async def test_a_listed_hook_has_the_texts_that_clients_show(tmp_path: Path) -> None:
    commands = [
        {"type": "command", "command": "true", "statusMessage": "Checking", "if": "Bash(git *)", "once": True},
        {"type": "mcp_tool", "server": "s", "tool": "t"},
    ]
    managed = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "prompt", "prompt": "Fine?"}]}]}})
    settings = json.dumps({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": commands}]}})
    async with SessionHarness(tmp_path, HELLO, settings=settings, managed_settings=managed) as harness:
        listing = payload(await harness.request("get_hooks_listing"))

    texts = ("displayText", "commandText", "contentLabel")
    assert [tuple(hook[name] for name in texts) for hook in listing["hooks"]] == [
        ("Checking", "true", "Command"),
        ("s: t", "s: t", "MCP tool"),
        ("Fine?", "Fine?", "Prompt"),
    ]
    assert (listing["hooks"][0]["condition"], listing["hooks"][0]["runsOnce"]) == ("Bash(git *)", True)
    assert listing["policy"]["policyHookCount"] == 1


@pytest.mark.parametrize(
    ("option", "field", "says"), [("safe_mode", "safeMode", "--safe-mode"), ("bare", "bareMode", "--bare")]
)
async def test_the_hooks_listing_says_why_hooks_do_not_run(tmp_path: Path, option: str, field: str, says: str) -> None:
    async with SessionHarness(tmp_path, HELLO, **{option: True}) as harness:
        listing = payload(await harness.request("get_hooks_listing"))

    assert says in listing[field]["exitHint"]


async def test_the_context_usage_lists_skills_commands_servers_and_sections(tmp_path: Path) -> None:
    own_files = tmp_path / "home" / ".claude"
    (own_files / "skills" / "demo").mkdir(parents=True)
    (own_files / "skills" / "demo" / "SKILL.md").write_text("---\nname: demo\ndescription: A demo\n---\nDo it.\n")
    (own_files / "commands").mkdir()
    (own_files / "commands" / "ship.md").write_text("Ship it.\n")
    async with SessionHarness(tmp_path, HELLO, append_system_prompt="Be brief.") as harness:
        host = HostServer(harness)
        host.results["initialize"]["instructions"] = "Buy wisely."
        await host.request("initialize", sdkMcpServers=["shop"])
        harness.prompt("go")  # the first turn waits for the servers
        await host.receive_until(lambda line: line["type"] == "result")
        usage = payload(await host.request("get_context_usage", detail="summary"))
        refused = await host.request("get_context_usage", detail="everything")

    assert (usage["skills"]["totalSkills"], usage["skills"]["includedSkills"]) == (1, 1)
    assert [(skill["name"], skill["source"]) for skill in usage["skills"]["skillFrontmatter"]] == [("demo", "user")]
    assert usage["slashCommands"]["totalCommands"] >= 1
    assert [server["serverName"] for server in usage["mcpInstructions"]] == ["shop"]
    sections = {section["name"]: section["tokens"] for section in usage["systemPromptSections"]}
    assert sections.keys() >= {"Instructions", "Environment", "Appended"}
    assert all(sections.values())
    assert "'everything' is unknown" in refused["response"]["error"]


async def test_usage_without_the_scan_of_transcripts_has_no_behaviors(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        assert payload(await harness.request("get_usage", skip_behaviors=True))["behaviors"] is None
        refused = await harness.request("get_usage", skip_behaviors="yes")

    assert "skip_behaviors" in refused["response"]["error"]


async def test_the_form_of_thinking_can_be_changed(tmp_path: Path) -> None:
    with running(Script(turn=[ScriptedTurn(text="Hi.")], at_end="repeat")) as server:
        harness = SessionHarness(tmp_path, HELLO, model="claude-opus-4-5", max_thinking_tokens=2000)
        harness.environment |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-test"}
        async with harness:
            for display in ("omitted", "nonsense", None):
                reply = await harness.request("set_max_thinking_tokens", thinking_display=display)
                assert ("error" in reply["response"]) is (display == "nonsense")
                harness.prompt("Hi")
                await harness.receive("result")
    assert [exchange.body["thinking"].get("display") for exchange in server.exchanges] == ["omitted", "omitted", None]


async def test_a_resource_of_a_panel_is_read_and_no_other(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO, mcp_config=config(workshop=own("greeter.py"))) as harness:
        harness.prompt("go")  # the first turn waits for the servers
        await harness.receive("result")
        read = await harness.request("mcp_read_resource", serverName="workshop", uri="ui://workshop/panel")
        other = await harness.request("mcp_read_resource", serverName="workshop", uri="workshop://rules")

    (page,) = payload(read)["contents"]
    assert (page["uri"], page["mimeType"], page["text"]) == ("ui://workshop/panel", "text/html", "<p>Workshop</p>")
    assert "ui://" in other["response"]["error"]


PANEL = {"resourceUri": "ui://shop/panel", "visibility": ["app"]}


@pytest.mark.parametrize(
    ("meta", "shown"),
    [
        ({"ui": PANEL, "secret": 1}, {"ui": PANEL}),
        ({"ui/resourceUri": "ui://shop/panel"}, {"ui/resourceUri": "ui://shop/panel"}),
        ({"ui/resourceUri": "https://shop.example"}, None),
        ({"ui": {"resourceUri": "https://x", "visibility": ["model", "all", {}]}}, {"ui": {"visibility": ["model"]}}),
        ({"ui": "panel"}, {"ui": {"visibility": []}}),
        ({"ui": {"resourceUri": "https://x"}}, None),
    ],
)
async def test_the_status_of_a_server_has_the_panels_of_tools(tmp_path: Path, meta: Json, shown: Json | None) -> None:
    tool = {"name": "buy", "inputSchema": {"type": "object"}, "_meta": meta}
    async with SessionHarness(tmp_path, HELLO) as harness:
        host = HostServer(harness, **{"tools/list": {"tools": [tool]}})
        await host.request("initialize", sdkMcpServers=["shop"])
        harness.prompt("go")
        await host.receive_until(lambda line: line["type"] == "result")
        (server,) = payload(await host.request("mcp_status"))["mcpServers"]

    assert [listed.get("_meta") for listed in server["tools"]] == [shown]


async def test_a_result_that_is_not_for_a_model_arrives_as_the_server_sent_it(tmp_path: Path) -> None:
    sound = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav", "_meta": {"length": 3}}
    async with SessionHarness(tmp_path, HELLO) as harness:
        host = HostServer(harness, **{"tools/call": {"content": [sound], "structuredContent": {"a": 1}}})
        await host.request("initialize", sdkMcpServers=["shop"])
        harness.prompt("go")
        await host.receive_until(lambda line: line["type"] == "result")
        raw = payload(await host.request("mcp_call", tool="mcp__shop__buy", result_not_for_model=True))

    assert (raw["content"], raw["structuredContent"]) == ([sound], {"a": 1})


async def test_a_resource_of_a_server_of_the_host_is_not_read_for_it(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        host = HostServer(harness)
        await host.request("initialize", sdkMcpServers=["shop"])
        await host.receive_until(lambda line: "tools/list" in host.methods)
        refused = await host.request("mcp_read_resource", serverName="shop", uri="ui://shop/panel")

    assert "'shop'" in refused["response"]["error"]
    assert "resources/read" not in host.methods


async def test_a_server_that_declares_tools_and_cannot_list_them_has_none(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        host = HostServer(harness, **{"tools/list": {"code": -32601, "message": "Method not found"}})
        await host.request("initialize", sdkMcpServers=["shop"])
        await host.receive_until(lambda line: "tools/list" in host.methods)
        harness.prompt("go")
        init = await host.receive_until(lambda line: line.get("subtype") == "init")

    assert [(row["name"], row["status"]) for row in init["mcp_servers"]] == [("shop", "connected")]


async def test_the_usage_counts_the_lines_that_file_tools_changed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\ntwo\nthree\n")
    turns = script(
        [("Write", {"file_path": "new.txt", "content": "a\nb\n"}), ("Read", {"file_path": "notes.txt"})],
        [("Edit", {"file_path": "notes.txt", "old_string": "two", "new_string": "2\n2.5"})],
        [("Edit", {"file_path": "notes.txt", "old_string": "missing", "new_string": "x"})],
        "Done.",
    )
    async with SessionHarness(tmp_path, turns, permission_mode="acceptEdits") as harness:
        before = payload(await harness.request("get_usage"))["session"]
        harness.prompt("go")
        await harness.receive("result")
        after = payload(await harness.request("get_usage"))["session"]

    assert (before["total_lines_added"], before["total_lines_removed"]) == (0, 0)
    assert (after["total_lines_added"], after["total_lines_removed"]) == (4, 1)


async def test_a_call_of_the_host_has_the_hosts_time_limit(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        host = HostServer(harness, **{"tools/call": None})
        await host.request("initialize", sdkMcpServers=["shop"])
        await host.receive_until(lambda line: "tools/list" in host.methods)
        failed = await host.request("mcp_call", tool="mcp__shop__buy", arguments={}, timeout_ms=50)

    assert failed["response"]["error_code"] == "mcp_call_failed"
    assert "0.05" in failed["response"]["error"]


async def test_servers_of_the_host_keep_the_limits_of_the_handshake(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        host = HostServer(harness, **{"tools/call": None})
        configs = {"shop": {"tools": [{"name": "buy", "timeout": 50}]}}
        await host.request("initialize", sdkMcpServers=["shop"], sdkMcpServerConfigs=configs)
        await host.receive_until(lambda line: "tools/list" in host.methods)
        failed = await host.request("mcp_call", tool="mcp__shop__buy", arguments={})

    assert "0.05" in failed["response"]["error"]


async def test_a_server_of_the_host_reports_that_an_elicitation_is_complete(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        host = HostServer(harness)
        await host.request("initialize", sdkMcpServers=["shop"])
        await host.receive_until(lambda line: "tools/list" in host.methods)
        done = {"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": "e1"}}
        await host.request("mcp_message", server_name="shop", message=done)
    (line,) = [line for line in harness.messages("system") if line["subtype"] == "elicitation_complete"]

    assert (line["mcp_server_name"], line["elicitation_id"]) == ("shop", "e1")
    assert line.keys() == {"type", "subtype", "mcp_server_name", "elicitation_id", "session_id", "uuid"}


async def test_plugins_are_not_read_again_while_a_turn_runs_if_the_host_says_so(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, SLOW, include_partial_messages=True) as harness:
        harness.prompt("go")
        await harness.receive("stream_event")
        busy = await harness.request("reload_plugins", refuse_if_busy=True)
        read = await harness.request("reload_plugins")
        await harness.receive("result")
        idle = await harness.request("reload_plugins", refuse_if_busy=True)

    assert busy["response"]["error_code"] == "reload_plugins_busy"
    for answer in (read, idle):
        assert payload(answer).keys() == {"commands", "agents", "plugins", "mcpServers", "error_count"}


@pytest.mark.parametrize("forwarded", [True, False])
async def test_the_handshake_may_ask_for_the_texts_of_agents(tmp_path: Path, forwarded: bool) -> None:
    async with SessionHarness(tmp_path, AGENT, skip_permissions=True) as harness:
        await harness.request("initialize", forwardSubagentText=forwarded)
        harness.prompt("go")
        await harness.receive("result")

    assert ("Seen by the agent." in texts(harness.messages("assistant"))) is forwarded


async def test_the_host_is_asked_to_open_the_address_of_an_elicitation(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        host = HostServer(harness)
        await host.request("initialize", sdkMcpServers=["shop"])
        await host.receive_until(lambda line: "tools/list" in host.methods)
        params = {"mode": "url", "url": "https://shop.test/pay", "elicitationId": "e1", "message": "Pay there"}
        question = {"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params}
        await host.request("mcp_message", server_name="shop", message=question)
        asked = await host.receive_until(lambda line: line.get("request", {}).get("subtype") == "elicitation")
        response = {"subtype": "success", "request_id": asked["request_id"], "response": {"action": "accept"}}
        harness.send({"type": "control_response", "response": response})

    assert asked["request"] == {
        "subtype": "elicitation",
        "mcp_server_name": "shop",
        "message": "Pay there",
        "mode": "url",
        "url": "https://shop.test/pay",
        "elicitation_id": "e1",
    }


async def test_the_status_of_a_server_names_the_pages_of_its_tools(tmp_path: Path) -> None:
    tools = [
        {"name": "buy", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": "ui://shop/buy"}}},
        {"name": "sell", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": "https://shop.test"}}},
    ]
    async with SessionHarness(tmp_path, HELLO) as harness:
        host = HostServer(harness, **{"tools/list": {"tools": tools}})
        await host.request("initialize", sdkMcpServers=["shop"])
        harness.prompt("go")  # the first turn waits for the servers
        await host.receive_until(lambda line: line["type"] == "result")
        [server] = payload(await host.request("mcp_status"))["mcpServers"]

    assert [tool.get("_meta") for tool in server["tools"]] == [{"ui": {"resourceUri": "ui://shop/buy"}}, None]


async def test_the_context_command_reports_data(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("Be brief.")
    (tmp_path / ".claude" / "skills" / "tidy").mkdir(parents=True)
    (tmp_path / ".claude" / "skills" / "tidy" / "SKILL.md").write_text("---\ndescription: Tidy up\n---\nTidy.\n")
    async with SessionHarness(tmp_path, HELLO) as harness:
        for prompt in ("Hi", "/context"):
            harness.prompt(prompt)
            await harness.receive("result")
    usage = list(harness.messages("assistant"))[-1]["context_usage"]

    assert [category["kind"] for category in usage["categories"]] == ["used", "used", "used", "free"]
    assert usage["categories"][0].keys() == {"name", "tokens", "kind"}
    assert usage["memory_files"] == [{"path": str(tmp_path / "CLAUDE.md"), "type": "Project", "tokens": 3}]
    assert usage["skills"] == [{"name": "tidy", "source": "project", "tokens": 4}]
    assert usage["total_tokens"] == sum(category["tokens"] for category in usage["categories"][:-1])
    assert usage["agents"] == []
    assert "over_limit" not in usage


async def test_the_context_command_reports_agents_tools_and_skills_of_plugins(tmp_path: Path) -> None:
    def put(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    put(".claude/agents/scout.md", "---\nname: scout\ndescription: Looks around\n---\nLook.")
    put("home/.claude/agents/mine.md", "---\nname: mine\ndescription: Mine\n---\nMine.")
    put("kit/.claude-plugin/plugin.json", '{"name": "kit"}')
    put("kit/agents/guest.md", "---\nname: guest\ndescription: A guest\n---\nGuest.")
    put("kit/skills/tidy/SKILL.md", "---\ndescription: Tidy up\n---\nTidy.")
    options: Json = {
        "model": "claude-opus-5-5",
        "agents": '{"given": {"description": "Given", "prompt": "p"}}',
        "plugin_dirs": (str(tmp_path / "kit"),),
        "mcp_config": config(library=own("plain.py", "library")),
        "autocompact": "300",
    }
    async with SessionHarness(tmp_path, "", **options) as harness:
        harness.prompt("/context")
        await harness.receive("result")
    usage = list(harness.messages("assistant"))[-1]["context_usage"]
    sources = {agent["agent_type"]: agent["source"] for agent in usage["agents"]}
    assert sources == {
        "given": "flagSettings",
        "kit:guest": "plugin",
        "mine": "userSettings",
        "scout": "projectSettings",
    }
    assert {agent["agent_type"]: agent["tokens"] for agent in usage["agents"]}["scout"] == 5
    [tool, *_] = usage["mcp_tools"]
    assert (tool["name"].startswith("mcp__library__"), tool["server_name"]) == (True, "library")
    assert tool["tokens"] > 0
    assert usage["skills"] == [{"name": "kit:tidy", "source": "plugin", "plugin_name": "kit", "tokens": 5}]
    over = usage["total_tokens"] - usage["raw_max_tokens"]
    assert usage["over_limit"] == {"tokens_over": over, "kind": "compaction_window"}
    assert over > 0
