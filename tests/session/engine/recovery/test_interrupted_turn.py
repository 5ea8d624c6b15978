"""A turn that was interrupted continues when the session is resumed, if the options say so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from parley.engine.clock import Clock
from parley.engine.session.recover import GIVEN_UP, MOST_CONTINUED, find_interrupted_turn
from parley.stores.base import Entry
from tests.helpers.session import SessionHarness

SESSION = "11111111-1111-4111-8111-111111111111"
SLOW = "[[turn]]\ntext = 'late'\ndelay_ms = 60000"


def first(folder: Path, script: str, **options: Any) -> SessionHarness:
    return SessionHarness(folder, script, session_id=SESSION, **options)


def resumed(folder: Path, script: str, *, continues: bool = True, **options: Any) -> SessionHarness:
    harness = SessionHarness(folder, script, resume=SESSION, **options)
    harness.stamp = Clock()  # the ids of the first engine are taken
    if continues:
        harness.environment["CLAUDE_CODE_RESUME_INTERRUPTED_TURN"] = "1"
    return harness


@asynccontextmanager
async def crashing(harness: SessionHarness) -> AsyncIterator[SessionHarness]:
    """The engine ends at once after the body, wherever it is."""
    yield await harness.__aenter__()
    await harness.crash()


def transcript(folder: Path) -> Path:
    return next((folder / "home").rglob(f"{SESSION}.jsonl"))


async def interrupt_in_the_model(folder: Path) -> None:
    async with crashing(first(folder, SLOW)) as harness:
        harness.prompt("Hi", uuid="p1")
        await harness.receive("system", "init")


async def test_a_turn_that_was_in_the_model_continues_with_one_call(tmp_path: Path) -> None:
    await interrupt_in_the_model(tmp_path)
    async with resumed(tmp_path, "[[turn]]\ntext = 'Hello.'") as harness:
        await harness.request("initialize")
        result = await harness.receive("result")

    assert (result["result"], result["user_message_uuids"], result["num_turns"]) == ("Hello.", ["p1"], 1)
    assert result["resume_reason"] == "interrupted_turn"


async def test_without_the_option_the_turn_is_left_as_it_is(tmp_path: Path) -> None:
    await interrupt_in_the_model(tmp_path)
    async with resumed(tmp_path, "[[turn]]\ntext = 'Hello.'", continues=False) as harness:
        await harness.request("initialize")
        harness.prompt("Are you there?", uuid="p2")
        result = await harness.receive("result")

    assert result["user_message_uuids"] == ["p2"]
    assert "resume_reason" not in result


async def test_prompts_that_wait_run_after_the_turn_that_continues(tmp_path: Path) -> None:
    await interrupt_in_the_model(tmp_path)
    async with resumed(tmp_path, "[[turn]]\ntext = 'one'\n[[turn]]\ntext = 'two'") as harness:
        harness.prompt("Two", uuid="p2")
        harness.prompt("Three", uuid="p3")
        results = [await harness.receive("result"), await harness.receive("result")]

    assert [(result["result"], result["user_message_uuids"]) for result in results] == [
        ("one", ["p1"]),
        ("two", ["p2", "p3"]),
    ]


async def test_a_turn_continues_only_once(tmp_path: Path) -> None:
    await interrupt_in_the_model(tmp_path)
    async with resumed(tmp_path, "[[turn]]\ntext = 'Hello.'") as harness:
        await harness.request("initialize")
        await harness.receive("result")
    async with resumed(tmp_path, "[[turn]]\ntext = 'Again.'") as harness:
        await harness.request("initialize")
        harness.prompt("Again", uuid="p2")
        result = await harness.receive("result")

    assert (result["result"], result["user_message_uuids"]) == ("Again.", ["p2"])


async def test_a_turn_that_is_interrupted_again_continues_again(tmp_path: Path) -> None:
    await interrupt_in_the_model(tmp_path)
    async with crashing(resumed(tmp_path, SLOW)) as harness:
        await harness.request("initialize")
        await harness.receive("system", "init")
    async with resumed(tmp_path, "[[turn]]\ntext = 'Hello.'") as harness:
        await harness.request("initialize")
        result = await harness.receive("result")

    assert (result["result"], result["user_message_uuids"]) == ("Hello.", ["p1"])


async def test_a_tool_that_had_started_is_reported_as_interrupted(tmp_path: Path) -> None:
    script = (
        f'[[turn]]\ntools = [{{ name = "Bash", input = {{ command = "echo mark >> {tmp_path}/marks; sleep 60" }} }}]'
    )
    async with crashing(first(tmp_path, script, permission_mode="bypassPermissions")) as harness:
        harness.prompt("Hi", uuid="p1")
        await harness.receive("assistant")
        marks = tmp_path / "marks"
        while not (marks.exists() and marks.read_text().endswith("\n")):
            await harness.request("get_context_usage")
    script = "[[turn]]\nwhen = 'outcome is unknown'\ntext = 'I see.'"
    async with resumed(tmp_path, script, permission_mode="bypassPermissions") as harness:
        await harness.request("initialize")
        result = await harness.receive("result")
        shown = list(harness.messages("user"))

    assert result["user_message_uuids"] == ["p1"]
    assert [line["message"]["content"][0]["is_error"] for line in shown] == [True]
    assert marks.read_text() == "mark\n"


async def test_an_answer_that_was_complete_is_not_asked_for_again(tmp_path: Path) -> None:
    async with first(tmp_path, "[[turn]]\ntext = 'Hello.'") as harness:
        harness.prompt("Hi", uuid="p1")
        await harness.receive("result")
    path = transcript(tmp_path)
    kept = [line for line in path.read_text().splitlines(keepends=True) if '"result"' not in line]
    path.write_text("".join(kept))
    async with resumed(tmp_path, "[[turn]]\nerror = { status = 400, message = 'must not be called' }") as harness:
        await harness.request("initialize")
        result = await harness.receive("result")

    assert (result["result"], result["user_message_uuids"], result["num_turns"]) == ("Hello.", ["p1"], 0)


async def test_a_model_that_was_cut_off_is_asked_to_continue(tmp_path: Path) -> None:
    script = """
