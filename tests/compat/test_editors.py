"""Official clients of the Agent Client Protocol against `parley acp`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from parley.models.script import ScriptedCall, ScriptedTurn
from tests.compat.harness import Report, Stage, installed
from tests.compat.install import ACP_TYPESCRIPT, LIBRARIES
from tests.helpers import paths

HELLO = ScriptedTurn(thinking="A greeting.", text="Hello there.", usage={"input_tokens": 1000, "output_tokens": 100})
DONE = ScriptedTurn(text="Done.")


@pytest.fixture(params=[LIBRARIES, ACP_TYPESCRIPT], ids=["python", "typescript"])
def editor(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return Stage(installed(request.param), tmp_path)


def say(text: str) -> list[Any]:
    return ["prompt", [{"type": "text", "text": text}]]


def call(name: str, **input: Any) -> ScriptedTurn:
    return ScriptedTurn(tools=[ScriptedCall(name=name, id=f"toolu_{name}", input=input)])


SERVERS = call("WaitForMcpServers")
"""A turn waits 5 s for servers. The tool waits for those that take longer; without such ones there is no such tool."""


def updates(report: Report, kind: str) -> list[Any]:
    return [update for update in report.of("update") if update["sessionUpdate"] == kind]


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk["content"]["text"] for chunk in chunks)


def results(report: Report) -> list[Any]:
    """The results of the steps, after that of `initialize`; the agent ended by itself."""
    assert report.of("error") == []
    assert report.of("exit") == [0]
    return report.of("result")[1:]


def test_a_prompt_streams_thoughts_text_usage_and_a_title(editor: Stage) -> None:
    report = editor.run("editor", [HELLO], steps=[["new"], say("Hi")])
    made, answered = results(report)
    capabilities = report.of("result")[0]["agentCapabilities"]

    assert capabilities["loadSession"] is True
    assert answered["stopReason"] == "end_turn"
    assert made["modes"]["currentModeId"] == "default"
    assert [option["id"] for option in made["configOptions"]] == ["mode", "model", "effort"]
    assert text_of(updates(report, "agent_thought_chunk")) == "A greeting."
    assert text_of(updates(report, "agent_message_chunk")) == "Hello there."
    assert [update["used"] for update in updates(report, "usage_update")] == [1100]
    assert [update["title"] for update in updates(report, "session_info_update")] == ["Hi"]
    commands = [
        command["name"]
        for update in updates(report, "available_commands_update")
        for command in update["availableCommands"]
    ]
    assert "compact" in commands


def test_an_edit_is_shown_as_a_diff_asked_about_and_made(editor: Stage) -> None:
    file = editor.directory / "notes.txt"
    file.parent.mkdir(parents=True)
    file.write_text("one\n")
    turns = [call("Read", file_path=str(file)), call("Edit", file_path=str(file), old_string="one", new_string="two")]

    report = editor.run("editor", [*turns, DONE], steps=[["new"], say("Edit it")], answers=["allow_once"])
    diff = {"type": "diff", "path": str(file), "oldText": "one", "newText": "two"}
    [asked] = report.of("asked")

    assert results(report)[1]["stopReason"] == "end_turn"
    assert file.read_text() == "two\n"
    assert asked["toolCall"]["content"][0] == diff
    assert [option["kind"] for option in asked["options"]] == ["allow_once", "allow_always", "reject_once"]
    edits = [update for update in updates(report, "tool_call_update") if update["toolCallId"] == "toolu_Edit"]
    assert [update["status"] for update in edits] == ["in_progress", "completed"]
    assert edits[1]["content"] == [diff]
    assert edits[1]["locations"] == [{"path": str(file), "line": 1}]
    kinds = {update["toolCallId"]: update["kind"] for update in updates(report, "tool_call")}
    assert kinds == {"toolu_Read": "read", "toolu_Edit": "edit"}


def test_a_call_is_announced_before_the_request_that_asks_about_it(editor: Stage) -> None:
    turns = [call("Bash", command="touch made"), DONE]

    report = editor.run("editor", turns, steps=[["new"], say("Do it")], answers=["reject_once"])
    told = [what for what, value in report.told if what == "asked" or "tool_call'" in str(value)]

    assert told == ["update", "asked"]
    assert results(report)[1]["stopReason"] == "end_turn"
    assert [update["status"] for update in updates(report, "tool_call_update")] == ["failed"]
    assert not (editor.directory / "made").exists()


def test_an_answer_for_always_holds_for_the_next_call(editor: Stage) -> None:
    turns = [call("Bash", command="npm run x"), DONE, call("Bash", command="npm run y"), DONE]

    report = editor.run("editor", turns, steps=[["new"], say("One"), say("Two")], answers=["reject_always"])

    assert len(report.of("asked")) == 1
    assert [update["status"] for update in updates(report, "tool_call_update")] == ["failed", "failed"]
    assert "npm run" in updates(report, "tool_call_update")[1]["content"][0]["content"]["text"]
    assert results(report)[2]["stopReason"] == "end_turn"


def test_a_work_list_is_a_plan(editor: Stage) -> None:
    todos = [
        {"content": "Look", "status": "completed", "activeForm": "Looking"},
        {"content": "Leap", "status": "pending", "activeForm": "Leaping"},
    ]

    report = editor.run("editor", [call("TodoWrite", todos=todos), DONE], steps=[["new"], say("Plan")])

    assert [update["entries"] for update in updates(report, "plan")] == [
        [
            {"content": "Look", "priority": "medium", "status": "completed"},
            {"content": "Leap", "priority": "medium", "status": "pending"},
        ]
    ]
    assert updates(report, "tool_call") == []


def test_an_approved_plan_changes_the_mode(editor: Stage) -> None:
    steps = [["new"], ["mode", "plan"], say("Plan")]

    report = editor.run("editor", [call("ExitPlanMode", plan="# Leap"), DONE], steps=steps, answers=["acceptEdits"])
    [asked] = report.of("asked")

    assert asked["toolCall"]["content"][0]["content"] == {"type": "text", "text": "# Leap"}
    assert asked["toolCall"]["kind"] == "switch_mode"
    assert [update["currentModeId"] for update in updates(report, "current_mode_update")] == ["plan", "acceptEdits"]
    assert results(report)[2]["stopReason"] == "end_turn"


@pytest.mark.parametrize("answer", ["cancel", "cancel without an answer"])
def test_a_cancelled_turn_ends_and_the_session_continues(editor: Stage, answer: str) -> None:
    turns = [call("Bash", command="touch made"), DONE]

    report = editor.run("editor", turns, steps=[["new"], say("Do it"), say("Again")], answers=[answer])

    assert [result["stopReason"] for result in results(report)[1:]] == ["cancelled", "end_turn"]
    assert not (editor.directory / "made").exists()


def test_a_loaded_session_replays_its_history_and_continues(editor: Stage) -> None:
    todo = {"content": "Look", "status": "pending", "activeForm": "Looking"}
    written = call("Write", file_path=str(editor.directory / "notes.txt"), content="one\n")
    turns = [call("TodoWrite", todos=[todo]), written, HELLO, DONE]
    steps = [["new"], say("Hi"), ["close"], ["load"], say("Again"), ["list"], ["fork"], ["session/delete"], ["resume"]]

    report = editor.run("editor", turns, steps=steps, answers=["allow_once"])
    texts = [update for update in report.of("update") if update["sessionUpdate"].endswith("message_chunk")]
    made, _, _, loaded, again, listed, forked, deleted = report.of("result")[1:]

    assert text_of(texts) == "Hello there." + "Hi" + "Hello there." + "Done."
    assert len(updates(report, "plan")) == 2
    live, replayed = [update for update in updates(report, "tool_call_update") if update["status"] == "completed"]
    assert replayed == live
    assert loaded["modes"] == made["modes"]
    assert again["stopReason"] == "end_turn"
    assert [session["sessionId"] for session in listed["sessions"]] == [made["sessionId"]]
    assert forked["sessionId"] != made["sessionId"]
    assert deleted == {}
    assert [error["code"] for error in report.of("error")] == [-32002]
    assert "Hi" in str(report.requests[-1]["messages"])


def test_a_question_of_the_model_is_a_form(editor: Stage) -> None:
    options = [{"label": "A", "description": "the first"}, {"label": "B", "description": "the second"}]
    question = {"question": "Which one?", "header": "Choice", "options": options, "multiSelect": False}
    turns = [call("AskUserQuestion", questions=[question]), DONE]

    report = editor.run("editor", turns, steps=[["new"], say("Ask")], form={"question_1": "B"})

    assert report.of("asked") == []
    assert len(report.of("form")) == 1
    assert "Which one? B" in str(report.requests[-1]["messages"])


def test_without_forms_a_question_has_its_choices_as_options(editor: Stage) -> None:
    options = [{"label": "A", "description": "the first"}, {"label": "B", "description": "the second"}]
    question = {"question": "Which one?", "header": "Choice", "options": options, "multiSelect": False}
    turns = [call("AskUserQuestion", questions=[question]), DONE]

    report = editor.run("editor", turns, steps=[["new"], say("Ask")], answers=["choice_2"])

    assert [option["name"] for option in report.of("asked")[0]["options"]] == ["A", "B", "Do not answer"]
    assert "Which one? B" in str(report.requests[-1]["messages"])


def test_images_links_and_files_reach_the_model(editor: Stage) -> None:
    content = [
        {"type": "text", "text": "Look at "},
        {"type": "resource_link", "name": "a.py", "uri": "file:///a.py"},
        {"type": "resource", "resource": {"uri": "file:///b.py", "text": "print(2)"}},
        {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
    ]

    report = editor.run("editor", [DONE], steps=[["new"], ["prompt", content]])
    sent = report.requests[-1]["messages"][-1]["content"]

    assert "Look at [@a.py](file:///a.py)" in str(sent)
    assert "print(2)" in str(sent)
    assert [block["source"]["media_type"] for block in sent if block["type"] == "image"] == ["image/png"]
    assert results(report)[1]["stopReason"] == "end_turn"


def test_a_server_of_the_editor_is_connected_with_its_environment(editor: Stage) -> None:
    server = {
        "name": "counter",
        "command": sys.executable,
        "args": [str(paths.MCP_SERVERS / "plain.py"), "well"],
        "env": [{"name": "FROM_EDITOR", "value": "yes"}],
    }

    report = editor.run("editor", [SERVERS, DONE], steps=[["new", [server]], say("Hi")])

    assert [tool["name"] for tool in report.requests[-1]["tools"] if tool["name"].startswith("mcp__counter__")] != []


def test_the_model_and_the_effort_can_be_changed(editor: Stage) -> None:
    steps = [["new"], ["config", "model", "haiku"], ["config", "effort", "low"], say("Hi")]

    report = editor.run("editor", [DONE], steps=steps)
    changed = {option["id"]: option["currentValue"] for option in results(report)[2]["configOptions"]}

    assert changed == {"mode": "default", "model": "haiku", "effort": "low"}
    assert "haiku" in report.requests[-1]["model"]
    assert report.requests[-1]["output_config"] == {"effort": "low"}


def test_what_is_not_supported_is_an_error_that_says_so(editor: Stage) -> None:
    steps = [["new"], ["prompt", [{"type": "audio", "data": "AA==", "mimeType": "audio/wav"}]], ["providers/list"]]
    steps += [["mode", "bypassPermissions"], ["session/prompt", {"prompt": []}], ["close"], say("Hi")]

    report = editor.run("editor", [DONE], steps=steps)
    modes = "default, acceptEdits, plan, auto, dontAsk"

    assert [(error["code"], error["message"]) for error in report.of("error")] == [
        (-32602, "session/prompt: audio is not supported; send text or images"),
        (-32601, "providers/list is not supported: set the model and its server with the options of Parley"),
        (-32602, f"unknown value 'bypassPermissions' for the option 'mode' (choose from {modes})"),
        (-32602, "session/prompt: the prompt is empty"),
        (-32002, f"there is no session {report.of('result')[1]['sessionId']!r}"),
    ]


@pytest.mark.parametrize(
    ("turn", "flags", "reason"),
    [
        (ScriptedTurn(text="Half", stop_reason="max_tokens"), [], "max_tokens"),
        (ScriptedTurn(text="No.", stop_reason="refusal"), [], "refusal"),
        (call("Read", file_path="/dev/null"), ["--max-turns", "1"], "max_turn_requests"),
    ],
)
def test_stop_reasons(editor: Stage, turn: ScriptedTurn, flags: list[str], reason: str) -> None:
    report = editor.run("editor", [turn], steps=[["new"], say("Hi")], flags=flags)

    assert results(report)[1]["stopReason"] == reason


def test_a_question_of_a_server_is_a_form(editor: Stage) -> None:
    server = {
        "name": "workshop",
        "command": sys.executable,
        "args": [str(paths.MCP_SERVERS / "workshop.py"), "stdio"],
        "env": [],
    }
    steps = [["new", [server]], say("Greet me")]

    turns = [SERVERS, call("mcp__workshop__greet"), DONE]

    report = editor.run("editor", turns, steps=steps, answers=["allow_once"], form={"name": "Ada"})
    [form] = report.of("form")

    assert form["message"] == "What is your name?"
    assert list(form["mode"]["requestedSchema"]["properties"]) == ["name"]
    assert "Ada" in str(report.requests[-1]["messages"][-1])


# The editor's files and terminals.

FILES = {"fs": {"readTextFile": True, "writeTextFile": True}}


def test_tools_see_unsaved_changes_and_write_through_the_editor(editor: Stage) -> None:
    file = editor.directory / "notes.txt"
    file.parent.mkdir(parents=True)
    file.write_text("one\n")
    turns = [
        call("Read", file_path=str(file)),
        call("Edit", file_path=str(file), old_string="unsaved", new_string="changed"),
        DONE,
    ]

    report = editor.run(
        "editor",
        turns,
        steps=[["new"], say("Edit it")],
        answers=["allow_once"],
        capabilities=FILES,
        buffers={str(file): "one\nunsaved\n"},
    )

    assert "unsaved" in str(report.requests[1]["messages"][-1])
    assert report.of("wrote") == [{"path": str(file), "content": "one\nchanged\n"}]
    assert file.read_text() == "one\nchanged\n"
    edits = [update for update in updates(report, "tool_call_update") if update["toolCallId"] == "toolu_Edit"]
    assert edits[-1]["status"] == "completed"
    assert results(report)[1]["stopReason"] == "end_turn"


def test_the_editor_is_not_asked_for_a_file_that_may_not_be_changed(editor: Stage) -> None:
    file = editor.directory / "notes.txt"

    report = editor.run(
        "editor",
        [call("Write", file_path=str(file), content="one\n"), DONE],
        steps=[["new"], say("Write it")],
        answers=["reject_once"],
        capabilities=FILES,
    )

    assert len(report.of("asked")) == 1
    assert report.of("wrote") == report.of("read") == []
    assert not file.exists()


@pytest.mark.parametrize("unsaved", [False, True])
def test_a_file_that_the_editor_cannot_write_goes_to_disk_unless_changes_would_be_lost(
    editor: Stage, unsaved: bool
) -> None:
    file = editor.directory / "notes.txt"
    file.parent.mkdir(parents=True)
    file.write_text("one\n")

    report = editor.run(
        "editor",
        [call("Edit", file_path=str(file), old_string="one", new_string="two"), DONE],
        steps=[["new"], say("Edit it")],
        answers=["allow_once"],
        capabilities=FILES,
        buffers={str(file): "one\nunsaved\n"} if unsaved else {},
        refuses_writes=True,
    )
    done = updates(report, "tool_call_update")[-1]

    assert done["status"] == ("failed" if unsaved else "completed")
    assert file.read_text() == ("one\n" if unsaved else "two\n")
    assert ("the buffer is locked" in str(done)) == unsaved


def test_the_output_of_a_command_is_shown_in_a_terminal_while_it_runs(editor: Stage) -> None:
    command = "echo first; until [ -e go ]; do sleep 0.1; done; echo second; exit 3"
    turns = [
        ScriptedTurn(
            tools=[
                ScriptedCall(name="Bash", id="toolu_1", input={"command": command}),
                ScriptedCall(name="Bash", id="toolu_2", input={"command": "true"}),
            ]
        ),
        DONE,
    ]

    report = editor.run(
        "editor",
        turns,
        steps=[["new"], say("Run it")],
        answers=["allow_once"] * 2,
        capabilities={"_meta": {"terminal_output": True}},
        flags=["--allowedTools", "Bash"],
        touch_after_output=str(editor.directory / "go"),
    )
    shown = [update for update in report.of("update") if update.get("toolCallId") == "toolu_1"]
    terminals = [update["_meta"]["terminal_output"]["data"] for update in shown if "terminal_output" in update["_meta"]]

    assert shown[0]["content"] == [{"type": "terminal", "terminalId": "toolu_1"}]
    assert shown[0]["_meta"]["terminal_info"]["terminal_id"] == "toolu_1"
    assert terminals == ["first\n", "second\n"]
    assert shown[-1]["_meta"]["terminal_exit"] == {"terminal_id": "toolu_1", "exit_code": 3, "signal": None}


# Over the gateway.


@pytest.fixture(params=[LIBRARIES, ACP_TYPESCRIPT], ids=["python", "typescript"])
def remote_editor(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return Stage(installed(request.param), tmp_path, connection="websocket")


def test_the_official_library_drives_a_session_of_a_gateway(remote_editor: Stage) -> None:
    file = remote_editor.directory / "notes.txt"
    file.parent.mkdir(parents=True)
    file.write_text("one\n")
    todo = {"content": "Look", "status": "pending", "activeForm": "Looking"}
    turns = [
        call("TodoWrite", todos=[todo]),
        call("Edit", file_path=str(file), old_string="one", new_string="two"),
        HELLO,
        call("Bash", command="touch made"),
        DONE,
    ]
    steps = [["new"], say("Edit it"), say("Do it"), ["close"], ["load"], say("Again"), ["list"], ["fork"]]

    report = remote_editor.run("editor", turns, steps=steps, answers=["allow_once", "cancel"], capabilities=FILES)
    made, edited, cancelled, _, loaded, again, listed, forked = results(report)
    assert forked["sessionId"] != made["sessionId"]
    diff = {"type": "diff", "path": str(file), "oldText": "one", "newText": "two"}

    assert report.of("asked")[0]["toolCall"]["content"] == [diff]
    assert report.of("wrote") == []  # the files are those of the server
    assert file.read_text() == "two\n"
    assert len(updates(report, "plan")) == 2
    assert edited["stopReason"] == again["stopReason"] == "end_turn"
    assert cancelled["stopReason"] == "cancelled"
    assert not (remote_editor.directory / "made").exists()
    assert loaded["modes"] == made["modes"]
    replayed = [update for update in report.of("update") if update["sessionUpdate"] == "user_message_chunk"]
    assert text_of(replayed) == "Edit itDo it"
    assert [session["sessionId"] for session in listed["sessions"]] == [made["sessionId"]]
