"""Every field of `initialize` has its effect, or is named as one that has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley.engine.context.system_prompt import BOUNDARY, system_blocks
from parley.engine.session.config import SessionConfig
from parley.tools.base import tool_schema
from tests.helpers.mcp import results, script
from tests.helpers.session import Json, SessionHarness

DONE = "[[turn]]\ntext = 'Done.'\n"


async def initialize(harness: SessionHarness, **fields: Any) -> Json:
    response = (await harness.request("initialize", **fields))["response"]
    assert response["subtype"] == "success", response
    payload: Json = response["response"]
    return payload


async def turn(harness: SessionHarness, text: str = "go") -> Json:
    harness.prompt(text)
    return await harness.receive("result")


def notices(harness: SessionHarness) -> list[str]:
    found = [line for line in harness.messages("system") if line.get("tag") == "initialize"]
    assert {(line["subtype"], line["level"]) for line in found} <= {("informational", "warning")}
    return [line["content"] for line in found]


def history(harness: SessionHarness) -> str:
    return json.dumps(harness.session.journal.history.render())


def decisions(harness: SessionHarness) -> list[Json]:
    log = harness.session.config.storage.log
    return [entry.message for entry in log.entries() if entry.kind == "permission"]


# Fields that are not known, or wrong.


async def test_fields_without_effect_are_named_on_stderr_and_to_the_client(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        helper = {"description": "d", "prompt": "p", "colour": "red", "observer": "watcher", "observerMessage": "m"}
        agents = {"helper": helper, "other": {"description": "d", "prompt": "p"}}
        kinds = ["refusal_fallback_prompt"]
        hooks = {"Stop": [{"hookCallbackIds": [], "tiemout": 5}]}
        await initialize(harness, colour="red", supportedDialogKinds=kinds, features=["x"], agents=agents, hooks=hooks)
        await turn(harness)

    assert notices(harness) == [
        "initialize.colour is unknown and has no effect",
        "initialize.agents.helper.colour is unknown and has no effect",
        "initialize.hooks.Stop[0].tiemout is unknown and has no effect",
        "initialize.protocolVersion and features have no effect: this engine uses version 1.0",
        "initialize.supportedDialogKinds has no effect: this engine shows no dialogs",
        "initialize.agents.helper.observer has no effect: observers are not supported",
    ]
    assert set(notices(harness)) <= set(harness.warnings)


async def test_what_has_an_effect_is_not_reported(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        await initialize(
            harness,
            hooks=None,
            protocolVersion="1.0",
            features=[],
            title="T",
            toolAliases={"Shell": "Bash"},
            planModeInstructions="x",
            perTaskStopAffordance=True,
            agentProgressSummaries=True,
            excludeDynamicSections=True,
            systemPromptSnapshot=True,
            supportedDialogKinds=[],
        )
        await turn(harness)

    assert notices(harness) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("toolAliases", ["Bash"]),
        ("toolAliases", {"Shell": 5}),
        ("title", 5),
        ("planModeInstructions", {}),
        ("agentProgressSummaries", "yes"),
        ("perTaskStopAffordance", 1),
        ("supportedDialogKinds", "all"),
        ("plugins", {"path": "p"}),
        ("managedSettings", []),
        ("excludeDynamicSections", "yes"),
        ("systemPromptSnapshot", "no"),
        ("promptSuggestions", "x"),
    ],
)
async def test_a_wrong_type_is_an_error_that_names_the_field(tmp_path: Path, field: str, value: Any) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        refused = (await harness.request("initialize", **{field: value}))["response"]
        assert (refused["subtype"], refused["error_code"]) == ("error", "invalid_request")
        assert field in refused["error"]
        assert (await turn(harness))["result"] == "Done."


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"disallowedTools": ["Bash"]}, "--disallowedTools"),
        ({"sandbox": {"enabled": True}}, "--settings"),
        ({"managedSettings": {"permissions": {"deny": ["Bash"]}}}, "--managed-settings-in-initialize"),
        ({"title": "x" * 1001}, "title"),
        ({"toolAliases": {"": "Bash"}}, "toolAliases"),
        ({"sdkMcpServers": ["s"], "sdkMcpServerConfigs": {"s": {"tools": [{"name": "t", "timeout": "x"}]}}}, "tools"),
    ],
)
async def test_what_restricts_and_cannot_be_enforced_refuses_the_handshake(
    tmp_path: Path, fields: Json, named: str
) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        refused = (await harness.request("initialize", systemPrompt="Other.", **fields))["response"]
        assert refused["subtype"] == "error"
        assert named in refused["error"]
        assert harness.session.conversation.instructions.replaced is None


# Tool aliases.


async def test_a_call_of_an_alias_runs_the_tool_and_is_decided_and_recorded_as_it(tmp_path: Path) -> None:
    calls = script([("Shell", {"command": "echo one"})], [("Shell", {"command": "rm x"})], "Done.")
    rules = {"allowed_tools": ("Bash(echo one)",), "disallowed_tools": ("Bash(rm *)",)}
    async with SessionHarness(tmp_path, calls, permission_prompt_tool="stdio", **rules) as harness:
        await initialize(harness, toolAliases={"Shell": "Bash"})
        await turn(harness)
        recorded = decisions(harness)

    assert results(harness)[0] == "one"
    assert "Bash(rm *)" in results(harness)[1]
    assert [(one["tool"], one["decision"], one["rule"]) for one in recorded] == [
        ("Bash", "allow", "Bash(echo one)"),
        ("Bash", "deny", "Bash(rm *)"),
    ]


async def test_the_client_is_asked_about_the_tool_and_not_its_alias(tmp_path: Path) -> None:
    calls = script([("Shell", {"command": "touch made"})], "Done.")
    async with SessionHarness(tmp_path, calls, permission_prompt_tool="stdio") as harness:
        await initialize(harness, toolAliases={"Shell": "Bash"})
        harness.prompt("go")
        asked = await harness.receive("control_request")
        assert asked["request"]["tool_name"] == "Bash"
        harness.send(reply(asked, {"behavior": "allow"}))
        await harness.receive("result")

    assert (tmp_path / "made").exists()


def reply(asked: Json, payload: Json) -> Json:
    response = {"subtype": "success", "request_id": asked["request_id"], "response": payload}
    return {"type": "control_response", "response": response}


async def test_aliases_are_not_followed_twice_and_not_to_tools_that_are_gone(tmp_path: Path) -> None:
    calls = script([("A", {"command": "echo a"}), ("B", {"command": "echo b"})], "Done.")
    async with SessionHarness(tmp_path, calls, disallowed_tools=("Bash",)) as harness:
        await initialize(harness, toolAliases={"A": "B", "B": "Bash"})
        await turn(harness)

    first, second = results(harness)
    assert "No such tool available: B" in first
    assert "No such tool available: Bash" in second
    assert notices(harness) == [
        "initialize.toolAliases: 'A' has no effect: there is no tool 'B'",
        "initialize.toolAliases: 'B' has no effect: there is no tool 'Bash'",
    ]


# The system prompt.


async def test_the_part_before_the_boundary_gets_the_cache_marker_and_the_marker_stays_here(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        await initialize(harness, systemPrompt=["Static.", BOUNDARY, "Dynamic."])
        await turn(harness)
        system = harness.session.conversation.build_request().system

    assert system == [
        {"type": "text", "text": "Static.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Dynamic.", "cache_control": {"type": "ephemeral"}},
    ]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        (f"a\n{BOUNDARY}\nb", ["a", "b"]),
        (f"{BOUNDARY}\nb", ["b"]),
        (f"a\n{BOUNDARY}", ["a"]),
        (f"a\n{BOUNDARY}\nb\n{BOUNDARY}\nc", ["a", "b\n\nc"]),
        (BOUNDARY, []),
        ("a", ["a"]),
    ],
)
def test_a_boundary_anywhere_leaves_no_trace(text: str, blocks: list[str]) -> None:
    made = system_blocks(text)

    assert [block["text"] for block in made] == blocks


async def test_excluded_sections_move_into_the_first_user_message(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("Whistle while you work.")
    async with SessionHarness(tmp_path, DONE * 2, permission_mode="plan") as harness:
        await initialize(harness, excludeDynamicSections=True)
        await turn(harness)
        await turn(harness)
        system = harness.session.journal.system_text or ""
        first = harness.session.journal.history.render()[0]

    told = json.dumps(first)
    for fact in (str(tmp_path), "Whistle while you work.", "ExitPlanMode"):
        assert fact not in system
        assert told.count(fact) == history(harness).count(fact) > 0
    assert first["content"][-1]["text"] == "go"
    assert harness.session.journal.sent_date is not None


async def test_the_flag_excludes_the_same_sections(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE, exclude_dynamic_sections=True) as harness:
        await turn(harness)

    assert str(tmp_path) not in (harness.session.journal.system_text or "")
    assert str(tmp_path) in history(harness)


async def test_a_custom_prompt_has_nothing_to_exclude(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        await initialize(harness, systemPrompt="Mine.", excludeDynamicSections=True)
        await turn(harness)

    assert str(tmp_path) not in history(harness)
    assert [text.partition(" ")[0] for text in notices(harness)] == ["initialize.excludeDynamicSections"]


@pytest.mark.parametrize("by_flag", [True, False])
async def test_without_a_snapshot_every_request_has_the_prompt_of_the_moment(tmp_path: Path, by_flag: bool) -> None:
    memory = tmp_path / "CLAUDE.md"
    memory.write_text("First note.")
    options = {"system_prompt_snapshot": "false"} if by_flag else {}
    async with SessionHarness(tmp_path, DONE, **options) as harness:
        await initialize(harness, **({} if by_flag else {"systemPromptSnapshot": False}))
        await turn(harness)
        memory.write_text("Second note.")
        [_, block] = harness.session.conversation.build_request().system

    assert "Second note." in block["text"]
    assert harness.session.journal.system_text is None


async def test_with_a_snapshot_the_first_prompt_stays(tmp_path: Path) -> None:
    memory = tmp_path / "CLAUDE.md"
    memory.write_text("First note.")
    async with SessionHarness(tmp_path, DONE) as harness:
        await initialize(harness, systemPromptSnapshot=True)
        await turn(harness)
        memory.write_text("Second note.")
        [_, block] = harness.session.conversation.build_request().system

    assert "First note." in block["text"]


# The session.


async def test_a_title_is_that_of_a_new_session_only(tmp_path: Path) -> None:
    id = "11111111-2222-4333-8444-555555555555"
    async with SessionHarness(tmp_path, DONE, session_id=id) as harness:
        await initialize(harness, title="  My\n talk ")
        await turn(harness)
        assert harness.session.journal.title == "My talk"

    async with SessionHarness(tmp_path, DONE, resume=id) as again:
        await initialize(again, title="Another")
        await turn(again)
        assert again.session.journal.title == "My talk"

    async with SessionHarness(tmp_path, DONE, name="Given") as named:
        await initialize(named, title="Another")
        await turn(named)
        assert named.session.journal.title == "Given"
        assert notices(named) == ["initialize.title has no effect: the title is set by --name"]


async def test_instructions_for_plan_mode_are_given_whenever_it_begins(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE * 4) as harness:
        await initialize(harness, planModeInstructions="Draw a map of the parts.")
        await turn(harness)
        assert "Draw a map" not in history(harness)
        for _ in range(2):
            await harness.request("set_permission_mode", mode="plan")
            await turn(harness)
        assert history(harness).count("Draw a map of the parts.") == 1
        await harness.request("set_permission_mode", mode="default")
        await harness.request("set_permission_mode", mode="plan")
        text = harness.session.declared.describe_plan_mode(harness.session.tool_executor.context)

    assert text.startswith("You are in plan mode")
    assert "change nothing" in text
    assert "ExitPlanMode" in text


async def test_a_change_of_the_mode_is_told_once_at_the_end_of_the_conversation(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE * 5) as harness:
        await turn(harness)
        for mode, notes in (("plan", 1), ("plan", 1), ("acceptEdits", 2), ("default", 2)):
            await harness.request("set_permission_mode", mode=mode)
            before = harness.session.journal.history.render().copy()
            await turn(harness)
            after = harness.session.journal.history.render()
            assert after[: len(before)] == before
            assert history(harness).count("<session-note>") == notes
        assert "You are in plan mode" in history(harness)
        assert "Plan mode has ended" in history(harness)


async def test_the_tool_that_enters_plan_mode_gives_the_instructions(tmp_path: Path) -> None:
    calls = script([("EnterPlanMode", {})], "Done.")
    async with SessionHarness(tmp_path, calls, permission_prompt_tool="stdio") as harness:
        await initialize(harness, planModeInstructions="Draw a map of the parts.")
        await turn(harness)

    assert "Draw a map of the parts." in results(harness)[0]


async def test_previews_of_questions_are_asked_for_as_html(tmp_path: Path) -> None:
    for format, is_html in (("html", True), ("markdown", False)):
        harness = SessionHarness(tmp_path, DONE, permission_prompt_tool="stdio")
        harness.environment["CLAUDE_CODE_QUESTION_PREVIEW_FORMAT"] = format
        async with harness:
            schema = json.dumps(tool_schema(harness.session.config.tools["AskUserQuestion"]))
        assert ("HTML" in schema) == is_html


async def test_why_a_question_was_not_answered_comes_back_in_the_result(tmp_path: Path) -> None:
    input = "{ questions = [{ question = 'Which?', header = 'h', options = [{ label = 'a' }, { label = 'b' }] }] }"
    calls = f"[[turn]]\ntools = [{{ name = 'AskUserQuestion', input = {input} }}]\n"
    async with SessionHarness(tmp_path, calls + DONE, permission_prompt_tool="stdio") as harness:
        init = await initialize(harness)
        harness.prompt("go")
        asked = await harness.receive("control_request")
        said = {"Which?": {"unanswered": "skipped"}}
        updated = {**asked["request"]["input"], "answers": {"Which?": "Skipped"}, "annotations": said}
        harness.send(reply(asked, {"behavior": "allow", "updatedInput": updated}))
        await harness.receive("result")

    [told] = [line["tool_use_result"] for line in harness.messages("user") if "tool_use_result" in line]
    assert told["annotations"] == said
    assert "ask_user_question_unanswered_v1" in init["capabilities"]


# Subagents.

AGENT = (
    "[[turn]]\nwhen = 'go'\n"
    "tools = [{{ name = 'Agent', input = {{ description = 'd', prompt = 'SUBTASK', run_in_background = {} }} }}]\n"
    "[[turn]]\nwhen = 'SUBTASK'\ntools = [{{ name = 'Bash', input = {{ command = 'touch made' }} }}]\n"
)


class QuickSummaries(SessionHarness):
    def furnish(self, setup: SessionConfig) -> SessionConfig:
        return msgspec.structs.replace(setup, limits=msgspec.structs.replace(setup.limits, summary_seconds=0.01))


async def test_a_running_agent_says_what_it_does(tmp_path: Path) -> None:
    summary = "[[turn]]\nwhen = 'doing right now'\ntext = 'Making a file'\n"
    calls = AGENT.format("false") + summary + DONE * 2
    async with QuickSummaries(tmp_path, calls, permission_prompt_tool="stdio") as harness:
        await initialize(harness, agentProgressSummaries=True)
        harness.prompt("go")
        asked = await harness.receive("control_request")
        told = await harness.receive_until(lambda line: "summary" in line and line.get("subtype") == "task_progress")
        harness.send(reply(asked, {"behavior": "allow"}))
        await harness.receive("result")

    assert told["summary"] == "Making a file"
    assert told["subagent_type"] == "general-purpose"


async def test_no_summaries_where_the_environment_forbids_them(tmp_path: Path) -> None:
    harness = QuickSummaries(tmp_path, AGENT.format("false") + DONE * 2, permission_prompt_tool="stdio")
    harness.environment["CLAUDE_CODE_DISABLE_AGENT_PROGRESS_SUMMARIES"] = "1"
    async with harness:
        await initialize(harness, agentProgressSummaries=True)
        assert not harness.session.declared.summarizes_agents
        await harness_turn_allowing(harness)

    assert len(notices(harness)) == 1
    assert not [line for line in harness.lines if line.get("subtype") == "task_progress" and "summary" in line]


async def harness_turn_allowing(harness: SessionHarness) -> None:
    harness.prompt("go")
    harness.send(reply(await harness.receive("control_request"), {"behavior": "allow"}))
    await harness.receive("result")


@pytest.mark.parametrize("declared", [True, False])
async def test_an_interrupt_spares_background_agents_of_clients_that_can_stop_them(
    tmp_path: Path, declared: bool
) -> None:
    calls = AGENT.format("true") + "[[turn]]\ntext = 'Started.'\n" + DONE * 2
    async with SessionHarness(tmp_path, calls, permission_prompt_tool="stdio") as harness:
        await initialize(harness, **({"perTaskStopAffordance": True} if declared else {}))
        await initialize(harness, perTaskStopAffordance=not declared)  # the first one counts
        harness.prompt("go")
        started = await harness.receive("system", "task_started")
        asked = await harness.receive_until(lambda line: line["type"] == "control_request")
        await harness.request("interrupt")
        task = harness.session.tasks.find(started["task_id"])
        assert task is not None
        assert task.status == ("running" if declared else "killed")
        if declared:
            harness.send(reply(asked, {"behavior": "deny", "message": "no"}))


# Plugins.


async def test_plugins_of_a_handshake_are_loaded_only_at_the_start(tmp_path: Path) -> None:
    folder = tmp_path / "plugin"
    (folder / ".claude-plugin").mkdir(parents=True)
    (folder / ".claude-plugin" / "plugin.json").write_text('{"name": "tools"}')
    asked = [{"type": "local", "path": "plugin"}]
    async with SessionHarness(tmp_path, DONE, plugin_dirs=("plugin",)) as harness:
        assert (await initialize(harness, plugins=asked))["plugins_applied"] is True
        assert "plugins_applied" not in await initialize(harness, plugins=[])
    async with SessionHarness(tmp_path, DONE) as without:
        assert (await initialize(without, plugins=asked))["plugins_applied"] is False
        await turn(without)

    assert notices(harness) == []
    assert "--await-initialize" in notices(without)[0]
