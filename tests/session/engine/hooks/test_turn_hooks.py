"""Hooks around turns and sessions: prompts, ends, texts, failures of the model, the beginning and the end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from parley.engine.hooks import turn_hooks
from parley.engine.hooks.registry import SessionEvents
from parley.engine.session.config import LINE_CAP_BYTES
from tests.helpers.hooks import (
    SILENCE,
    asked,
    contexts,
    matcher,
    play,
    questions,
    register,
    reply,
    results,
    specific,
    until_result,
)
from tests.helpers.http_server import Line, loopback
from tests.helpers.session import Json, SessionHarness, texts

ONE = "[[turn]]\ntext = 'One.'"
TWO = "[[turn]]\ntext = 'One.'\n[[turn]]\ntext = 'Two.'\n[[turn]]\ntext = 'Three.'"
BLOCK = {"decision": "block", "reason": "not this"}


async def run(scenario: Any) -> None:
    await scenario()


def kinds(harness: SessionHarness) -> list[str]:
    """The lines behind the handshake, in one word each."""
    words = [
        line.get("request", line).get("callback_id") or line.get("subtype") or line["type"] for line in harness.lines
    ]
    return [str(word) for word in words[1:]]


async def test_a_prompt_is_asked_about_before_the_turn_is_announced(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, ONE) as harness:
            await play(harness, {"UserPromptSubmit": specific(additionalContext="mind the gap")}, prompt="Hi")
            messages = harness.session.journal.history.render()
        assert kinds(harness) == ["UserPromptSubmit", "init", "assistant", "success"]
        assert asked(harness)[0]["prompt"] == "Hi"
        assert [block["text"].splitlines()[:2] for block in messages[0]["content"]] == [
            ["Hi"],
            ["<hook-context from='UserPromptSubmit'>", "mind the gap"],
        ]

    await run(scenario)


async def test_a_blocked_prompt_never_reaches_the_conversation(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TWO) as harness:
            result = await play(harness, {"UserPromptSubmit": BLOCK}, prompt="Hi")
            harness.prompt("Hello again", uuid="11111111-1111-4111-8111-111111111111")
            second = await until_result(harness, {})
        text = "UserPromptSubmit operation blocked by hook:\nnot this\n\nOriginal prompt: Hi"
        assert (result["result"], result["num_turns"], result["is_error"]) == (text, 0, False)
        assert "terminal_reason" not in result
        assert kinds(harness)[:4] == ["UserPromptSubmit", "init", "informational", "success"]
        assert second["result"] == "One."
        assert [message["content"][0]["text"] for message in harness.session.journal.history.render()] == [
            "Hello again",
            "One.",
        ]

    await run(scenario)


async def test_no_line_about_a_hook_is_too_long_for_a_client(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TWO) as harness:
            long = "x" * 2_000_000
            answers = {"UserPromptSubmit": {"systemMessage": long, "decision": "block", "reason": long}}
            result = await play(harness, answers, prompt=long)
        assert max(map(len, harness.raw.splitlines())) < LINE_CAP_BYTES
        assert (result["num_turns"], any("is truncated" in warning for warning in harness.warnings)) == (0, True)

    await run(scenario)


async def test_an_interrupt_ends_the_asking_and_the_turn_has_its_result(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TWO) as harness:
            await register(harness, {"UserPromptSubmit": [matcher("h")]})
            harness.prompt("Hi")
            await harness.receive("control_request")
            await harness.request("interrupt")
            result = await harness.receive("result")
            harness.prompt("again")
            second = await until_result(harness, {})
        assert (result["subtype"], result["num_turns"]) == ("error_during_execution", 0)
        assert (second["result"], len(list(harness.messages("control_cancel_request")))) == ("One.", 1)

    await run(scenario)


async def test_a_prompt_that_joins_a_turn_is_asked_about_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        calls = "[[turn]]\ntools = [{ name = 'Bash', input = { command = 'true' } }]\n"
        async with SessionHarness(tmp_path, calls + TWO, permission_prompt_tool="stdio") as harness:
            answers = {"UserPromptSubmit": lambda told: BLOCK if told["prompt"] == "bad" else {}}
            await register(harness, {"UserPromptSubmit": [matcher("UserPromptSubmit")], "PreToolUse": [matcher("pre")]})
            harness.prompt("good")
            line = await harness.receive_until(answer_and_wait(harness, answers, "pre"))
            harness.prompt("bad")
            harness.send(reply(line, {}))
            result = await until_result(harness, answers)
        assert [input["prompt"] for input in asked(harness, "UserPromptSubmit")] == ["good", "bad"]
        assert result["result"] == "One."
        said = [
            block.get("text") for message in harness.session.journal.history.render() for block in message["content"]
        ]
        assert "bad" not in said

    await run(scenario)


def answer_and_wait(harness: SessionHarness, answers: Json, callback_id: str) -> Any:
    def wanted(line: Json) -> bool:
        if line["type"] != "control_request" or line["request"]["callback_id"] == callback_id:
            return bool(line["type"] == "control_request")
        harness.send(reply(line, answers[line["request"]["callback_id"]](line["request"]["input"])))
        return False

    return wanted


async def test_a_hook_may_want_more_before_a_turn_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TWO) as harness:
            result = await play(harness, {"Stop": lambda told: {} if told["stop_hook_active"] else BLOCK})
        assert (result["result"], result["num_turns"]) == ("Two.", 2)
        told = [(input["stop_hook_active"], input["last_assistant_message"]) for input in asked(harness)]
        assert told == [(False, "One."), (True, "Two.")]
        assert ["not this" in text for text in contexts(harness)] == [True]

    await run(scenario)


async def test_a_hook_that_never_lets_go_is_overruled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_hooks, "MAX_STOPS", 2)

    async def scenario() -> None:
        async with SessionHarness(tmp_path, TWO) as harness:
            result = await play(harness, {"Stop": BLOCK})
        assert (result["result"], result["terminal_reason"]) == ("Three.", "completed")
        assert any("blocked the end of the turn 2 times" in warning for warning in harness.warnings)

    await run(scenario)


async def test_a_hook_that_stops_what_stops_anyway_leaves_the_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TWO) as harness:
            result = await play(harness, {"Stop": {"continue": False, **BLOCK}})
        assert (result["result"], result["terminal_reason"]) == ("One.", "stop_hook_prevented")

    await run(scenario)


async def test_a_hook_receives_a_text_before_the_host_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, ONE) as harness:
            await play(harness, {"MessageDisplay": {}})
        assert kinds(harness) == ["init", "MessageDisplay", "assistant", "success"]
        assert [(input["delta"], input["final"], input["index"]) for input in asked(harness)] == [("One.", True, 0)]

    await run(scenario)


async def test_a_hook_that_is_registered_during_an_answer_receives_its_text(tmp_path: Path) -> None:
    is_registered = asyncio.Event()

    def piece(delta: Json, finish: str | None = None) -> bytes:
        return (
            b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode()
        )

    async def answer(line: Line) -> bool:
        await line.begin(200, {"content-type": "text/event-stream", "connection": "close"})
        await line.write(piece({"content": "One."}))
        await is_registered.wait()
        await line.write(piece({}, "stop") + b"data: [DONE]\n\n")
        return False

    async with loopback(answer) as server:
        harness = SessionHarness(tmp_path, "", model="openai:m", include_partial_messages=True)
        harness.environment["OPENAI_BASE_URL"] = f"{server.url}/v1"
        async with harness:
            harness.prompt("go")
            await harness.receive_until(lambda line: line.get("event", {}).get("type") == "content_block_delta")
            await register(harness, {"MessageDisplay": [matcher("display")]})
            is_registered.set()
            await until_result(harness, {})

    assert [input["delta"] for input in asked(harness)] == ["One."]


async def test_a_hook_is_notified_of_a_turn_that_the_model_failed(tmp_path: Path) -> None:
    async def scenario() -> None:
        failing = "[[turn]]\nerror = { status = 400, type = 'invalid_request_error', message = 'bad' }"
        async with SessionHarness(tmp_path, failing) as harness:
            result = await play(harness, {"StopFailure": {}, "Stop": {}})
        assert [(input["hook_event_name"], input["error_details"]) for input in asked(harness)] == [
            ("StopFailure", "API Error: 400 bad")
        ]
        assert (kinds(harness)[-2:], result["is_error"]) == (["StopFailure", "success"], True)

    await run(scenario)


async def test_callbacks_are_not_called_at_the_start_nor_at_an_end_that_cannot_reach_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, ONE) as harness:
            await play(harness, {"SessionStart": {}, "SessionEnd": {}})
        assert (asked(harness), harness.warnings) == ([], [])

    await run(scenario)


async def test_an_ended_session_is_reported_to_a_host_that_is_still_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, ONE) as harness:
            await play(harness, {"SessionEnd": {}})
            await harness.request("end_session")
            line = await harness.receive("control_request")
            harness.send(reply(line, {}))
        assert [input["reason"] for input in asked(harness)] == ["other"]

    await run(scenario)


async def test_hooks_that_hold_up_the_end_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_hooks, "SESSION_END_SECONDS", 0)

    async def scenario() -> None:
        async with SessionHarness(tmp_path, ONE) as harness:
            await play(harness, {"SessionEnd": SILENCE})
            await harness.request("end_session")
        assert any("SessionEnd hooks were stopped" in warning for warning in harness.warnings)

    await run(scenario)


# Registration.


async def test_a_second_registration_takes_the_place_of_the_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TWO) as harness:
            await play(harness, {"UserPromptSubmit": {}})
            await register(harness, {"Stop": [matcher("Stop")]})
            harness.prompt("again")
            await until_result(harness, {})
        assert [input["hook_event_name"] for input in asked(harness)] == ["UserPromptSubmit", "Stop"]

    await run(scenario)


@pytest.mark.parametrize(
    ("hooks", "applied"),
    [
        (None, None),
        ({"PreToolUse": [matcher("h", onFailure="block")]}, True),
        ({"TeammateIdle": [matcher("h")]}, True),
        ({"TeammateIdle": [matcher("h", onFailure="block")]}, False),
    ],
)
async def test_a_host_learns_whether_it_can_rely_on_its_hooks(tmp_path: Path, hooks: Any, applied: bool | None) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, ONE) as harness:
            answer = await register(harness, hooks)
        assert (answer.get("hooks_applied"), answer["hook_on_failure_supported"]) == (applied, True)
        is_never_fired = "TeammateIdle" in (hooks or {})
        assert [("TeammateIdle" in complaint) for complaint in harness.warnings] == [True] * is_never_fired
        told = [line["content"] for line in harness.messages("system") if line["subtype"] == "informational"]
        assert told == ["hooks for the event 'TeammateIdle' are never called: there are no teammates"] * is_never_fired

    await run(scenario)


async def test_a_handshake_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, ONE) as harness:
            answer = await harness.request("initialize", hooks={"Stop": [matcher("h")]}, jsonSchema={"type": 5})
            harness.prompt("go")
            result = await harness.receive("result")
        assert (answer["response"]["subtype"], result["result"], asked(harness)) == ("error", "One.", [])

    await run(scenario)


async def test_the_hooks_are_listed(tmp_path: Path) -> None:
    async def scenario() -> None:
        command = '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}'
        async with SessionHarness(tmp_path, ONE, settings=command) as harness:
            await register(harness, {"PreToolUse": [matcher("h", matcher="Bash", timeout=5)]})
            listing = (await harness.request("get_hooks_listing"))["response"]["response"]
        assert [(event["name"], event["hookCount"]) for event in listing["events"]] == [("PreToolUse", 1), ("Stop", 1)]
        assert [(hook["type"], hook["matcher"], hook["timeout"]) for hook in listing["hooks"]] == [
            ("callback", "Bash", 5.0),
            ("command", "", 60.0),
        ]
        assert {"name": "PreToolUse", "matchField": "tool_name"}.items() <= listing["eventCatalog"][0].items()

    await run(scenario)


async def test_without_hooks_nothing_of_them_is_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, ONE) as harness:
            await register(harness, None)
            harness.prompt("go")
            await harness.receive("result")
            live = type(harness.session.hooks.events)
        assert (live, texts(harness.messages("assistant")), questions(harness), results(harness)) == (
            SessionEvents,
            ["One."],
            [],
            [],
        )

    await run(scenario)
