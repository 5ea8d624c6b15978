"""Plugins, from the folder that the command line names to the session that has what is in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.helpers.mcp import own, script, visit
from tests.helpers.session import Json, SessionHarness
from tests.session.engine.commands.test_commands import called, heard, put, results, saying


def plugin(folder: Path, name: str = "kit", **manifest: object) -> str:
    put(folder, ".claude-plugin/plugin.json", json.dumps({"name": name, "version": "1.2", **manifest}))
    return str(folder)


async def test_the_commands_skills_and_hooks_of_a_plugin_count(tmp_path: Path) -> None:
    kit = plugin(tmp_path / "kit")
    put(tmp_path, "kit/commands/greet.md", "Hello $1, says !`echo the plugin`.")
    put(tmp_path, "kit/skills/plan/SKILL.md", "---\ndescription: Plan it\n---\nPlan.")
    hook = {"hooks": [{"type": "command", "command": "cat > ${CLAUDE_PLUGIN_ROOT}/heard"}]}
    put(tmp_path, "kit/hooks/hooks.json", json.dumps({"hooks": {"UserPromptSubmit": [hook]}}))
    turns = script([("Skill", {"skill": "kit:plan"})], "Done.")
    harness = await visit(tmp_path, turns, saying("/kit:greet bob"), plugin_dirs=(kit,), allowed_tools=("Skill",))
    assert heard(harness)[0] == "Hello bob, says the plugin."
    assert called(harness)[0]["content"].endswith("Plan.")
    assert json.loads((tmp_path / "kit/heard").read_text())["prompt"] == "/kit:greet bob"
    init = next(line for line in harness.messages("system") if line["subtype"] == "init")
    assert init["plugins"] == [{"name": "kit", "path": kit, "version": "1.2"}]
    assert init["slash_commands"][:2] == ["kit:greet", "kit:plan"]
    assert "plugin_errors" not in init


async def test_the_servers_of_a_plugin_are_there_unless_they_are_not_wanted(tmp_path: Path) -> None:
    kit = plugin(tmp_path / "kit")
    put(tmp_path, "kit/.mcp.json", json.dumps({"mcpServers": {"shop": own("greeter.py")}}))

    async def servers(**options: Any) -> list[Json]:
        harness = await visit(tmp_path, script("Hello."), saying("hi"), **options)
        found: list[Json] = next(line for line in harness.messages("system") if line["subtype"] == "init")[
            "mcp_servers"
        ]
        return found

    assert [(one["name"], one["status"]) for one in await servers(plugin_dirs=(kit,))] == [
        ("plugin:kit:shop", "connected")
    ]
    assert await servers(plugin_dirs_no_mcp=(kit,)) == []
    assert await servers(plugin_dirs=(kit,), strict_mcp_config=True) == []


async def test_a_folder_that_is_not_a_plugin_is_reported_and_the_rest_continues(tmp_path: Path) -> None:
    good, bare = plugin(tmp_path / "good", "good"), tmp_path / "bare"
    put(tmp_path, "good/commands/greet.md", "Hello.")
    put(tmp_path, "good/hooks/hooks.json", "{")
    bare.mkdir()
    twice, odd = plugin(tmp_path / "twice", "good"), plugin(tmp_path / "odd", "../x")
    harness = await visit(tmp_path, script("Hi."), saying("/good:greet"), plugin_dirs=(good, "bare", twice, odd))
    assert [one["result"] for one in results(harness)] == ["Hi."]
    init = next(line for line in harness.messages("system") if line["subtype"] == "init")
    assert [one["name"] for one in init["plugins"]] == ["good"]
    assert [(one["plugin"], one["type"]) for one in init["plugin_errors"]] == [
        ("good@inline", "hooks-invalid"),
        ("inline[1]", "manifest-not-found"),
        ("inline[2]", "manifest-validation-error"),
        ("inline[3]", "manifest-validation-error"),
    ]
    assert any("bare: not a plugin: it has no .claude-plugin/plugin.json" in text for text in harness.warnings)


async def test_files_are_read_again_when_the_host_says_so(tmp_path: Path) -> None:
    kit = plugin(tmp_path / "kit")

    async def scenario(harness: SessionHarness) -> None:
        before = (await harness.request("reload_skills"))["response"]["response"]
        assert before == {"skills": []}
        put(tmp_path, "kit/commands/greet.md", "Hello.")
        put(tmp_path, "home/.claude/skills/plan/SKILL.md", "Plan.")
        answer = (await harness.request("reload_plugins"))["response"]["response"]
        assert [command["name"] for command in answer["commands"]][:2] == ["kit:greet", "plan"]
        assert (answer["error_count"], [one["name"] for one in answer["plugins"]]) == (0, ["kit"])
        assert (await harness.request("reload_skills"))["response"]["response"] == {
            "skills": [{"name": "plan", "description": "Plan.", "argumentHint": ""}]
        }
        harness.prompt("/kit:greet")
        await harness.receive("result")

    harness = await visit(tmp_path, script("Hi."), scenario, plugin_dirs=(kit,))
    assert heard(harness) == ["Hello."]
    [change] = [line for line in harness.messages("system") if line["subtype"] == "commands_changed"]
    commands = {command["name"]: command for command in change["commands"]}
    assert (commands["clear"]["builtin"], commands["clear"]["aliases"]) == (True, ["reset", "new"])
    assert (commands["usage"]["builtin"], commands["usage"]["aliases"]) == (True, ["cost"])
    assert not {"builtin", "aliases"} & commands["kit:greet"].keys()
    assert "Skill" in next(line for line in harness.messages("system") if line["subtype"] == "init")["tools"]


async def test_a_plugin_that_was_added_to_a_folder_of_plugins_is_found_again(tmp_path: Path) -> None:
    plugin(tmp_path / "many" / "kit")

    async def talk(harness: SessionHarness) -> None:
        first = (await harness.request("reload_plugins"))["response"]["response"]
        assert [one["name"] for one in first["plugins"]] == ["kit"]
        put(tmp_path, "many/other/.claude-plugin/plugin.json", '{"name": "other"}')
        put(tmp_path, "many/other/commands/wave.md", "Wave.")
        again = (await harness.request("reload_plugins"))["response"]["response"]
        assert [one["name"] for one in again["plugins"]] == ["kit", "other"]
        assert "other:wave" in [command["name"] for command in again["commands"]]

    await visit(tmp_path, script("Hi."), talk, plugin_dirs=(str(tmp_path / "many"),))


async def test_output_styles_are_listed(tmp_path: Path) -> None:
    put(tmp_path, "home/.claude/output-styles/terse.md", "Be terse.")
    put(tmp_path, ".claude/output-styles/ours.md", "As we do.")

    async def scenario(harness: SessionHarness) -> None:
        answer = (await harness.request("initialize"))["response"]["response"]
        assert answer["available_output_styles"] == ["default", "Explanatory", "Learning", "ours", "terse"]
        put(tmp_path, "home/.claude/output-styles/new.md", "New.")
        again = (await harness.request("reload_output_styles"))["response"]["response"]
        assert again == {"available_output_styles": ["default", "Explanatory", "Learning", "new", "ours", "terse"]}

    await visit(tmp_path, script("Hi."), scenario)


# Plugins that change while the session runs.


async def reload(harness: SessionHarness, **fields: Any) -> Json:
    response: Json = (await harness.request("reload_plugins", **fields))["response"]
    assert response["subtype"] == "success", response
    answer: Json = response["response"]
    return answer


def shop(folder: Path, name: str) -> str:
    """A plugin with an MCP server and a command."""
    put(folder, ".mcp.json", json.dumps({"mcpServers": {"shop": own("plain.py", "well")}}))
    put(folder, "commands/greet.md", f"Hello from {name}.")
    return plugin(folder, name)


async def test_a_client_adds_plugins_and_they_stay(tmp_path: Path) -> None:
    kit, more, quiet = (shop(tmp_path / name, name) for name in ("kit", "more", "quiet"))

    async def talk(harness: SessionHarness) -> None:
        added = [
            {"type": "local", "path": more},
            {"type": "local", "path": quiet, "skipMcpDiscovery": True},
            {"type": "local", "path": str(tmp_path / "missing")},
        ]
        answer = await reload(harness, add_plugins=added)
        assert [one["name"] for one in answer["plugins"]] == ["kit", "more", "quiet"]
        assert answer["error_count"] == 1
        assert [one["name"] for one in answer["mcpServers"]] == ["plugin:kit:shop", "plugin:more:shop"]
        assert [one["name"] for one in (await reload(harness))["plugins"]] == ["kit", "more", "quiet"]
        harness.prompt("/more:greet")
        await harness.receive("result")

    turns = script([("mcp__plugin_more_shop__echo", {"a": 1})], "Done.")
    harness = await visit(tmp_path, turns, talk, plugin_dirs=(kit,), allowed_tools=("mcp__plugin_more_shop",))
    assert heard(harness)[0] == "Hello from more."
    assert '{"a": 1}' in str(called(harness)[0]["content"])


async def test_servers_of_plugins_come_and_go_with_their_files(tmp_path: Path) -> None:
    kit = shop(tmp_path / "kit", "kit")

    async def names(harness: SessionHarness) -> list[str]:
        return [one["name"] for one in (await reload(harness))["mcpServers"]]

    async def talk(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("result")
        before = harness.session.servers.find("plugin:kit:shop")
        assert await names(harness) == ["plugin:kit:shop"]
        assert harness.session.servers.find("plugin:kit:shop") is before  # unchanged, so not restarted
        put(tmp_path, "kit/.mcp.json", json.dumps({"mcpServers": {"yard": own("plain.py", "well")}}))
        assert await names(harness) == ["plugin:kit:yard"]
        harness.prompt("go")
        assert "mcp__plugin_kit_yard__echo" in (await harness.receive("system", "init"))["tools"]
        await harness.receive("result")

    await visit(tmp_path, script("One.", "Two."), talk, plugin_dirs=(kit,))


async def test_a_reload_that_would_change_the_tools_is_held(tmp_path: Path) -> None:
    kit, more = shop(tmp_path / "kit", "kit"), shop(tmp_path / "more", "more")
    wanted: Json = {"hold_on_cache_impact": True, "add_plugins": [{"type": "local", "path": more}]}

    async def talk(harness: SessionHarness) -> None:
        assert (await reload(harness, hold_on_cache_impact=True))["held"] is False
        harness.prompt("go")
        await harness.receive("result")
        put(tmp_path, "kit/.mcp.json", json.dumps({"mcpServers": {}}))
        held = await reload(harness, **wanted)
        assert held["held"] is True
        assert held["cache_impact"] == {
            "mcp_servers_added": ["plugin:more:shop"],
            "mcp_servers_removed": ["plugin:kit:shop"],
            "lsp_tool_change": None,
        }
        assert [one["name"] for one in held["plugins"]] == ["kit"]
        assert [one["name"] for one in held["mcpServers"]] == ["plugin:kit:shop"]
        assert "held" not in await reload(harness)
        assert harness.session.servers.names() == []
        held = await reload(harness, **wanted)
        assert held["cache_impact"]["mcp_servers_added"] == ["plugin:more:shop"]

    await visit(tmp_path, script("Hi."), talk, plugin_dirs=(kit,))


async def test_before_the_first_prompt_no_reload_is_held(tmp_path: Path) -> None:
    more = shop(tmp_path / "more", "more")

    async def talk(harness: SessionHarness) -> None:
        answer = await reload(harness, hold_on_cache_impact=True, add_plugins=[{"type": "local", "path": more}])
        assert answer["held"] is False
        assert [one["name"] for one in answer["mcpServers"]] == ["plugin:more:shop"]

    await visit(tmp_path, script("Hi."), talk)


async def test_plugins_that_may_not_be_added_are_refused(tmp_path: Path) -> None:
    more = shop(tmp_path / "more", "more")

    async def refusal(entries: Any, **options: Any) -> str:
        said: list[Json] = []

        async def talk(harness: SessionHarness) -> None:
            said.append((await harness.request("reload_plugins", add_plugins=entries))["response"])
            assert (await reload(harness))["plugins"] == []

        await visit(tmp_path, script("Hi."), talk, **options)
        assert said[0]["subtype"] == "error"
        return str(said[0]["error"])

    entry = {"type": "local", "path": more}
    assert "'more' is not absolute" in await refusal([{"type": "local", "path": "more"}])
    assert "add_plugins" in await refusal([{"type": "npm", "path": more}])
    assert "add_plugins" in await refusal("all")
    assert "disableSideloadFlags" in await refusal([entry], managed_settings='{"disableSideloadFlags": true}')
    assert "--safe-mode" in await refusal([entry], safe_mode=True)
