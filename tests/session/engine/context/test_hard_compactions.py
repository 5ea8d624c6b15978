"""Conversations that are hard to compact: nothing of them may end a session, or be lost without need."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.helpers.session import SessionHarness
from tests.session.engine.context.test_compactor import DONE, LONG, SMALL, TOO_LONG, notices, prompted, says, sent
from tests.stress.engine import small_context_windows
from tests.stress.stores.scripted_job import flaw_in

BASH = {"allowed_tools": ["Bash"], **SMALL}
LIE = "usage = {input_tokens = 1, output_tokens = 1}\n"


def calls(command: str, *, id: str, more: str = "") -> str:
    tool = f"{{name = 'Bash', input = {{command = {json.dumps(command)}}}, id = {json.dumps(id)}}}"
    return f"[[turn]]\ntext = 'ok'\ntools = [{tool}]\n{more}"


def refused(status: int, words: str) -> str:
    return f"[[turn]]\nerror = {{status = {status}, type = 'invalid_request_error', message = {json.dumps(words)}}}\n"


def first_text(harness: SessionHarness) -> str:
    return str(sent(harness)[0]["content"][0]["text"])


async def test_a_backend_that_always_counts_one_token_does_not_make_a_conversation_grow_for_ever(
    tmp_path: Path,
) -> None:
    work = [calls(f"head -c 2000 /dev/zero | tr '\\0' x; : {at}", id=f"t{at}", more=LIE) for at in range(2)]
    script = "".join([*work, *says("Sum."), f"[[turn]]\ntext = 'done'\n{LIE}"])

    async with SessionHarness(tmp_path, script, **BASH) as harness:
        result = await prompted(harness, "go")
        [first, *_] = sent(harness)
    assert result["result"] == "done"
    assert notices(harness) == [*DONE, "auto"]
    assert "Sum." in first["content"][0]["text"]


@pytest.mark.parametrize("before", [(), ("hi",)])
async def test_a_prompt_that_was_too_long_is_the_end_of_its_turn_and_not_of_the_session(
    tmp_path: Path, before: tuple[str, ...]
) -> None:
    # What was said before the prompt is compacted for it; then no one looks again before a backend complains.
    rest = says("Sum.") + TOO_LONG * 2 if before else TOO_LONG

    script = says(*("hello" for _ in before)) + rest + says(*("Part." for _ in range(5)), "two", "three")
    async with SessionHarness(tmp_path, script, **SMALL) as harness:
        await prompted(harness, *before)
        bad = await prompted(harness, "x" * 18_000)
        good = await prompted(harness, "second")
        request = harness.session.conversation.build_request().messages
        await prompted(harness, "third")
    assert (bad["is_error"], bad["terminal_reason"]) == (True, "prompt_too_long")
    assert (good["is_error"], good["result"]) == (False, "two")
    assert [block["text"] for message in request[:1] for block in message["content"]][-1] == "second"
    assert "Part." in request[0]["content"][0]["text"]
    assert flaw_in(sent(harness)[:-1]) == ""


async def test_a_summary_that_is_too_long_is_cut(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says(LONG, "s" * 100_000, "two"), **SMALL) as harness:
        await prompted(harness, "first")
        result = await prompted(harness, "second")
    assert result["result"] == "two"
    assert len(first_text(harness)) < 3_000
    assert "characters left out" in first_text(harness)


@pytest.mark.parametrize(
    "no_summary",
    [
        "[[turn]]\ntext = ''\n",
        "[[turn]]\ntext = 'I cannot help with that.'\nstop_reason = 'refusal'\n",
        calls("echo ran > ran.txt", id="never"),
    ],
)
async def test_an_answer_that_is_not_a_summary_does_not_replace_the_conversation(
    tmp_path: Path, no_summary: str
) -> None:
    async with SessionHarness(tmp_path, says(LONG) + no_summary + says("Sum.", "two"), **BASH) as harness:
        await prompted(harness, "first")
        result = await prompted(harness, "second")
    assert result["result"] == "two"
    assert "Sum." in first_text(harness)
    assert not (tmp_path / "ran.txt").exists()


async def test_where_no_model_writes_a_summary_the_conversation_itself_is_kept_as_far_as_it_fits(
    tmp_path: Path,
) -> None:
    script = says(LONG) + "[[turn]]\ntext = ''\n" * 3 + says("two")
    async with SessionHarness(tmp_path, script, **SMALL) as harness:
        await prompted(harness, "the very first words")
        result = await prompted(harness, "second")
    assert result["result"] == "two"
    assert "the very first words" in first_text(harness)


async def test_a_backend_that_refuses_a_block_of_the_conversation_reads_it_as_text(tmp_path: Path) -> None:
    script = says(LONG) + refused(400, "could not process image") * 2 + says("Sum.", "Sum.", "two")
    async with SessionHarness(tmp_path, script, **SMALL) as harness:
        await prompted(harness, "first")
        result = await prompted(harness, "second")
    assert result["result"] == "two"
    assert "Sum." in first_text(harness)


async def test_a_backend_that_refuses_whatever_it_is_asked_costs_nothing_of_the_conversation(tmp_path: Path) -> None:
    """Also one whose bill was not paid says 400. The typed error is no wall: the next turn tries again."""

    unpaid = refused(400, "Your credit balance is too low")
    script = says(LONG) + unpaid * 3 + says("two") + unpaid * 6 + says("four")
    async with SessionHarness(tmp_path, script, **SMALL) as harness:
        results = [await prompted(harness, text) for text in ("first", "second", "third", "fourth")]
        messages = sent(harness)
    assert [result.get("api_error") for result in results] == [None, None, "compaction_failed", None]
    assert [result["is_error"] for result in results] == [False, False, True, False]
    assert messages[1]["content"][0]["text"] == LONG


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (413, "Request exceeds the maximum size"),
        (400, "input length and `max_tokens` exceed context limit: 199000 + 32000 > 200000"),
        (400, "This model's maximum context length is 8192 tokens."),
        (400, "the request exceeds the available context size"),
    ],
)
async def test_however_a_backend_says_that_it_is_too_much_the_request_becomes_shorter(
    tmp_path: Path, status: int, words: str
) -> None:
    async with SessionHarness(tmp_path, says("one") + refused(status, words) + says("Sum.", "two")) as harness:
        result = await prompted(harness, "first", "second")
    assert (result["result"], result["is_error"]) == ("two", False)
    assert notices(harness) == [*DONE, "auto"]


async def test_the_request_is_word_for_word_the_same_after_many_compactions_of_one_turn(tmp_path: Path) -> None:
    big = "head -c 5000 /dev/zero | tr '\\0' x"
    work = [part for at in range(3) for part in (calls(f"{big}; : {at}", id=f"t{at}"), says(f"Sum {at}."))]

    async with SessionHarness(tmp_path, "".join(work) + says("done"), **BASH) as harness:
        result = await prompted(harness, "Count the files, please")
    assert result["result"] == "done"
    assert notices(harness) == [*DONE, "auto"] * 3
    assert first_text(harness).count("Count the files, please") == 1
    assert "Sum 2." in first_text(harness)
    assert "Sum 1." not in first_text(harness)


async def test_a_prompt_that_joined_a_turn_is_kept_though_the_result_before_it_is_not(tmp_path: Path) -> None:
    slow = "until [ -e go ]; do sleep 0.01; done; head -c 5000 /dev/zero | tr '\\0' x"
    async with SessionHarness(tmp_path, calls(slow, id="t1") + says("Sum.", "done"), **BASH) as harness:
        harness.prompt("first")
        await harness.receive("assistant")
        harness.prompt("and be brief", uuid="00000000-0000-4000-9000-000000000001")
        await harness.receive("command_lifecycle")
        (tmp_path / "go").touch()
        result = await harness.receive("result")
        [first, *_] = sent(harness)
    assert result["result"] == "done"
    assert first["content"][-1]["text"] == "and be brief"


async def test_who_wants_no_compaction_but_on_request_gets_none(tmp_path: Path) -> None:
    script = says("one", LONG) + TOO_LONG + says("Sum.", "four")
    async with SessionHarness(tmp_path, script, autocompact="off", system_prompt="Be brief.") as harness:
        results = [await prompted(harness, text) for text in ("first", "second", "third", "/compact", "fourth")]
    assert [result.get("terminal_reason") for result in results[:3]] == ["completed"] * 2 + ["prompt_too_long"]
    assert results[-1]["result"] == "four"
    assert notices(harness) == [*DONE, "manual"]


async def test_a_window_that_can_be_none_is_reported_and_ignored(tmp_path: Path) -> None:
    (tmp_path / "home/.claude").mkdir(parents=True)
    (tmp_path / "home/.claude/settings.json").write_text('{"autoCompactWindow": -5}')

    async with SessionHarness(tmp_path, says("one", "two")) as harness:
        await prompted(harness, "first", "second")
        usage = (await harness.request("get_context_usage"))["response"]["response"]
    assert usage["maxTokens"] == 200_000
    assert notices(harness) == []
    [told] = harness.warnings
    assert "autoCompactWindow must be a whole number, 0 or more; ignored" in told


async def test_a_model_that_stands_in_writes_the_summary_as_well(tmp_path: Path) -> None:
    busy = '[[turn]]\nerror = { status = 529, type = "overloaded_error", message = "busy", retry_after_seconds = 0 }\n'
    (tmp_path / "spare.toml").write_text(says("Sum.", "two"))

    spare = f"scripted:{tmp_path / 'spare.toml'}"
    async with SessionHarness(tmp_path, says(LONG) + busy * 9, fallback_model=spare, **SMALL) as harness:
        await prompted(harness, "first")
        result = await prompted(harness, "second")
    assert (result["result"], result["is_error"]) == ("two", False)
    assert "Sum." in first_text(harness)
    failed = {"status": None, "compact_result": "failed", "compact_error": "busy"}
    assert notices(harness) == [DONE[0], failed, *DONE, "auto"]


async def test_a_summary_is_given_up_when_the_backend_has_failed_for_minutes(tmp_path: Path) -> None:
    """As any call is: eight times, or for five minutes."""
    slow = '[[turn]]\nerror = { status = 529, type = "overloaded_error", message = "busy", retry_after_seconds = 60 }\n'

    harness = SessionHarness(tmp_path, says(LONG) + slow * 9 + says("two"), **SMALL)
    harness.environment |= {"CLAUDE_CODE_MAX_RETRIES": "20"}
    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    clock = harness.stamp.monotonic
    harness.stamp = msgspec.structs.replace(harness.stamp, sleep=pause, monotonic=lambda: clock() + sum(paused))
    async with harness:
        await prompted(harness, "first")
        await prompted(harness, "second")
    retries = [line for line in harness.messages("system") if line["subtype"] == "api_retry"]
    assert notices(harness)[1]["compact_result"] == "failed"
    assert [line["attempt"] for line in retries[:5]] == [1, 2, 3, 4, 1]


async def test_a_call_that_an_earlier_engine_left_open_has_its_result_before_it_is_summed_up(tmp_path: Path) -> None:
    harness = await SessionHarness(tmp_path, says("one") + calls("sleep 100", id="t1"), **BASH).__aenter__()
    await prompted(harness, "first")
    harness.prompt("second")
    await harness.receive_until(lambda line: line["type"] == "assistant" and "tool_use" in str(line))
    await harness.crash()
    async with SessionHarness(tmp_path, says("Sum.", "two"), resume=harness.session.id, **BASH) as again:
        await prompted(again, "/compact")
        result = await prompted(again, "third")
    assert result["result"] == "two"
    [path] = (tmp_path / "home/.claude/projects").rglob("*.jsonl")
    kinds = [
        kind
        for line in path.read_text().splitlines()
        for kind in ("tool_result", "compact_boundary")
        if f'"{kind}"' in line
    ]
    assert kinds == ["tool_result", "compact_boundary"]


async def test_no_session_is_lost_in_a_window_that_is_far_too_small(tmp_path: Path) -> None:
    seen, problems = await small_context_windows.storm(tmp_path, sessions=4, parallel=4, seed=1)

    assert problems == []
    assert seen["compact_boundary"] > 5
    assert seen["refused"] > 0
