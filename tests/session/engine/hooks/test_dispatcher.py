"""Commands of the settings through a real session: who runs, what the host sees, what happens in the background."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.hooks import asked, contexts, matcher, permissions, play, register, results, specific, until_result
from tests.helpers.session import Json, SessionHarness

ONE = "[[turn]]\ntext = 'One.'\n[[turn]]\ntext = 'Two.'"
TOUCH = "[[turn]]\ntools = [{ name = 'Bash', input = { command = 'touch a.txt' } }]\n[[turn]]\ntext = 'Done.'"
ALLOW = json.dumps(specific(permissionDecision="allow"))


async def run(scenario: Any) -> None:
    await scenario()


def settings(**events: str | Json) -> str:
    """Settings with one command for each event."""
    return json.dumps({"hooks": {event: [entry(command)] for event, command in events.items()}})


def entry(command: str | Json) -> Json:
    handler = {"command": command} if isinstance(command, str) else command
    return {"matcher": "", "hooks": [{"type": "command", **handler}]}


def hook_lines(harness: SessionHarness) -> list[Json]:
    return [line for line in harness.messages("system") if line["subtype"].startswith("hook_")]


async def test_commands_are_notified_of_calls_and_decide_on_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        given = settings(PreToolUse=f"cat > told; echo '{ALLOW}'", PostToolUse="echo bad >&2; exit 2")
        async with SessionHarness(tmp_path, TOUCH, settings=given, include_hook_events=True) as harness:
            harness.prompt("go")
            await harness.receive("result")
        assert json.loads((tmp_path / "told").read_text())["tool_input"] == {"command": "touch a.txt"}
        assert (permissions(harness), (tmp_path / "a.txt").exists()) == ([("allow", "hook")], True)
        assert contexts(harness) == [
            "<hook-context from='PostToolUse:Bash'>\nThe hook reports a problem: bad\n</hook-context>"
        ]
        lines = [
            (line["subtype"], line["hook_name"], line.get("outcome"), line.get("exit_code"))
            for line in hook_lines(harness)
        ]
        assert lines == [
            ("hook_started", "PreToolUse:Bash", None, None),
            ("hook_response", "PreToolUse:Bash", "success", 0),
            ("hook_started", "PostToolUse:Bash", None, None),
            ("hook_response", "PostToolUse:Bash", "error", 2),
        ]
        started, responded = hook_lines(harness)[2:]
        assert started["hook_id"] == responded["hook_id"]
        assert (responded["stdout"], responded["stderr"], responded["output"]) == ("", "bad\n", "bad\n")

    await run(scenario)


async def test_the_runs_of_callbacks_are_reported_with_their_answers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, include_hook_events=True) as harness:
            await play(
                harness, {"PreToolUse": specific(permissionDecision="allow"), "PostToolUse": {"suppressOutput": True}}
            )
        told = [line["output"] for line in hook_lines(harness) if line["subtype"] == "hook_response"]
        assert told == ['{"hookSpecificOutput":{"permissionDecision":"allow"}}', ""]

    await run(scenario)


async def test_what_a_command_wants_hidden_is_not_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        given = settings(UserPromptSubmit="echo '{\"suppressOutput\": true}'")
        async with SessionHarness(tmp_path, ONE, settings=given, include_hook_events=True) as harness:
            harness.prompt("go")
            await harness.receive("result")
        assert [line["stdout"] for line in hook_lines(harness) if line["subtype"] == "hook_response"] == [""]

    await run(scenario)


async def test_a_session_begins_and_ends_with_commands(tmp_path: Path) -> None:
    async def scenario() -> None:
        given = settings(SessionStart="echo welcome", SessionEnd="cat > ended")
        async with SessionHarness(tmp_path, ONE, settings=given) as harness:
            harness.prompt("go")
            await harness.receive("result")
            harness.prompt("again")
            await harness.receive("result")
            messages = harness.session.journal.history.render()
        first = [block["text"] for block in messages[0]["content"]]
        assert first == ["go", "<hook-context from='SessionStart:startup'>\nwelcome\n</hook-context>"]
        assert len(messages[2]["content"]) == 1
        assert json.loads((tmp_path / "ended").read_text())["reason"] == "other"
        assert [line["hook_name"] for line in hook_lines(harness)] == ["SessionStart:startup"] * 2

    await run(scenario)


@pytest.mark.parametrize("first", ["a blocked prompt", "a local command", "an interrupt"])
async def test_what_is_said_at_the_beginning_waits_for_the_first_turn_that_has_a_model(
    tmp_path: Path, first: str
) -> None:
    async def scenario() -> None:
        begins = "[ -e again ] || { echo > begun; sleep 600; }; echo welcome"
        async with SessionHarness(tmp_path, ONE, settings=settings(SessionStart=begins)) as harness:
            await register(harness, {"UserPromptSubmit": [matcher("h")]} if first == "a blocked prompt" else {})
            if first == "an interrupt":
                os.mkfifo(tmp_path / "begun")
            else:
                (tmp_path / "again").touch()
            harness.prompt("/cost" if first == "a local command" else "go")
            if first == "an interrupt":
                await asyncio.to_thread((tmp_path / "begun").read_text)
                (tmp_path / "again").touch()
                await harness.request("interrupt")
            await until_result(harness, {"h": {"decision": "block", "reason": "no"}})
            harness.prompt("again")
            await until_result(harness, {})
        assert [text.splitlines()[1] for text in contexts(harness) if "hook-context" in text] == ["welcome"]

    await run(scenario)


async def test_continue_has_no_effect_where_nothing_can_be_ended_and_that_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        stops = """echo '{"continue": false, "stopReason": "enough"}'"""
        async with SessionHarness(tmp_path, ONE, settings=settings(SessionStart=stops)) as harness:
            harness.prompt("go")
            result = await harness.receive("result")
        assert (
            result["result"],
            [line for line in harness.messages("system") if line["subtype"] == "informational"],
        ) == (
            "One.",
            [],
        )
        assert any("`continue` has no effect" in warning for warning in harness.warnings)

    await run(scenario)


async def test_a_prompt_is_blocked_by_exit_code_2(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, ONE, settings=settings(UserPromptSubmit="echo no >&2; exit 2")) as harness:
            harness.prompt("go")
            result = await harness.receive("result")
        assert result["result"] == "UserPromptSubmit operation blocked by hook:\nno\n\nOriginal prompt: go"

    await run(scenario)


@pytest.mark.parametrize(
    ("options", "ran"),
    [
        ({}, False),
        ({"setting_sources": ("project",)}, True),
        ({"setting_sources": ("project",), "settings": '{"disableAllHooks": true}'}, False),
        ({"setting_sources": ("project",), "bare": True}, False),
    ],
)
async def test_nothing_of_a_tree_runs_before_it_is_trusted(tmp_path: Path, options: Json, ran: bool) -> None:
    (tmp_path / ".claude").mkdir()
    events = ("SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "SessionEnd")
    (tmp_path / ".claude" / "settings.json").write_text(settings(**dict.fromkeys(events, "echo ran >> canary")))

    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, permission_mode="acceptEdits", **options) as harness:
            harness.prompt("go")
            await harness.receive("result")
            listing = (await harness.request("get_hooks_listing"))["response"]["response"]
        assert (tmp_path / "canary").exists() is ran
        assert bool(listing["hooks"]) is ran

    await run(scenario)


async def test_a_change_of_the_settings_changes_the_commands(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, ONE) as harness:
            harness.prompt("go")
            await harness.receive("result")
            given = json.loads(settings(UserPromptSubmit="echo more"))
            await harness.request("apply_flag_settings", settings=given)
            harness.prompt("again")
            await harness.receive("result")
            await harness.request("apply_flag_settings", settings={"hooks": None})
            messages = harness.session.journal.history.render()
            listing = (await harness.request("get_hooks_listing"))["response"]["response"]
        assert [len(message["content"]) for message in messages if message["role"] == "user"] == [1, 2]
        assert listing["hooks"] == []

    await run(scenario)


async def test_what_is_wrong_with_the_hooks_of_settings_is_reported_at_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(
            tmp_path, ONE, settings=settings(Nonsense="true", Stop={"type": "pigeon"})
        ) as harness:
            pass
        assert ["unknown event" in harness.warnings[0], "not supported (use command" in harness.warnings[1]] == [
            True,
            True,
        ]

    await run(scenario)


async def test_a_background_command_delays_nothing_and_is_reported_later(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")

    async def scenario() -> None:
        context = json.dumps(specific(additionalContext="late news"))
        background = {"command": f"read < go; echo '{context}'; echo done > over", "async": True}
        async with SessionHarness(
            tmp_path, ONE, settings=settings(UserPromptSubmit=background), include_hook_events=True
        ) as harness:
            harness.prompt("go")
            await harness.receive("result")
            assert not (tmp_path / "over").exists()
            await asyncio.to_thread((tmp_path / "go").write_text, "\n")
            response = await harness.receive("system", "hook_response")
            harness.prompt("again")
            await harness.receive("result")
            await asyncio.to_thread((tmp_path / "go").write_text, "\n")
            await harness.receive("system", "hook_response")
        assert response["outcome"] == "success"
        assert ["late news" in text for text in contexts(harness)] == [True]

    await run(scenario)


async def test_what_runs_in_the_background_ends_with_the_session(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pid")

    async def scenario() -> None:
        background = {"command": "echo $$ > pid; exec sleep 600", "async": True}
        async with SessionHarness(tmp_path, ONE, settings=settings(UserPromptSubmit=background)) as harness:
            harness.prompt("go")
            await harness.receive("result")
            pid = int(await asyncio.to_thread((tmp_path / "pid").read_text))
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    await run(scenario)


async def test_callbacks_and_commands_are_consulted_together_callbacks_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        given = settings(UserPromptSubmit="echo from a command")
        async with SessionHarness(tmp_path, ONE, settings=given) as harness:
            await register(harness, {"UserPromptSubmit": [matcher("h")]})
            harness.prompt("go")
            await until_result(harness, {"h": specific(additionalContext="from a callback")})
        assert [text.splitlines()[1] for text in contexts(harness)] == ["from a callback", "from a command"]
        assert (len(asked(harness)), results(harness)) == (1, [])

    await run(scenario)


async def test_an_interrupt_ends_a_command_that_is_asked(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pid")

    async def scenario() -> None:
        async with SessionHarness(
            tmp_path, ONE, settings=settings(UserPromptSubmit="echo $$ > pid; exec sleep 600")
        ) as harness:
            harness.prompt("go")
            pid = int(await asyncio.to_thread((tmp_path / "pid").read_text))
            await harness.request("interrupt")
            result = await harness.receive("result")
        assert result["subtype"] == "error_during_execution"
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    await run(scenario)
