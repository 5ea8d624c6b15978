"""A call that a hook defers: the turn ends, and the call is taken up when the session is resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.hooks import (
    matcher,
    permissions,
    play,
    recorded,
    register,
    results,
    specific,
    transcript,
    until_result,
)
from tests.helpers.mcp import script
from tests.helpers.session import Json, SessionHarness

CALL: tuple[str, Json] = ("Bash", {"command": "touch a.txt"})
DEFER = specific(permissionDecision="defer", permissionDecisionReason="Ask the boss")
ALLOW = specific(permissionDecision="allow")
FORK = "11111111-1111-4111-8111-111111111111"
DEFERRED = {"id": "t1", "name": "Bash", "input": {"command": "touch a.txt"}}


async def defer(folder: Path, **options: Any) -> str:
    """Play a turn whose call is deferred; the id of the session."""
    async with SessionHarness(folder, script([CALL], "Not reached."), **options) as harness:
        result = await play(harness, {"PreToolUse": DEFER, "Stop": {}, "PostToolBatch": {}})
    assert (result["subtype"], result["is_error"], result["stop_reason"]) == ("success", False, "tool_deferred")
    assert (result["terminal_reason"], result["deferred_tool_use"]) == ("tool_deferred", DEFERRED)
    assert (results(harness), permissions(harness), result["permission_denials"]) == ([], [], [])
    assert recorded(harness, "deferred") == [
        {"tool_use_id": "t1", "tool": "Bash", "input": {"command": "touch a.txt"}, "mode": "default"}
    ]
    assert not (folder / "a.txt").exists()
    return harness.session.id


@pytest.mark.parametrize("answer", [ALLOW, specific(permissionDecision="deny", permissionDecisionReason="No."), DEFER])
async def test_a_deferred_call_is_decided_when_the_session_is_resumed(tmp_path: Path, answer: Json) -> None:
    session = await defer(tmp_path)

    async with SessionHarness(tmp_path, script("Done."), resume=session) as harness:
        await register(harness, {"PreToolUse": [matcher("PreToolUse")]})
        result = await until_result(harness, {"PreToolUse": answer})

    assert result["terminal_reason"] == ("tool_deferred" if answer is DEFER else "completed")
    assert (tmp_path / "a.txt").exists() is (answer is ALLOW)
    if answer is DEFER:
        assert result["deferred_tool_use"] == DEFERRED


async def test_a_prompt_in_the_resumed_session_joins_after_the_deferred_call(tmp_path: Path) -> None:
    session = await defer(tmp_path)
    settings = json.dumps({"hooks": {"PreToolUse": [{"hooks": [{"command": f"echo '{json.dumps(ALLOW)}'"}]}]}})

    async with SessionHarness(tmp_path, script("Done."), resume=session, settings=settings) as harness:
        harness.prompt("And now?")
        result = await harness.receive("result")

    assert (result["result"], (tmp_path / "a.txt").exists()) == ("Done.", True)
    text = transcript(harness).read_text()
    assert text.index('"tool_result"') < text.index("And now?")


async def test_a_prompt_in_the_same_session_closes_the_deferred_call(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script([CALL], "Never mind.")) as harness:
        await play(harness, {"PreToolUse": DEFER})
        harness.prompt("Leave it")
        result = await harness.receive("result")

    assert (result["result"], (tmp_path / "a.txt").exists()) == ("Never mind.", False)


async def test_a_fork_leaves_the_deferred_call_to_the_session(tmp_path: Path) -> None:
    session = await defer(tmp_path)

    async with SessionHarness(
        tmp_path, script("Forked."), resume=session, fork_session=True, session_id=FORK
    ) as harness:
        await register(harness, {"PreToolUse": [matcher("PreToolUse")]})
        harness.prompt("go")
        result = await until_result(harness, {"PreToolUse": ALLOW})

    assert (result["result"], (tmp_path / "a.txt").exists()) == ("Forked.", False)


async def test_a_deferred_call_whose_tool_is_gone_ends_the_turn_with_an_error(tmp_path: Path) -> None:
    session = await defer(tmp_path)

    async with SessionHarness(tmp_path, script("Next."), resume=session, disallowed_tools=("Bash",)) as harness:
        await register(harness, {"PreToolUse": [matcher("PreToolUse")]})
        result = await until_result(harness, {"PreToolUse": ALLOW})
        harness.prompt("go on")
        after = await harness.receive("result")

    assert (result["is_error"], result["terminal_reason"]) == (True, "tool_deferred_unavailable")
    assert (result["stop_reason"], "the tool Bash is not available" in result["result"]) == (
        "tool_deferred_unavailable",
        True,
    )
    assert (after["result"], (tmp_path / "a.txt").exists()) == ("Next.", False)


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_one_of_several_calls_cannot_be_deferred_and_is_asked_about(tmp_path: Path, is_allowed: bool) -> None:
    calls = [CALL, ("Bash", {"command": "touch b.txt"})]
    permission = {"behavior": "allow"} if is_allowed else {"behavior": "deny", "message": "No."}
    async with SessionHarness(
        tmp_path, script(calls, "Done."), permission_prompt_tool="stdio", allowed_tools=("Bash(touch *)",)
    ) as harness:
        result = await play(harness, {"PreToolUse": DEFER}, permission=permission)

    assert (result["terminal_reason"], "deferred_tool_use" in result) == ("completed", False)
    assert [(tmp_path / name).exists() for name in ("a.txt", "b.txt")] == [is_allowed] * 2
    told = [line["content"] for line in harness.messages("system") if line["subtype"] == "informational"]
    assert ["only the main agent can defer a call" in text for text in told] == [True, True]
    assert harness.warnings == told


async def test_a_call_of_a_subagent_cannot_be_deferred(tmp_path: Path) -> None:
    agent = "{ name = 'Agent', id = 'a1', input = { description = 'd', prompt = 'SUB' } }"
    turns = (
        f"[[turn]]\nwhen = 'go'\ntools = [{agent}]\n"
        "[[turn]]\nwhen = 'SUB'\ntools = [{ name = 'Bash', id = 's1', input = { command = 'touch a.txt' } }]\n"
        "[[turn]]\ntext = 'Sub.'\n[[turn]]\ntext = 'Done.'\n"
    )
    async with SessionHarness(tmp_path, turns) as harness:
        await register(harness, {"PreToolUse": [matcher("h") | {"matcher": "Bash"}]})
        harness.prompt("go")
        result = await until_result(harness, {"h": DEFER})

    assert (result["terminal_reason"], (tmp_path / "a.txt").exists()) == ("completed", False)


async def test_a_denying_rule_and_a_denying_hook_are_stronger_than_defer(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script([CALL], "Done."), disallowed_tools=("Bash(touch *)",)) as harness:
        result = await play(harness, {"PreToolUse": DEFER})
    assert (result["terminal_reason"], permissions(harness)) == ("completed", [("deny", "rule")])


async def test_the_rules_bind_when_a_deferred_call_is_taken_up(tmp_path: Path) -> None:
    session = await defer(tmp_path)

    async with SessionHarness(
        tmp_path, script("Done."), resume=session, disallowed_tools=("Bash(touch *)",)
    ) as harness:
        await register(harness, {"PreToolUse": [matcher("PreToolUse")]})
        await until_result(harness, {"PreToolUse": ALLOW})

    assert not (tmp_path / "a.txt").exists()
