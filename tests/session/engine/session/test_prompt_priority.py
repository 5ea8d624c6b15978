"""`priority` on a prompt: now, next, later."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.helpers.session import Json, SessionHarness

SLOW = '[[turn]]\ntext = "long long long"\nchunk_chars = 2\nevent_delay_ms = 50\n'
DONE = '[[turn]]\ntext = "one"\n[[turn]]\ntext = "two"\n[[turn]]\ntext = "three"\n'
WAITS = {"command": "echo > started; while [ ! -e go ]; do sleep 0.02; done; echo slept"}
ID = "{0}0000000-0000-4000-8000-000000000000".format
BYPASS = {"permission_mode": "bypassPermissions"}


def calls(*commands: str) -> str:
    tools = ", ".join(f'{{name = "Bash", input = {{command = "{command}"}}}}' for command in commands)
    return f"[[turn]]\ntools = [{tools}]\n"


async def appears(path: Path) -> None:
    async with asyncio.timeout(60):
        while not path.exists():  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.01)


def lives(harness: SessionHarness) -> list[tuple[str, str]]:
    return [(line["command_uuid"][0], line["state"]) for line in harness.messages("command_lifecycle")]


def ends(harness: SessionHarness) -> list[tuple[str, bool, str]]:
    return [(line["subtype"], line["is_error"], line["terminal_reason"]) for line in harness.messages("result")]


def prompts(harness: SessionHarness) -> list[str]:
    """What the model reads of people, in its order."""
    said: list[Json] = harness.session.conversation.build_request().messages
    return [
        block["text"]
        for message in said
        if message["role"] == "user"
        for block in message["content"]
        if block["type"] == "text"
    ]


async def test_now_ends_the_turn_when_its_tool_is_done_and_later_comes_last(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, calls(WAITS["command"]) + DONE, **BYPASS) as harness:
        harness.prompt("go", uuid=ID(1))
        await appears(tmp_path / "started")
        harness.prompt("later", uuid=ID(2), priority="later")
        harness.prompt("now", uuid=ID(3), priority="now")
        await harness.receive_until(lambda line: line.get("command_uuid") == ID(3))
        (tmp_path / "go").touch()
        for _ in range(3):
            result = await harness.receive("result")
        assert prompts(harness) == ["go", "now", "later"]
    assert result["result"] == "two"
    assert ends(harness) == [("success", False, "aborted_tools"), *[("success", False, "completed")] * 2]
    assert lives(harness) == [
        *[("1", "queued"), ("1", "started"), ("2", "queued"), ("3", "queued"), ("1", "cancelled")],
        *[("3", "started"), ("3", "completed"), ("2", "started"), ("2", "completed")],
    ]
    [slept] = [line["tool_use_result"]["stdout"] for line in harness.messages("user") if "tool_use_result" in line]
    assert slept == "slept"


async def test_now_cuts_an_answer_and_keeps_what_was_said_of_it(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, SLOW + DONE, include_partial_messages=True) as harness:
        harness.prompt("go")
        await harness.receive_until(lambda line: "text_delta" in str(line.get("event")))
        harness.prompt("now", priority="now")
        for _ in range(2):
            await harness.receive("result")
        assert prompts(harness) == ["go", "now"]
    assert ends(harness) == [("success", False, "aborted_streaming"), ("success", False, "completed")]
    assert [line["message"]["content"][0]["text"] for line in harness.messages("assistant") if line.get("aborted")]


async def test_now_withdraws_a_question_that_no_one_has_answered(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, calls("touch x") + DONE, permission_prompt_tool="stdio") as harness:
        harness.prompt("go")
        asked = await harness.receive("control_request")
        harness.prompt("now", priority="now")
        cancelled = await harness.receive("control_cancel_request")
        for _ in range(2):
            await harness.receive("result")
        assert prompts(harness) == ["go", "now"]
    assert cancelled["request_id"] == asked["request_id"]
    assert ends(harness) == [("success", False, "aborted_tools"), ("success", False, "completed")]
    assert not (tmp_path / "x").exists()


async def test_priority_now_cancels_a_hook_before_a_call_and_waits_for_one_after_it(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, calls("touch a") + calls("touch b") + DONE, **BYPASS) as harness:
        ids = {event: [{"hookCallbackIds": [event]}] for event in ("PreToolUse", "PostToolUse")}
        await harness.request("initialize", hooks=ids)
        harness.prompt("go")
        await harness.receive("control_request")
        harness.prompt("now", priority="now")
        await harness.receive("control_cancel_request")
        first = await harness.receive("result")
        for answered in ("PreToolUse", "PostToolUse"):
            question = await harness.receive("control_request")
            if answered == "PostToolUse":
                harness.prompt("again", priority="now")
                await harness.request("get_binary_version")
            response = {"subtype": "success", "request_id": question["request_id"], "response": {}}
            harness.send({"type": "control_response", "response": response})
        second = await harness.receive("result")
        await harness.receive("result")
    reasons = [line["terminal_reason"] for line in (first, second)]
    assert (reasons, (tmp_path / "a").exists(), (tmp_path / "b").exists()) == (["aborted_tools"] * 2, False, True)
    assert len(list(harness.messages("control_cancel_request"))) == 1


async def test_calls_after_the_one_that_runs_do_not_begin(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, calls(WAITS["command"], "touch second") + DONE, **BYPASS) as harness:
        harness.prompt("go")
        await appears(tmp_path / "started")
        harness.prompt("now", uuid=ID(1), priority="now")
        await harness.receive("command_lifecycle")
        (tmp_path / "go").touch()
        for _ in range(2):
            await harness.receive("result")
    assert not (tmp_path / "second").exists()
    errors = [line["message"]["content"][0].get("is_error") for line in harness.messages("user")]
    assert errors == [False, True]


async def test_an_urgent_prompt_that_is_cancelled_in_time_ends_nothing(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, calls(WAITS["command"]) + DONE, **BYPASS) as harness:
        harness.prompt("go")
        await appears(tmp_path / "started")
        harness.prompt("now", uuid=ID(1), priority="now")
        answer = await harness.request("cancel_async_message", message_uuid=ID(1))
        (tmp_path / "go").touch()
        await harness.receive("result")
    assert answer["response"]["response"] == {"cancelled": True}
    assert ends(harness) == [("success", False, "completed")]


@pytest.mark.parametrize("priority", ["now", "next", "later", "soon"])
async def test_when_nothing_runs_every_priority_runs_at_once(tmp_path: Path, priority: str) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        harness.prompt("go", priority=priority)
        result = await harness.receive("result")
    assert result["result"] == "one"


@pytest.mark.parametrize("priority", ["urgent", "", 5, ["now"], None])
async def test_an_unknown_priority_is_reported_and_replaced_by_the_default(tmp_path: Path, priority: object) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        harness.prompt("go", priority=priority)
        assert (await harness.receive("result"))["result"] == "one"
    warnings = [text for text in harness.warnings if "using next" in text]
    assert len(warnings) == (priority is not None)


async def test_a_prompt_that_was_cancelled_may_come_again(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, SLOW + DONE, include_partial_messages=True) as harness:
        harness.prompt("go")
        await harness.receive("stream_event")
        harness.prompt("first words", uuid=ID(1))
        await harness.request("cancel_async_message", message_uuid=ID(1))
        harness.prompt("better words", uuid=ID(1))
        for _ in range(2):
            await harness.receive("result")
        assert prompts(harness) == ["go", "better words"]


async def test_an_interrupt_meets_only_the_prompt_that_was_about_to_run(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        harness.send(
            {"type": "user", "message": {"role": "user", "content": "first"}, "uuid": ID(1)},
            {"type": "control_request", "request_id": "i", "request": {"subtype": "interrupt"}},
            {
                "type": "control_request",
                "request_id": "c",
                "request": {"subtype": "cancel_async_message", "message_uuid": ID(1)},
            },
            {"type": "user", "message": {"role": "user", "content": "second"}, "uuid": ID(2)},
        )
        result = await harness.receive("result")
    assert result["terminal_reason"] == "completed"
    assert lives(harness) == [
        *[("1", "queued"), ("1", "cancelled")],
        *[("2", "queued"), ("2", "started"), ("2", "completed")],
    ]


def user(text: str, number: int, **fields: str) -> Json:
    return {"type": "user", "message": {"role": "user", "content": text}, "uuid": ID(number), **fields}


def request(subtype: str, **fields: str) -> Json:
    return {"type": "control_request", "request_id": f"{subtype} {fields}", "request": {"subtype": subtype, **fields}}


async def test_an_interrupt_does_not_mean_a_prompt_that_was_taken_back_and_comes_again(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        cancel = request("cancel_async_message", message_uuid=ID(1))
        harness.send(user("first", 1), request("interrupt"), cancel, user("first again", 1))
        assert (await harness.receive("result"))["terminal_reason"] == "completed"
    assert [state for _, state in lives(harness)] == ["queued", "cancelled", "queued", "started", "completed"]


async def test_an_interrupt_does_not_mean_prompts_that_come_together_with_the_one_it_met(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        harness.send(user("first", 1), request("interrupt"), user("before all", 2, priority="now"), user("second", 3))
        ends = [(await harness.receive("result"))["terminal_reason"] for _ in range(3)]
    assert ends == ["completed", "aborted_streaming", "completed"]
    assert [(who, state) for who, state in lives(harness) if state != "queued"] == [
        *[("2", "started"), ("2", "completed")],
        *[("1", "started"), ("1", "cancelled")],
        *[("3", "started"), ("3", "completed")],
    ]


async def test_every_prompt_of_a_turn_is_known_again_after_a_restart(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, SLOW + DONE, include_partial_messages=True) as harness:
        harness.prompt("go")
        await harness.receive("stream_event")
        harness.prompt("a", uuid=ID(1))
        harness.prompt("b", uuid=ID(2))
        for _ in range(2):
            result = await harness.receive("result")
    async with SessionHarness(tmp_path, DONE, resume=result["session_id"]) as again:
        again.prompt("b", uuid=ID(2))
        again.prompt("c", uuid=ID(3))
        await again.receive("result")
        assert prompts(again) == ["go", "a\nb", "c"]
    assert lives(again) == [("3", "queued"), ("3", "started"), ("3", "completed")]


async def test_a_prompt_that_starts_no_turn_has_a_life_as_well(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, SLOW + DONE, include_partial_messages=True) as harness:
        harness.prompt("quiet", uuid=ID(1), shouldQuery=False)
        await harness.receive_until(lambda line: line.get("state") == "completed")
        harness.prompt("go")
        await harness.receive("stream_event")
        harness.prompt("quiet too", uuid=ID(2), shouldQuery=False)
        answer = await harness.request("cancel_async_message", message_uuid=ID(2))
        await harness.receive("result")
        assert prompts(harness) == ["quiet", "go"]
    assert answer["response"]["response"] == {"cancelled": True}
    assert lives(harness) == [("1", "queued"), ("1", "completed"), ("2", "queued"), ("2", "cancelled")]
