"""Declared fields of hook inputs and outputs have their effect, one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.hooks import (
    SILENCE,
    answering,
    asked,
    contexts,
    matcher,
    play,
    questions,
    recorded,
    reply,
    specific,
)
from tests.helpers.session import Json, SessionHarness

STDIO: Json = {"permission_prompt_tool": "stdio"}
HELLO = "[[turn]]\ntext = 'Hello.'\n"
TOUCH = """\
[[turn]]
tools = [{ name = 'Bash', id = 't1', input = { command = 'touch first' } }]
[[turn]]
tools = [{ name = 'Bash', id = 't2', input = { command = 'touch second' } }]
[[turn]]
text = 'Done.'
"""
AGENT = """\
[[turn]]
tools = [{ name = 'Agent', id = 't1', input = { description = 'Look', prompt = 'Look around' } }]
[[turn]]
text = 'Seen.'
[[turn]]
text = 'Done.'
"""


# Context for the model.


async def test_context_before_a_call_reaches_the_model(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, TOUCH, **STDIO) as harness:
        await play(harness, {"PreToolUse": specific(additionalContext="mind the gap")})

    assert [text.splitlines()[1] for text in contexts(harness)] == ["mind the gap"] * 2


async def test_context_at_the_start_of_the_session_reaches_the_model(tmp_path: Path) -> None:
    said = json.dumps({"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "welcome"}})
    hooks = {"SessionStart": [{"hooks": [{"type": "command", "command": f"echo '{said}'"}]}]}
    async with SessionHarness(tmp_path, HELLO, settings=json.dumps({"hooks": hooks})) as harness:
        harness.prompt("Hi")
        await harness.receive("result")
        (prompt, *_) = harness.session.journal.history.render()

    assert [block["text"] for block in prompt["content"]] == [
        "Hi",
        "<hook-context from='SessionStart:startup'>\nwelcome\n</hook-context>",
    ]


async def test_context_at_the_end_of_a_turn_makes_the_model_continue(tmp_path: Path) -> None:
    def once(told: Json) -> Json:
        return {} if told["stop_hook_active"] else specific(additionalContext="one more thing")

    async with SessionHarness(tmp_path, HELLO + HELLO) as harness:
        await play(harness, {"Stop": once})

    assert [text.splitlines()[1] for text in contexts(harness)] == ["one more thing"]


async def test_context_for_a_subagent_reaches_its_model(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, AGENT, skip_permissions=True) as harness:
        await play(harness, {"SubagentStart": specific(additionalContext="mind the gap")})
        requests = await transcripts_of_agents(harness)

    assert "mind the gap" in requests


async def test_context_at_the_end_of_a_subagent_makes_it_continue(tmp_path: Path) -> None:
    def once(told: Json) -> Json:
        return {} if told["stop_hook_active"] else specific(additionalContext="one more thing")

    script = AGENT.replace("text = 'Seen.'", "text = 'Seen.'\n[[turn]]\ntext = 'Seen again.'")
    async with SessionHarness(tmp_path, script, skip_permissions=True) as harness:
        await play(harness, {"SubagentStop": once})
        requests = await transcripts_of_agents(harness)

    assert "one more thing" in requests


async def transcripts_of_agents(harness: SessionHarness) -> str:
    folder = Path(harness.environment["HOME"]) / ".claude"
    return "".join(path.read_text() for path in folder.rglob("agent-*.jsonl"))


# The answer to a permission request.


def decide(**fields: Any) -> Json:
    return specific(decision=fields)


async def test_a_permission_hook_may_change_the_input(tmp_path: Path) -> None:
    answer = decide(behavior="allow", updatedInput={"command": "touch other"})
    async with SessionHarness(tmp_path, TOUCH, **STDIO) as harness:
        await play(harness, {"PermissionRequest": answer}, permission=SILENCE)

    assert ((tmp_path / "other").exists(), (tmp_path / "first").exists()) == (True, False)


async def test_a_permission_hook_may_bring_rules(tmp_path: Path) -> None:
    rules = [{"toolName": "Bash", "ruleContent": "touch *"}]
    update = {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}
    async with SessionHarness(tmp_path, TOUCH, **STDIO) as harness:
        await play(
            harness, {"PermissionRequest": decide(behavior="allow", updatedPermissions=[update])}, permission=SILENCE
        )

    assert [entry["source"] for entry in recorded(harness, "permission")] == ["hook", "rule"]
    assert len(asked(harness, "PermissionRequest")) == 1


async def test_a_permission_hook_may_interrupt(tmp_path: Path) -> None:
    answer = decide(behavior="deny", message="not today", interrupt=True)
    async with SessionHarness(tmp_path, TOUCH, **STDIO) as harness:
        result = await play(harness, {"PermissionRequest": answer}, permission=SILENCE)

    assert (result["terminal_reason"], len(questions(harness))) == ("aborted_tools", 1)
    assert not (tmp_path / "first").exists()


# Input.


async def test_a_hook_is_told_the_effort(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, TOUCH, effort="high", **STDIO) as harness:
        await play(harness, {"PreToolUse": specific(permissionDecision="allow"), "Stop": {}})

    assert [told["effort"] for told in asked(harness)] == [{"level": "high"}] * 3


@pytest.mark.parametrize("fails", [False, True])
async def test_a_hook_is_told_the_server_of_an_mcp_tool(tmp_path: Path, fails: bool) -> None:
    replies = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "shop"}},
        "tools/list": {"tools": [{"name": "buy", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "done"}], "isError": fails},
    }
    script = "[[turn]]\ntools = [{ name = 'mcp__shop__buy', id = 't1', input = {} }]\n[[turn]]\ntext = 'Done.'\n"
    events = ("PreToolUse", "PermissionRequest", "PostToolUseFailure" if fails else "PostToolUse")
    async with SessionHarness(tmp_path, script, **STDIO) as harness:
        react = answering(harness, {"PermissionRequest": SILENCE})

        def serve(line: Json) -> bool:
            request = line.get("request", {})
            if request.get("subtype") == "mcp_message":
                message = request["message"]
                answer = {"jsonrpc": "2.0", "id": message.get("id"), "result": replies.get(message["method"], {})}
                harness.send(reply(line, {"mcp_response": answer}))
            else:
                react(line)
            return bool(line["type"] == "result")

        hooks = {event: [matcher(event)] for event in events}
        request = {"subtype": "initialize", "hooks": hooks, "sdkMcpServers": ["shop"]}
        harness.send({"type": "control_request", "request_id": "i", "request": request})
        harness.prompt("go")
        await harness.receive_until(serve)

    assert [(told["hook_event_name"], told["mcp_server"]["name"]) for told in asked(harness)] == [
        (event, "shop") for event in events
    ]


# Reports.


async def test_the_output_of_a_slow_command_is_reported_while_it_runs(tmp_path: Path) -> None:
    command = "echo working; until test -e go-on; do sleep 0.1; done"
    hooks = {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": command}]}]}
    options: Json = {"settings": json.dumps({"hooks": hooks}), "include_hook_events": True}
    async with SessionHarness(tmp_path, HELLO, **options) as harness:
        harness.prompt("Hi")
        progress = await harness.receive("system", "hook_progress")
        (tmp_path / "go-on").touch()
        await harness.receive("result")

    assert (progress["stdout"], progress["stderr"], progress["output"]) == ("working\n", "", "working\n")
    assert (progress["hook_name"], progress["hook_event"]) == ("UserPromptSubmit", "UserPromptSubmit")
    assert progress.keys() >= {"type", "subtype", "hook_id", "session_id", "uuid"}


@pytest.mark.parametrize("key", ["url", "continueOnBlock"])
async def test_a_key_of_a_command_that_is_not_heeded_is_reported(tmp_path: Path, key: str) -> None:
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": "true", key: True}]}]}
    async with SessionHarness(tmp_path, HELLO, settings=json.dumps({"hooks": hooks})) as harness:
        harness.prompt("Hi")
        await harness.receive("result")

    assert [warning for warning in harness.warnings if f"hooks.Stop: ignored keys: {key}" in warning]


@pytest.mark.parametrize("disabled", [True, False])
async def test_commands_can_be_switched_off_by_a_setting(tmp_path: Path, disabled: bool) -> None:
    hooks = {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": "touch ran"}]}]}
    given = json.dumps({"hooks": hooks, "disableAllHooks": disabled})
    async with SessionHarness(tmp_path, HELLO, settings=given) as harness:
        harness.prompt("Hi")
        await harness.receive("result")

    assert (tmp_path / "ran").exists() is not disabled
