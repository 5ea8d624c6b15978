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
    put(tmp_path, "kit/.mcp.json", json.dumps({"mcpServers": {"shop": own("workshop.py", "stdio")}}))

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


async def test_a_folder_that_is_no_plugin_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
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

    async def talk(harness: SessionHarness) -> None:
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

    harness = await visit(tmp_path, script("Hi."), talk, plugin_dirs=(kit,))
    assert heard(harness) == ["Hello."]
    changes = [line for line in harness.messages("system") if line["subtype"] == "commands_changed"]
    assert len(changes) == 1
    assert "Skill" in next(line for line in harness.messages("system") if line["subtype"] == "init")["tools"]


async def test_output_styles_are_listed(tmp_path: Path) -> None:
    put(tmp_path, "home/.claude/output-styles/terse.md", "Be terse.")
    put(tmp_path, ".claude/output-styles/ours.md", "As we do.")

    async def talk(harness: SessionHarness) -> None:
        answer = (await harness.request("initialize"))["response"]["response"]
        assert answer["available_output_styles"] == ["default", "ours", "terse"]
        put(tmp_path, "home/.claude/output-styles/new.md", "New.")
        again = (await harness.request("reload_output_styles"))["response"]["response"]
        assert again == {"available_output_styles": ["default", "new", "ours", "terse"]}

    await visit(tmp_path, script("Hi."), talk)
