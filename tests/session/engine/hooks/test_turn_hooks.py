"""Hooks around turns and sessions: prompts, ends, texts, failures of the model, the beginning and the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.engine.hooks import turn_hooks
from parley.engine.turn.result_spill import LINE_CAP_BYTES
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
from tests.helpers.session import Json, Room, texts

ONE = "[[turn]]\ntext = 'One.'"
TWO = "[[turn]]\ntext = 'One.'\n[[turn]]\ntext = 'Two.'\n[[turn]]\ntext = 'Three.'"
BLOCK = {"decision": "block", "reason": "not this"}


async def run(talk: Any) -> None:
    await talk()


def kinds(room: Room) -> list[str]:
    """The lines behind the handshake, in one word each."""
    words = [line.get("request", line).get("callback_id") or line.get("subtype") or line["type"] for line in room.lines]
    return [str(word) for word in words[1:]]


async def test_a_prompt_is_asked_about_before_the_turn_is_announced(tmp_path: Path) -> None:
    async def talk() -> None:
        async with Room(tmp_path, ONE) as room:
            await play(room, {"UserPromptSubmit": specific(additionalContext="mind the gap")}, prompt="Hi")
            messages = room.session.journal.history.render()
        assert kinds(room) == ["UserPromptSubmit", "init", "assistant", "success"]
        assert asked(room)[0]["prompt"] == "Hi"
        assert [block["text"].splitlines()[:2] for block in messages[0]["content"]] == [
            ["Hi"],
            ["<hook-context from='UserPromptSubmit'>", "mind the gap"],
        ]

    await run(talk)


async def test_a_blocked_prompt_never_reaches_the_conversation(tmp_path: Path) -> None:
    async def talk() -> None:
        async with Room(tmp_path, TWO) as room:
            result = await play(room, {"UserPromptSubmit": BLOCK}, prompt="Hi")
            room.prompt("Hello again", uuid="11111111-1111-4111-8111-111111111111")
            second = await until_result(room, {})
        text = "UserPromptSubmit operation blocked by hook:\nnot this\n\nOriginal prompt: Hi"
        assert (result["result"], result["num_turns"], result["is_error"]) == (text, 0, False)
        assert "terminal_reason" not in result
        assert kinds(room)[:4] == ["UserPromptSubmit", "init", "informational", "success"]
        assert second["result"] == "One."
        assert [message["content"][0]["text"] for message in room.session.journal.history.render()] == [
            "Hello again",
            "One.",
        ]

    await run(talk)


async def test_no_line_about_a_hook_is_too_long_for_a_client(tmp_path: Path) -> None:
    async def talk() -> None:
        async with Room(tmp_path, TWO) as room:
            long = "x" * 2_000_000
            answers = {"UserPromptSubmit": {"systemMessage": long, "decision": "block", "reason": long}}
            result = await play(room, answers, prompt=long)
        assert max(map(len, room.raw.splitlines())) < LINE_CAP_BYTES
        assert (result["num_turns"], any("is cut" in complaint for complaint in room.complaints)) == (0, True)

    await run(talk)


async def test_an_interrupt_ends_the_asking_and_the_turn_has_its_result(tmp_path: Path) -> None:
    async def talk() -> None:
        async with Room(tmp_path, TWO) as room:
            await register(room, {"UserPromptSubmit": [matcher("h")]})
            room.prompt("Hi")
            await room.hear("control_request")
            await room.ask("interrupt")
            result = await room.hear("result")
            room.prompt("again")
            second = await until_result(room, {})
        assert (result["subtype"], result["num_turns"]) == ("error_during_execution", 0)
        assert (second["result"], len(list(room.told("control_cancel_request")))) == ("One.", 1)

    await run(talk)


async def test_a_prompt_that_joins_a_turn_is_asked_about_too(tmp_path: Path) -> None:
    async def talk() -> None:
        calls = "[[turn]]\ntools = [{ name = 'Bash', input = { command = 'true' } }]\n"
        async with Room(tmp_path, calls + TWO, permission_prompt_tool="stdio") as room:
            answers = {"UserPromptSubmit": lambda told: BLOCK if told["prompt"] == "bad" else {}}
            await register(room, {"UserPromptSubmit": [matcher("UserPromptSubmit")], "PreToolUse": [matcher("pre")]})
            room.prompt("good")
            line = await room.until(answer_and_wait(room, answers, "pre"))
            room.prompt("bad")
            room.say(reply(line, {}))
            result = await until_result(room, answers)
        assert [input["prompt"] for input in asked(room, "UserPromptSubmit")] == ["good", "bad"]
        assert result["result"] == "One."
        said = [block.get("text") for message in room.session.journal.history.render() for block in message["content"]]
        assert "bad" not in said

    await run(talk)


def answer_and_wait(room: Room, answers: Json, callback_id: str) -> Any:
    def wanted(line: Json) -> bool:
        if line["type"] != "control_request" or line["request"]["callback_id"] == callback_id:
            return bool(line["type"] == "control_request")
        room.say(reply(line, answers[line["request"]["callback_id"]](line["request"]["input"])))
        return False

    return wanted


async def test_a_hook_may_want_more_before_a_turn_ends(tmp_path: Path) -> None:
    async def talk() -> None:
        async with Room(tmp_path, TWO) as room:
            result = await play(room, {"Stop": lambda told: {} if told["stop_hook_active"] else BLOCK})
        assert (result["result"], result["num_turns"]) == ("Two.", 2)
        told = [(input["stop_hook_active"], input["last_assistant_message"]) for input in asked(room)]
        assert told == [(False, "One."), (True, "Two.")]
        assert ["not this" in text for text in contexts(room)] == [True]

    await run(talk)


async def test_a_hook_that_never_lets_go_is_overruled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_hooks, "MAX_STOPS", 2)

    async def talk() -> None:
        async with Room(tmp_path, TWO) as room:
            result = await play(room, {"Stop": BLOCK})
        assert (result["result"], result["terminal_reason"]) == ("Three.", "completed")
        assert any("kept the turn from ending 2 times" in complaint for complaint in room.complaints)

    await run(talk)


async def test_a_hook_that_stops_what_stops_anyway_leaves_the_answer(tmp_path: Path) -> None:
    async def talk() -> None:
        async with Room(tmp_path, TWO) as room:
            result = await play(room, {"Stop": {"continue": False, **BLOCK}})
        assert (result["result"], result["terminal_reason"]) == ("One.", "hook_stopped")

    await run(talk)


async def test_a_hook_hears_of_a_text_before_the_host_does(tmp_path: Path) -> None:
    async def talk() -> None:
        async with Room(tmp_path, ONE) as room:
            await play(room, {"MessageDisplay": {}})
        assert kinds(room) == ["init", "MessageDisplay", "assistant", "success"]
        assert [(input["delta"], input["final"], input["index"]) for input in asked(room)] == [("One.", True, 0)]

    await run(talk)


async def test_a_hook_hears_of_a_turn_that_the_model_failed(tmp_path: Path) -> None:
    async def talk() -> None:
        failing = "[[turn]]\nerror = { status = 400, type = 'invalid_request_error', message = 'bad' }"
        async with Room(tmp_path, failing) as room:
            result = await play(room, {"StopFailure": {}, "Stop": {}})
        assert [(input["hook_event_name"], input["error_details"]) for input in asked(room)] == [
            ("StopFailure", "API Error: 400 bad")
        ]
        assert (kinds(room)[-2:], result["is_error"]) == (["StopFailure", "success"], True)

    await run(talk)


async def test_callbacks_are_not_asked_about_the_beginning_nor_about_an_end_they_cannot_hear_of(tmp_path: Path) -> None:
    async def talk() -> None:
        async with Room(tmp_path, ONE) as room:
            await play(room, {"SessionStart": {}, "SessionEnd": {}})
        assert (asked(room), room.complaints) == ([], [])

    await run(talk)


async def test_an_ended_session_is_told_to_a_host_that_is_still_there(tmp_path: Path) -> None:
    async def talk() -> None:
        async with Room(tmp_path, ONE) as room:
            await play(room, {"SessionEnd": {}})
            await room.ask("end_session")
            line = await room.hear("control_request")
            room.say(reply(line, {}))
        assert [input["reason"] for input in asked(room)] == ["other"]

    await run(talk)


async def test_hooks_that_hold_up_the_end_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_hooks, "SESSION_END_SECONDS", 0)

    async def talk() -> None:
        async with Room(tmp_path, ONE) as room:
            await play(room, {"SessionEnd": SILENCE})
            await room.ask("end_session")
        assert any("hooks of SessionEnd were ended" in complaint for complaint in room.complaints)

    await run(talk)


# Registration.


async def test_a_second_registration_takes_the_place_of_the_first(tmp_path: Path) -> None:
    async def talk() -> None:
        async with Room(tmp_path, TWO) as room:
            await play(room, {"UserPromptSubmit": {}})
            await register(room, {"Stop": [matcher("Stop")]})
            room.prompt("again")
            await until_result(room, {})
        assert [input["hook_event_name"] for input in asked(room)] == ["UserPromptSubmit", "Stop"]

    await run(talk)


@pytest.mark.parametrize(
    ("hooks", "applied"),
    [
        (None, None),
        ({"PreToolUse": [matcher("h", onFailure="block")]}, True),
        ({"TaskCreated": [matcher("h")]}, True),
        ({"TaskCreated": [matcher("h", onFailure="block")]}, False),
    ],
)
async def test_a_host_hears_whether_it_can_rely_on_its_hooks(tmp_path: Path, hooks: Any, applied: bool | None) -> None:
    async def talk() -> None:
        async with Room(tmp_path, ONE) as room:
            answer = await register(room, hooks)
        assert (answer.get("hooks_applied"), answer["hook_on_failure_supported"]) == (applied, True)
        assert [("TaskCreated" in complaint) for complaint in room.complaints] == [True] * (
            "TaskCreated" in (hooks or {})
        )

    await run(talk)


async def test_a_handshake_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    async def talk() -> None:
        async with Room(tmp_path, ONE) as room:
            answer = await room.ask("initialize", hooks={"Stop": [matcher("h")]}, jsonSchema={"type": 5})
            room.prompt("go")
            result = await room.hear("result")
        assert (answer["response"]["subtype"], result["result"], asked(room)) == ("error", "One.", [])

    await run(talk)


async def test_the_hooks_are_listed(tmp_path: Path) -> None:
    async def talk() -> None:
        command = '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}'
        async with Room(tmp_path, ONE, settings=command) as room:
            await register(room, {"PreToolUse": [matcher("h", matcher="Bash", timeout=5)]})
            listing = (await room.ask("get_hooks_listing"))["response"]["response"]
        assert listing["events"] == ["PreToolUse", "Stop"]
        assert [(hook["type"], hook["matcher"], hook["timeout"]) for hook in listing["hooks"]] == [
            ("callback", "Bash", 5.0),
            ("command", "", 60.0),
        ]
        assert {"name": "PreToolUse", "matchField": "tool_name"}.items() <= listing["eventCatalog"][0].items()

    await run(talk)


async def test_without_hooks_nothing_of_them_is_there(tmp_path: Path) -> None:
    async def talk() -> None:
        async with Room(tmp_path, ONE) as room:
            await register(room, None)
            room.prompt("go")
            await room.hear("result")
            live = room.session.hooks.dispatcher
        assert (live, texts(room.told("assistant")), questions(room), results(room)) == (None, ["One."], [], [])

    await run(talk)