[[turn]]
blocks = [{ type = "text", text = "First." }, { type = "text", text = "Second, which takes long." }]
event_delay_ms = 400
"""
    async with crashing(first(tmp_path, script)) as harness:
        harness.prompt("Hi", uuid="p1")
        await harness.receive("assistant")
    script = "[[turn]]\nwhen = 'Continue from where it ends'\ntext = 'Second.'"
    async with resumed(tmp_path, script) as harness:
        await harness.request("initialize")
        result = await harness.receive("result")

    assert (result["result"], result["user_message_uuids"]) == ("Second.", ["p1"])


async def test_a_question_that_was_open_is_answered_in_the_same_turn(tmp_path: Path) -> None:
    script = '[[turn]]\ntools = [{ name = "Bash", input = { command = "touch it" } }]'
    async with crashing(first(tmp_path, script, permission_prompt_tool="stdio")) as harness:
        await harness.request("initialize")
        harness.prompt("Hi", uuid="p1")
        asked = await harness.receive("control_request")
    async with resumed(tmp_path, "[[turn]]\ntext = 'Done.'", permission_prompt_tool="stdio") as harness:
        await harness.request("initialize")
        again = await harness.receive("control_request")
        answer = {"subtype": "success", "request_id": again["request_id"], "response": {"behavior": "allow"}}
        harness.send({"type": "control_response", "response": answer})
        result = await harness.receive("result")

    assert again["request_id"] == asked["request_id"]
    assert (result["result"], result["user_message_uuids"]) == ("Done.", ["p1"])
    assert (tmp_path / "it").exists()


async def test_a_turn_that_ends_every_engine_is_given_up(tmp_path: Path) -> None:
    await interrupt_in_the_model(tmp_path)
    for _ in range(MOST_CONTINUED):
        async with crashing(resumed(tmp_path, SLOW)) as harness:
            await harness.request("initialize")
            await harness.receive("system", "init")
    async with resumed(tmp_path, SLOW) as harness:
        await harness.request("initialize")
        result = await harness.receive("result")

    assert (result["is_error"], result["user_message_uuids"]) == (True, ["p1"])
    assert result["errors"] == [GIVEN_UP]


def entry(kind: str, message: dict[str, Any], **context: Any) -> Entry:
    return Entry(seq=0, kind=kind, at="", message=message, context=context)


def prompt(uuid: str, **context: Any) -> Entry:
    return entry("user", {"uuid": uuid, "message": {"content": "Hi"}}, **context)


def test_a_prompt_that_starts_no_turn_is_not_an_interrupted_turn() -> None:
    assert find_interrupted_turn([prompt("p1", silent=True)]) is None


def test_a_turn_of_another_engine_ends_with_its_answer() -> None:
    message = {"id": "m1", "content": [{"type": "text", "text": "Hello."}], "stop_reason": "end_turn"}
    answer = entry("assistant", {"message": message}, foreign=True)
    assert find_interrupted_turn([prompt("p1"), answer]) is None
    found = find_interrupted_turn([prompt("p1"), answer, prompt("p2")])
    assert found is not None
    assert found.prompts == ["p2"]
