"""What a client decides about the tools of MCP servers: policies, stricter modes, and calls of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.mcp import answer, config, one_turn, own, results, script, visit
from tests.helpers.session import Json, SessionHarness

ECHO = "mcp__plain__echo"
CALLS = script([(ECHO, {"a": 1})], "Done.")
BYPASS: dict[str, Any] = {"permission_mode": "bypassPermissions", "allow_skip_permissions": True}


def plain(**tool: Any) -> tuple[str, ...]:
    return config(plain=own("plain.py", "well", tools=[{"name": "echo", **tool}] if tool else []))


def decisions(harness: SessionHarness) -> list[Json]:
    entries = harness.session.config.storage.log.entries()
    return [entry.message for entry in entries if entry.kind == "permission"]


def is_run(harness: SessionHarness) -> bool:
    return '{"a": 1}' in str(results(harness)[0])


async def refuse(harness: SessionHarness) -> None:
    """A turn in which the client refuses one call."""
    harness.prompt("go")
    asked = await harness.receive("control_request")
    harness.send(answer(asked, {"behavior": "deny", "message": "Not that one."}))
    await harness.receive("result")


@pytest.mark.parametrize(
    "policy",
    [
        {"permission_policy": "always_ask"},
        {"permission_policy": "sometimes"},
        {"permission_policy": "always_allow", "org_max_permission": "ask"},
        {"org_max_permission": "ask"},
    ],
)
async def test_a_policy_asks_even_where_a_rule_or_the_mode_allows(tmp_path: Path, policy: Json) -> None:
    harness = await visit(
        tmp_path,
        CALLS,
        refuse,
        mcp_config=plain(**policy),
        allowed_tools=(ECHO,),
        permission_prompt_tool="stdio",
        **BYPASS,
    )

    assert results(harness) == ["Not that one."]
    assert [(one["tool"], one["decision"], one["source"], one["asked"]) for one in decisions(harness)] == [
        (ECHO, "deny", "host", True)
    ]


@pytest.mark.parametrize(
    "policy",
    [{"permission_policy": "always_deny"}, {"permission_policy": "always_allow", "org_max_permission": "blocked"}],
)
async def test_a_policy_denies_and_the_record_names_it(tmp_path: Path, policy: Json) -> None:
    async def talk(harness: SessionHarness) -> None:
        await one_turn(harness)
        listed = (await harness.request("list_permission_rules"))["response"]["response"]["state"]["rules"]
        assert [(rule["rule"], rule["behavior"], rule["source"], rule["editability"]) for rule in listed] == [
            (ECHO, "deny", "mcpServerPolicy", "readonly")
        ]
        refused = (await harness.request("mcp_call", tool=ECHO))["response"]
        assert refused["error_code"] == "permission_denied"

    harness = await visit(tmp_path, CALLS, talk, mcp_config=plain(**policy), **BYPASS)

    assert not is_run(harness)
    first = decisions(harness)[0]
    assert (first["decision"], first["rule"], first["rule_source"]) == ("deny", ECHO, "server")


async def test_a_policy_that_asks_denies_where_nobody_is_asked(tmp_path: Path) -> None:
    for options in ({"permission_mode": "dontAsk", "allowed_tools": (ECHO,)}, BYPASS):
        harness = await visit(tmp_path, CALLS, one_turn, mcp_config=plain(permission_policy="always_ask"), **options)
        assert not is_run(harness)


async def test_a_policy_allows_only_servers_behind_a_url(tmp_path: Path) -> None:
    harness = await visit(tmp_path, CALLS, one_turn, mcp_config=plain(permission_policy="always_allow"))

    assert not is_run(harness)
    assert [text for text in harness.warnings if "always_allow has no effect for 'echo'" in text]


async def test_entries_that_are_not_policies_leave_the_rest_in_effect(tmp_path: Path) -> None:
    tools = ["odd", {"permission_policy": "always_ask"}, {"name": "echo", "permission_policy": "always_deny"}]
    servers = config(plain=own("plain.py", "well", tools=tools))
    harness = await visit(tmp_path, CALLS, one_turn, mcp_config=servers, **BYPASS)

    assert not is_run(harness)
    assert [text for text in harness.warnings if "2 entries of `tools` have no effect: they have no name" in text]


async def test_servers_that_the_client_sets_bring_their_policies_and_take_them_along(tmp_path: Path) -> None:
    async def rules(harness: SessionHarness) -> list[str]:
        listed = (await harness.request("list_permission_rules"))["response"]["response"]["state"]["rules"]
        return [f"{rule['behavior']} {rule['rule']}" for rule in listed]

    async def talk(harness: SessionHarness) -> None:
        for policy, expected in (("always_ask", "ask"), ("always_deny", "deny")):
            server = own("plain.py", "well", tools=[{"name": "echo", "permission_policy": policy}])
            await harness.request("mcp_set_servers", servers={"plain": server})
            assert await rules(harness) == [f"{expected} {ECHO}"]
        await harness.request("mcp_set_servers", servers={})
        assert await rules(harness) == []

    await visit(tmp_path, script("Done."), talk)


async def test_policies_of_servers_in_the_client_come_with_the_handshake_and_stay(tmp_path: Path) -> None:
    async def serve(harness: SessionHarness) -> None:
        asked = await harness.receive("control_request")
        message = asked["request"]["message"]
        result: Json = {}
        if message["method"] == "initialize":
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}}
            result["serverInfo"] = {"name": "s", "version": "1"}
        elif message["method"] == "tools/list":
            result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        harness.send(answer(asked, {"mcp_response": {"jsonrpc": "2.0", "id": message.get("id"), "result": result}}))

    def handshake(id: str, **tool: str) -> Json:
        configs = {"plain": {"tools": [{"name": "echo", **tool}]}} if tool else {}
        request = {"subtype": "initialize", "sdkMcpServers": ["plain"], "sdkMcpServerConfigs": configs}
        return {"type": "control_request", "request_id": id, "request": request}

    async def talk(harness: SessionHarness) -> None:
        harness.send(handshake("i1", permission_policy="always_ask"))
        for _ in range(3):
            await serve(harness)
        harness.send(handshake("i2", permission_policy="always_deny"), handshake("i3"))
        await harness.receive_until(lambda line: line.get("response", {}).get("request_id") == "i3")
        await one_turn(harness)

    harness = await visit(tmp_path, CALLS, talk, **BYPASS)

    assert [(one["decision"], one["rule_source"]) for one in decisions(harness)] == [("deny", "server")]


# A stricter mode for one server.


async def test_an_override_asks_about_one_server_in_a_mode_that_allows_everything(tmp_path: Path) -> None:
    async def talk(harness: SessionHarness) -> None:
        async def override(mode: Any, server: str = "plain") -> Json:
            request = await harness.request("set_mcp_permission_mode_override", serverName=server, mode=mode)
            found: Json = request["response"]
            return found

        assert (await override("default"))["response"] == {}
        await refuse(harness)
        assert "nobody" in (await override("auto", "nobody"))["response"]["warning"]
        assert "acceptEdits" in (await override("acceptEdits"))["error"]
        assert (
            "mode" in (await harness.request("set_mcp_permission_mode_override", serverName="x"))["response"]["error"]
        )
        assert (await override(None))["subtype"] == "success"
        await one_turn(harness)

    turns = script([(ECHO, {"a": 1})], "Done.", [(ECHO, {"a": 1})], "Done.")
    harness = await visit(tmp_path, turns, talk, mcp_config=plain(), permission_prompt_tool="stdio", **BYPASS)

    assert [(one["decision"], one["mode"]) for one in decisions(harness)] == [
        ("deny", "default"),
        ("allow", "bypassPermissions"),
    ]


async def test_an_override_never_widens(tmp_path: Path) -> None:
    async def talk(harness: SessionHarness) -> None:
        await harness.request("set_mcp_permission_mode_override", serverName="plain", mode="auto")
        await one_turn(harness)

    harness = await visit(tmp_path, CALLS, talk, mcp_config=plain(), permission_mode="dontAsk")

    assert [(one["decision"], one["mode"]) for one in decisions(harness)] == [("deny", "dontAsk")]


# Calls of the client for somebody else.


async def ready(harness: SessionHarness) -> None:
    harness.prompt("go")
    await harness.receive("result")


async def checked(harness: SessionHarness, **fields: Any) -> Json:
    called = await harness.request("mcp_call", tool=ECHO, arguments={"a": 1}, check_permissions=True, **fields)
    found: Json = called["response"]
    return found


async def test_a_checked_call_is_decided_as_one_of_the_model(tmp_path: Path) -> None:
    async def talk(harness: SessionHarness) -> None:
        await ready(harness)
        request = {"subtype": "mcp_call", "tool": ECHO, "arguments": {"a": 1}, "check_permissions": True}
        replies = []
        for id, reply in (("c1", {"behavior": "deny", "message": "No."}), ("c2", {"behavior": "allow"})):
            harness.send({"type": "control_request", "request_id": id, "request": request})
            asked = await harness.receive("control_request")
            assert asked["request"]["tool_name"] == ECHO
            harness.send(answer(asked, reply))
            replies.append((await harness.receive("control_response"))["response"])
        refused, done = replies
        assert refused["error"] == "The tool did not run: No."
        assert done["response"]["content"] == [{"type": "text", "text": '{"a": 1}'}]

    harness = await visit(tmp_path, script("Done."), talk, mcp_config=plain(), permission_prompt_tool="stdio")

    assert [(one["tool"], one["decision"], one["source"]) for one in decisions(harness)] == [
        (ECHO, "deny", "host"),
        (ECHO, "allow", "host"),
    ]
    assert len(harness.session.journal.history.render()) == 2


@pytest.mark.parametrize("mode", ["default", "dontAsk", "plan"])
async def test_a_checked_call_that_nobody_can_approve_does_not_run(tmp_path: Path, mode: str) -> None:
    async def talk(harness: SessionHarness) -> None:
        await ready(harness)
        refused = await checked(harness)
        assert refused["error"].startswith("The tool did not run: ")
        assert refused["error_code"] == "permission_denied"

    asks: dict[str, Any] = {} if mode == "default" else {"permission_prompt_tool": "stdio"}
    harness = await visit(tmp_path, script("Done."), talk, mcp_config=plain(), permission_mode=mode, **asks)

    assert [one["decision"] for one in decisions(harness)] == ["deny"]


async def test_a_checked_call_obeys_allow_rules_and_other_refusals_keep_their_words(tmp_path: Path) -> None:
    async def talk(harness: SessionHarness) -> None:
        await ready(harness)
        assert (await checked(harness))["response"]["content"] == [{"type": "text", "text": '{"a": 1}'}]
        assert (await checked(harness, result_not_for_model=True))["subtype"] == "success"
        assert (await checked(harness, expires_at="2020-01-01T00:00:00Z"))["error_code"] == "expired"
        assert (await checked(harness, expires_at="soon"))["error_code"] == "expired"
        assert (await checked(harness, expires_at="2999-01-01T00:00:00Z"))["subtype"] == "success"
        assert "input_files" in (await checked(harness, input_files=[{"name": "a", "lane_path": "/b"}]))["error"]
        gone = (await harness.request("mcp_call", tool="mcp__plain__fly", check_permissions=True))["response"]
        assert gone["error"].startswith("There is no MCP tool")
        wrong = (await harness.request("mcp_call", tool=ECHO, check_permissions="yes"))["response"]
        assert "check_permissions" in wrong["error"]

    await visit(tmp_path, script("Done."), talk, mcp_config=plain(), allowed_tools=(ECHO,))


async def test_reloading_plugins_is_refused_while_the_session_is_busy(tmp_path: Path) -> None:
    async def talk(harness: SessionHarness) -> None:
        harness.prompt("go")
        asked = await harness.receive("control_request")
        refused = (await harness.request("reload_plugins", refuse_if_busy=True))["response"]
        assert refused["error_code"] == "reload_plugins_busy"
        assert (await harness.request("reload_plugins"))["response"]["subtype"] == "success"
        harness.send(answer(asked, {"behavior": "deny", "message": "no"}))
        await harness.receive("result")

    await visit(tmp_path, CALLS, talk, mcp_config=plain(), permission_prompt_tool="stdio")
