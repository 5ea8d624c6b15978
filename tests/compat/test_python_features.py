"""What the documentation of the official Python SDK shows, with our engine, beyond the programs in ported/."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from parley.models.script import ScriptedCall, ScriptedTurn
from tests.compat.harness import FIRST, HELLO, HELLO_COST_USD, SECOND, Report, Stage, conversation, installed, said
from tests.compat.install import CURRENT_PYTHON

WORKSHOP = Path(__file__).parents[1] / "helpers" / "mcp_servers" / "workshop.py"
DONE = ScriptedTurn(text="Done.")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(installed(CURRENT_PYTHON), tmp_path)


def only(report: Report, name: str) -> list[Any]:
    return [message for message in report.messages if name in (message["class"], message.get("subtype"))]


def call(tool: str, **input: Any) -> ScriptedTurn:
    return ScriptedTurn(tools=[ScriptedCall(name=tool, input=input)])


def results(report: Report) -> list[str]:
    """What the model was told about its calls."""
    blocks = [block for _, blocks in conversation(report.requests[-1]) for block in blocks]
    return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]


# Settings and flags.


@pytest.mark.parametrize("style", ["Explanatory", "Learning", "default", "Pirate"])
def test_the_output_style_of_the_settings_is_in_the_init_message(stage: Stage, style: str) -> None:
    report = stage.run("query", [FIRST], prompt="Hello", options={"settings": json.dumps({"outputStyle": style})})

    assert [message["data"]["output_style"] for message in only(report, "init")] == [style]
    warned = [line for line in report.of("stderr") if "Pirate" in line]
    assert bool(warned) == (style == "Pirate")


def test_the_output_style_of_the_project_needs_the_project_as_a_source(stage: Stage) -> None:
    folder = stage.directory / ".claude"
    folder.mkdir(parents=True)
    (folder / "settings.local.json").write_text(json.dumps({"outputStyle": "Learning"}))
    shown = []
    for sources in ([], ["user"], ["user", "project", "local"]):
        report = stage.run("query", [FIRST], prompt="Hello", options={"setting_sources": sources})
        shown.append(only(report, "init")[0]["data"]["output_style"])

    assert shown == ["default", "default", "Learning"]


def test_a_flag_without_effect_is_a_system_message(stage: Stage) -> None:
    report = stage.run("query", [FIRST], prompt="Hello", options={"extra_args": {"chrome": None}})

    [notice] = only(report, "informational")
    assert notice["data"]["content"] == "option '--chrome' has no effect in this run"


def test_a_turn_that_reaches_its_limit_counts_the_call_that_was_not_made(stage: Stage) -> None:
    limits = {"max_turns": 1, "allowed_tools": ["Bash"]}
    report = stage.run("query", [call("Bash", command="echo hi")], prompt="Hello", options=limits)

    [result] = only(report, "ResultMessage")
    assert (result["subtype"], result["num_turns"], len(report.requests)) == ("error_max_turns", 2, 1)
    [raised] = report.of("raised")
    assert "Reached maximum number of turns (1)" in raised["text"]


def test_the_turn_that_spends_the_budget_fails_and_so_does_every_later_one(stage: Stage) -> None:
    steps = [["ask", "Hello"], ["ask", "Again"]]
    report = stage.run("client", [HELLO], steps=steps, options={"max_budget_usd": 0.0001})

    results = only(report, "ResultMessage")
    assert [(result["subtype"], result["errors"]) for result in results] == [
        ("error_max_budget_usd", ["Reached maximum budget ($0.0001)"])
    ] * 2
    assert results[0]["num_turns"] == len(only(report, "AssistantMessage")) == len(report.requests) == 1
    assert results[0]["total_cost_usd"] == pytest.approx(HELLO_COST_USD)


# Sessions.


def test_clear_begins_another_session_and_both_can_be_resumed(stage: Stage) -> None:
    steps = [["ask", "Hello"], ["ask", "/clear"], ["ask", "Again"]]
    report = stage.run("client", [FIRST, SECOND], steps=steps)
    before, *_, after = (result["session_id"] for result in only(report, "ResultMessage"))

    [reset] = only(report, "ConversationResetMessage")
    assert reset["session_id"] == before != after
    assert [message["data"]["session_id"] for message in only(report, "init")][-1] == after
    assert conversation(report.requests[-1]) == [("user", [said("Again")])]
    for session_id, first in ((before, "Hello"), (after, "Again")):
        resumed = stage.run("query", [SECOND], prompt="Go on", options={"resume": session_id})
        assert [result["session_id"] for result in only(resumed, "ResultMessage")] == [session_id]
        messages = conversation(resumed.requests[-1])
        assert (messages[0], messages[-1]) == (("user", [said(first)]), ("user", [said("Go on")]))


def test_the_newest_session_continues(stage: Stage) -> None:
    first = stage.run("query", [SECOND], prompt="Hello")
    report = stage.run("query", [SECOND], prompt="Again", options={"continue_conversation": True})

    assert report.messages[-1]["session_id"] == first.messages[-1]["session_id"]
    assert conversation(report.requests[-1])[0] == ("user", [said("Hello")])


# Output and files.


def test_the_output_has_the_shape_that_was_asked_for(stage: Stage) -> None:
    schema = {"type": "object", "properties": {"files": {"type": "integer"}}, "required": ["files"]}
    answer = call("StructuredOutput", files=3)
    options = {"output_format": {"type": "json_schema", "schema": schema}}
    report = stage.run("query", [answer, DONE], prompt="How many files?", options=options)

    [result] = only(report, "ResultMessage")
    assert (result["subtype"], result["structured_output"]) == ("success", {"files": 3})
    assert report.of("raised") == []


def test_output_that_never_has_the_shape_is_an_error(stage: Stage) -> None:
    schema = {"type": "object", "properties": {"files": {"type": "integer"}}, "required": ["files"]}
    options = {"output_format": {"type": "json_schema", "schema": schema}}
    report = stage.run("query", [call("StructuredOutput", files="many")], prompt="How many?", options=options)

    [result] = only(report, "ResultMessage")
    assert (result["subtype"], result["is_error"]) == ("error_max_structured_output_retries", True)


def test_files_are_rewound_to_a_prompt(stage: Stage) -> None:
    stage.directory.mkdir(parents=True)
    file = stage.directory / "a.txt"
    file.write_text("before\n")
    turns = [call("Read", file_path=str(file)), call("Write", file_path=str(file), content="after\n"), DONE]
    options = {
        "enable_file_checkpointing": True,
        "extra_args": {"replay-user-messages": None},
        "permission_mode": "acceptEdits",
    }
    report = stage.run("client", turns, steps=[["ask_and_rewind", "Change it"]], options=options)

    assert "updated" in results(report)[-1]
    assert len(report.of("rewound")) == 1
    assert file.read_text() == "before\n"


def test_a_result_and_the_first_messages_name_the_prompt_that_they_answer(tmp_path: Path) -> None:
    uuid = "11111111-1111-4111-8111-111111111111"
    stage = Stage(installed(CURRENT_PYTHON), tmp_path, partial=True)
    report = stage.run("client", [call("Glob", pattern="*"), DONE], steps=[["ask_with_uuid", "Look", uuid]])

    assert report.warnings() == []
    for name in ("StreamEvent", "AssistantMessage", "ResultMessage"):
        first, *others = only(report, name)
        assert (first["user_message_uuid"], first["user_message_uuids"]) == (uuid, [uuid])
        assert [one["user_message_uuid"] for one in others if one["user_message_uuid"] is not None] == []


# Requests of a client while it is connected.


def test_the_permission_mode_changes_between_turns(stage: Stage) -> None:
    write = call("Write", file_path="new.txt", content="x")
    steps = [["ask", "Try"], ["set_permission_mode", "acceptEdits"], ["ask", "Try again"]]
    report = stage.run("client", [write, DONE, write, DONE], steps=steps)

    assert [message["data"]["permissionMode"] for message in only(report, "init")] == ["default", "acceptEdits"]
    denied, written = results(report)
    assert "not given" in denied
    assert "created" in written
    assert (stage.directory / "new.txt").read_text() == "x"


def test_a_server_is_switched_off_and_on_again(stage: Stage) -> None:
    servers = {"workshop": {"command": sys.executable, "args": [str(WORKSHOP), "stdio"]}}
    steps = [
        ["ask", "Hello"],
        ["mcp_status"],
        ["toggle_mcp_server", "workshop", False],
        ["mcp_status"],
        ["toggle_mcp_server", "workshop", True],
        ["reconnect_mcp_server", "workshop"],
        ["mcp_status"],
    ]
    report = stage.run("client", [HELLO], steps=steps, options={"mcp_servers": servers})

    states = [[server["status"] for server in status["mcpServers"]] for status in report.of("mcp_status")]
    assert states == [["connected"], ["disabled"], ["connected"]]
    assert report.of("raised") == []


def test_the_context_is_accounted_for(stage: Stage) -> None:
    report = stage.run("client", [HELLO], steps=[["ask", "Hello"], ["context_usage"]])

    [usage] = report.of("context_usage")
    assert 0 < usage["totalTokens"] < usage["maxTokens"]
    assert "Messages" in [category["name"] for category in usage["categories"]]


def test_a_task_in_the_background_is_stopped(stage: Stage) -> None:
    sleeps = call("Bash", command="sleep 600", run_in_background=True)
    options = {"allowed_tools": ["Bash"]}
    report = stage.run("client", [sleeps, DONE], steps=[["ask_and_stop_the_task", "Wait"]], options=options)

    assert len(only(report, "TaskStartedMessage")) == 1
    assert [task["status"] for task in only(report, "TaskNotificationMessage")] == ["stopped"]
    assert report.of("raised") == []


# Hooks.


def test_every_hook_event_of_the_sdk_fires_with_its_input(stage: Stage) -> None:
    agent = call("Agent", description="look", prompt="Look around.", subagent_type="general-purpose")
    turns = [
        call("Bash", command="touch made"),
        call("Bash", command="false"),
        agent,
        ScriptedTurn(text="Nothing there."),
        DONE,
    ]
    report = stage.run("events", turns, prompts=["Hello", "/compact"])

    [events] = report.of("events")
    told: dict[str, list[Any]] = {event: [] for event in events}
    for input in report.of("hook"):
        told[input["hook_event_name"]].append(input)
    assert [event for event, inputs in told.items() if not inputs] == []
    assert {input["session_id"] for input in report.of("hook")} == {report.messages[-1]["session_id"]}
    assert [input["tool_name"] for input in told["PostToolUse"]] == ["Bash", "Agent"]
    assert [input["tool_input"]["command"] for input in told["PostToolUseFailure"]] == ["false"]
    assert told["PermissionRequest"][0]["tool_name"] == "Bash"
    assert told["UserPromptSubmit"][0]["prompt"] == "Hello"
    assert told["PreCompact"][0]["trigger"] == "manual"
    assert told["SubagentStart"][0]["agent_type"] == told["SubagentStop"][0]["agent_type"] == "general-purpose"
