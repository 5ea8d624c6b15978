"""Fields that the official packages declare for control requests and their answers: each is honoured or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.engine.control.mcp import MAX_RESULT_CHARS
from tests.helpers.session import Json, SessionHarness
from tests.session.engine.control.test_answers import HELLO, HostServer, payload


async def ask(harness: SessionHarness, subtype: str, **fields: Any) -> Json:
    return payload(await harness.request(subtype, **fields))


async def error(harness: SessionHarness, subtype: str, **fields: Any) -> str:
    response = (await harness.request(subtype, **fields))["response"]
    assert response["subtype"] == "error", response
    return str(response["error"])


# What fills the context window.


async def test_the_context_report_has_skills_commands_and_agents(tmp_path: Path) -> None:
    for path, text in {
        ".claude/skills/tidy/SKILL.md": "---\ndescription: Tidy up\n---\nTidy.\n",
        ".claude/skills/hidden/SKILL.md": "---\ndescription: x\ndisable-model-invocation: true\n---\nx\n",
        ".claude/commands/greet.md": "---\ndescription: Greet\n---\nHello.\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    async with SessionHarness(tmp_path, HELLO) as harness:
        scout = {"description": "Scouts ahead", "prompt": "Scout."}
        await ask(harness, "initialize", agents={"scout": scout})
        usage = await ask(harness, "get_context_usage")

    skills, commands = usage["skills"], usage["slashCommands"]
    [tidy] = [skill for skill in skills["skillFrontmatter"] if skill["name"] == "tidy"]
    assert tidy == {
        "name": "tidy",
        "source": "project",
        "tokens": 3,
        "path": str(tmp_path / ".claude/skills/tidy/SKILL.md"),
    }
    assert "hidden" not in [skill["name"] for skill in skills["skillFrontmatter"]]
    assert skills["totalSkills"] == skills["includedSkills"] + 1
    assert skills["tokens"] == sum(skill["tokens"] for skill in skills["skillFrontmatter"])
    assert commands == {"totalCommands": 3, "includedCommands": 1, "tokens": 3}  # with two of our own
    assert usage["agents"] == [{"agentType": "scout", "source": "client", "tokens": 5}]


async def test_the_context_report_has_the_sections_of_the_prompt(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO, append_system_prompt="Be kind to animals.") as harness:
        harness.prompt("Hi")
        await harness.receive("result")
        usage = await ask(harness, "get_context_usage")
        await ask(harness, "initialize", systemPrompt="Mine.")
        later = await ask(harness, "get_context_usage")

    sections = usage["systemPromptSections"]
    prompt = next(row for row in usage["categories"] if row["id"] == "system_prompt")
    assert [section["name"] for section in sections] == ["Instructions", "Appended", "Environment"]
    assert sum(section["tokens"] for section in sections) == pytest.approx(prompt["tokens"], abs=5)
    # The recorded prompt is the one that is sent, and has no section of the new one.
    assert [section["name"] for section in later["systemPromptSections"]] == ["Appended"]


async def test_the_context_report_has_what_servers_say(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO * 2) as harness:
        host = HostServer(harness)
        host.results["initialize"] = {**host.results["initialize"], "instructions": "Buy low, sell high."}
        await host.request("initialize", sdkMcpServers=["shop"])
        await host.receive_until(lambda line: "tools/list" in host.methods)
        harness.prompt("Hi")
        await harness.receive("result")
        usage = await ask(harness, "get_context_usage")

    row = next(row for row in usage["categories"] if row["id"] == "mcp_instructions")
    assert usage["mcpInstructions"] == [{"serverName": "shop", "tokens": row["tokens"]}]
    assert row["tokens"] > 0
    assert usage["totalTokens"] == sum(row["tokens"] for row in usage["categories"] if row["kind"] == "used")


async def test_both_details_of_the_context_report_are_the_same_estimate(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        full, summary = [await ask(harness, "get_context_usage", detail=detail) for detail in ("full", "summary")]
        wrong = await error(harness, "get_context_usage", detail="deep")

    assert full == summary
    assert "'deep'" in wrong


# Hooks.

HOOK = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true", "statusMessage": "Stopping"}]}]}}


async def test_the_hooks_listing_has_what_managed_settings_decide(tmp_path: Path) -> None:
    managed = json.dumps({**HOOK, "allowManagedHooksOnly": True, "strictPluginOnlyCustomization": ["hooks"]})
    async with SessionHarness(tmp_path, HELLO, managed_settings=managed) as harness:
        policy = (await ask(harness, "get_hooks_listing"))["policy"]
    async with SessionHarness(tmp_path, HELLO, managed_settings='{"disableAllHooks": true}') as off:
        disabled = (await ask(off, "get_hooks_listing"))["policy"]

    assert (policy["managedOnly"], policy["pluginOnly"], policy["policyHookCount"]) == (True, True, 1)
    assert (disabled["disabledByPolicy"], disabled["allDisabled"]) == (True, True)


# Thinking and titles.


async def test_the_form_of_thinking_can_be_changed(tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": "claude-opus-5", "thinking_display": "summarized"}
    async with SessionHarness(tmp_path, HELLO, **options) as harness:

        def form() -> Any:
            thinking = harness.session.conversation.build_request().thinking
            return (thinking or {}).get("display")

        await ask(harness, "set_max_thinking_tokens", max_thinking_tokens=4000)
        assert form() == "summarized"
        await ask(harness, "set_max_thinking_tokens", thinking_display="omitted")
        assert form() == "omitted"
        refused = await error(harness, "set_max_thinking_tokens", thinking_display="highlights", max_thinking_tokens=9)
        assert "'highlights'" in refused
        assert (form(), harness.session.conversation.thinking.budget_tokens) == ("omitted", 9)
        await ask(harness, "set_max_thinking_tokens", thinking_display=None)
        assert form() == "summarized"


async def test_a_title_of_either_source_is_the_users(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        harness.prompt("Hi")
        await harness.receive("result")
        for source in ("host", "remote"):
            await ask(harness, "rename_session", title=f"By {source}", source=source)
            assert harness.session.journal.title == f"By {source}"
        wrong = await error(harness, "rename_session", title="x", source="nobody")
        assert harness.session.journal.title == "By remote"

    assert "'nobody'" in wrong


# MCP.


async def elicit(harness: SessionHarness, **params: Any) -> Json:
    """The question that the client receives."""
    host = HostServer(harness)
    await host.request("initialize", sdkMcpServers=["shop"])
    await host.receive_until(lambda line: "tools/list" in host.methods)
    question = {"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params}
    await host.request("mcp_message", server_name="shop", message=question)
    asked = await host.receive_until(lambda line: line.get("request", {}).get("subtype") == "elicitation")
    response = {"subtype": "success", "request_id": asked["request_id"], "response": {"action": "cancel"}}
    harness.send({"type": "control_response", "response": response})
    request: Json = asked["request"]
    return request


async def test_a_question_of_a_server_has_its_title_and_the_order_of_its_fields(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"size": {"type": "string"}, "colour": {"type": "string"}}}
    display = {"title": "Pay?", "displayName": "Shop", "description": "A\u202e purchase", "other": "x"}
    meta = {"anthropic/permissionDisplay": display}
    async with SessionHarness(tmp_path, HELLO) as harness:
        asked = await elicit(harness, message="Pay", requestedSchema=schema, _meta=meta)
    async with SessionHarness(tmp_path, HELLO) as plain:
        bare = await elicit(plain, message="Pay", requestedSchema={"type": "object"}, _meta={"x": 1})

    assert (asked["title"], asked["display_name"]) == ("Pay?", "Shop")
    assert asked["description"] == "A purchase"
    assert asked["property_order"] == ["size", "colour"]
    assert bare.keys() == {"subtype", "mcp_server_name", "message", "requested_schema"}


async def test_a_live_reply_is_an_ordinary_one(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        live = await ask(harness, "mcp_status", liveReply=True)
        ordinary = await ask(harness, "mcp_status")

    assert live == ordinary


async def test_staged_files_are_refused_by_name(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        for field in ("input_files", "output_files"):
            files = [{"name": "a", "lane_path": "/b"}]
            assert field in await error(harness, "mcp_call", tool="mcp__shop__buy", **{field: files})


async def test_a_result_that_is_not_for_a_model_is_the_servers_own_up_to_a_limit(tmp_path: Path) -> None:
    picture = {"type": "image", "data": "AAAA", "mimeType": "image/odd", "annotations": {"priority": 1}}
    result = {"content": [picture], "structuredContent": {"a": 1}}
    async with SessionHarness(tmp_path, HELLO) as harness:
        host = HostServer(harness, **{"tools/call": result})
        await host.request("initialize", sdkMcpServers=["shop"])
        await host.receive_until(lambda line: "tools/list" in host.methods)
        fields: Json = {"tool": "mcp__shop__buy", "arguments": {}, "result_not_for_model": True}
        assert payload(await host.request("mcp_call", **fields)) == result
        host.results["tools/call"] = {"content": [{"type": "text", "text": "x" * MAX_RESULT_CHARS}]}
        refused = (await host.request("mcp_call", **fields))["response"]

    assert str(MAX_RESULT_CHARS) in refused["error"]


# Agents.


async def test_observers_of_agents_in_files_are_named_on_stderr(tmp_path: Path) -> None:
    (tmp_path / ".claude" / "agents").mkdir(parents=True)
    (tmp_path / ".claude" / "agents" / "scout.md").write_text("---\ndescription: S\nobserver: watcher\n---\nScout.\n")
    async with SessionHarness(tmp_path, HELLO) as harness:
        harness.prompt("Hi")
        await harness.receive("result")

    assert any(
        warning.endswith("scout.md: `observer` has no effect: observers are not supported")
        for warning in harness.warnings
    )
