"""Compacting: on request, by itself, when a request was too long; and what becomes of it when things go wrong."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.session import Json, SessionHarness

SMALL = {"autocompact": "2000", "system_prompt": "Be brief."}
TOO_LONG = '[[turn]]\nerror = {status = 400, type = "invalid_request_error", message = "prompt is too long: 9 > 8"}\n'
REFUSED = '[[turn]]\nerror = {status = 403, type = "permission_error", message = "no"}\n'
LONG = "word " * 900


def says(*texts: str) -> str:
    return "".join(f"[[turn]]\ntext = {json.dumps(text)}\n" for text in texts)


async def prompted(harness: SessionHarness, *texts: str) -> Json:
    result: Json = {}
    for text in texts:
        harness.prompt(text)
        result = await harness.receive("result")
    return result


def notices(harness: SessionHarness) -> list[Json]:
    kinds = ("status", "compact_boundary")
    found = [line for line in harness.messages("system") if line["subtype"] in kinds]
    names = ("status", "compact_result", "compact_error")
    return [
        {name: line[name] for name in names if name in line}
        if line["subtype"] == "status"
        else line["compact_metadata"]["trigger"]
        for line in found
    ]


def sent(harness: SessionHarness) -> list[Json]:
    return harness.session.journal.history.render()


DONE = [{"status": "compacting"}, {"status": None, "compact_result": "success"}]


async def test_on_request_the_conversation_continues_from_a_summary(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says("one", "two", "<summary>Counted.</summary>", "three")) as harness:
        await prompted(harness, "first", "second")
        result = await prompted(harness, "/compact heed the numbers")
        after = await prompted(harness, "third")
        messages = sent(harness)
    assert (result["result"], result["num_turns"], result["local_command"]) == ("", 0, "compact")
    assert "terminal_reason" not in result
    assert notices(harness) == [*DONE, "manual"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    assert "Counted." in messages[0]["content"][0]["text"]
    assert "<summary>" not in messages[0]["content"][0]["text"]
    assert [message["content"][0]["text"] for message in messages[1:]] == ["two", "third", "three"]
    assert after["result"] == "three"


async def test_a_resumed_session_sends_the_same_bytes_and_its_transcript_has_everything(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says("one", "two", "Sum.", "three")) as harness:
        await prompted(harness, "first", "second", "/compact", "third")
        before, tokens = harness.session.conversation.build_request(), harness.session.journal.history.dropped_tokens
    async with SessionHarness(tmp_path, says("four"), resume=harness.session.id) as again:
        assert again.session.conversation.build_request() == before
        assert again.session.journal.history.dropped_tokens == tokens
    [path] = (tmp_path / "home/.claude/projects").rglob("*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    words = [line["message"]["content"] for line in lines if line["type"] == "user"]
    assert "first" in words
    at = next(at for at, line in enumerate(lines) if line.get("subtype") == "compact_boundary")
    boundary, summary = lines[at : at + 2]
    assert (boundary["type"], boundary["parentUuid"]) == ("system", None)
    assert boundary["logicalParentUuid"] == boundary["compactMetadata"]["preservedSegment"]["tailUuid"]
    assert (summary["parentUuid"], summary["isCompactSummary"]) == (boundary["uuid"], True)
    assert boundary["compactMetadata"]["preservedSegment"]["anchorUuid"] == summary["uuid"]


async def test_a_prompt_that_waits_is_not_mixed_with_a_command(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says("one", "Sum.", "two")) as harness:
        for text in ("first", "/compact", "second"):
            harness.prompt(text)
        results = [await harness.receive("result") for _ in range(3)]
    assert [result["result"] for result in results] == ["one", "", "two"]


async def test_too_short_a_conversation_is_left_as_it_is(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says("one")) as harness:
        result = await prompted(harness, "/compact")
    assert not result["is_error"]
    assert notices(harness) == [
        {"status": "compacting"},
        {"status": None, "compact_result": "failed", "compact_error": "too_few_groups"},
    ]


async def test_an_automatic_compaction_that_is_impossible_is_silent(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says("one"), **SMALL) as harness:
        result = await prompted(harness, LONG)
    assert result["result"] == "one"
    assert notices(harness) == []


async def test_no_room_is_made_for_a_call_that_the_budget_does_not_allow(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says(LONG, "two"), max_budget_calls=1, **SMALL) as harness:
        await prompted(harness, "first")
        result = await prompted(harness, "second")
    assert result["terminal_reason"] == "budget_exhausted"
    assert notices(harness) == []


async def test_before_a_call_that_would_not_fit_it_is_done_by_itself(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says(LONG, "Sum.", "two"), **SMALL) as harness:
        await prompted(harness, "first")
        usage = (await harness.request("get_context_usage"))["response"]["response"]
        result = await prompted(harness, "second")
        after = (await harness.request("get_context_usage"))["response"]["response"]
    assert (result["result"], result["num_turns"]) == ("two", 1)
    assert notices(harness) == [*DONE, "auto"]
    assert (usage["isAutoCompactEnabled"], usage["autoCompactThreshold"], usage["maxTokens"]) == (True, 1000, 2000)
    assert after["totalTokens"] < 500 < 1000 < usage["totalTokens"]
    [boundary] = [line for line in harness.messages("system") if line["subtype"] == "compact_boundary"]
    assert boundary["compact_metadata"]["pre_tokens"] > boundary["compact_metadata"]["post_tokens"]


async def test_in_the_middle_of_a_turn_the_request_is_not_forgotten(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text(LONG.replace(" ", "\n"))
    read = f'[[turn]]\ntools = [{{name = "Read", input = {{file_path = "{tmp_path}/big.txt"}}, id = "t1"}}]\n'

    async with SessionHarness(tmp_path, read + says("Sum.", "done"), **SMALL) as harness:
        result = await prompted(harness, "Read it to me")
        [first, *_] = sent(harness)
    assert result["result"] == "done"
    assert "Read it to me" in first["content"][0]["text"]
    assert notices(harness) == [*DONE, "auto"]


async def test_a_request_that_was_too_long_is_compacted_and_made_once_more(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says("one") + TOO_LONG + says("Sum.", "two") + TOO_LONG * 9) as harness:
        good = await prompted(harness, "first", "second")
        bad = await prompted(harness, "third")
    assert (good["result"], good["is_error"]) == ("two", False)
    assert (bad["is_error"], bad["terminal_reason"]) == (True, "prompt_too_long")


async def test_where_no_summary_can_be_had_the_end_of_the_conversation_is_kept(tmp_path: Path) -> None:
    """All requests are refused as too long, one with smaller pieces as well: what is left is cut without a model."""

    async with SessionHarness(tmp_path, says(LONG) + TOO_LONG * 4 + says("two"), **SMALL) as harness:
        await prompted(harness, "first")
        result = await prompted(harness, "second")
        [first, *_] = sent(harness)
    assert result["result"] == "two"
    assert "left out" in first["content"][0]["text"]
    assert notices(harness) == [*DONE, "auto"]


async def test_a_conversation_that_is_larger_than_the_window_is_read_in_pieces(tmp_path: Path) -> None:
    script = says(LONG * 2) + says("Part one.", "Part two.", "Part three.", "two")
    async with SessionHarness(tmp_path, script, **SMALL) as harness:
        await prompted(harness, "first")
        result = await prompted(harness, "second")
        [first, *_] = sent(harness)
    assert result["result"] == "two"
    assert "Part one.\n\nPart two.\n\nPart three." in first["content"][0]["text"]


async def test_one_failure_is_reported_and_two_in_a_row_are_an_error(tmp_path: Path) -> None:
    async with SessionHarness(
        tmp_path, says(LONG) + REFUSED + says("two") + REFUSED + says("Sum."), **SMALL
    ) as harness:
        await prompted(harness, "first")
        first = await prompted(harness, "second")
        second = await prompted(harness, "third")
    assert (first["result"], first["is_error"]) == ("two", False)
    assert (second["is_error"], second["api_error"]) == (True, "compaction_failed")
    assert notices(harness)[1] == {"status": None, "compact_result": "failed", "compact_error": "no"}


async def test_nothing_is_compacted_where_the_person_does_not_want_it(tmp_path: Path) -> None:
    harness = SessionHarness(tmp_path, says(LONG, "two"), **SMALL)
    harness.environment |= {"DISABLE_COMPACT": "1"}
    async with harness:
        await prompted(harness, "first", "second")
        result = await prompted(harness, "/compact")
    assert "disabled" in result["result"]
    assert notices(harness) == []


async def test_hooks_are_notified_of_it_and_may_forbid_it(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says("one", "two", "Sum.")) as harness:
        events = ("PreCompact", "SessionStart", "PostCompact")
        hooks = {event: [{"matcher": None, "hookCallbackIds": [event]}] for event in events}
        await harness.request("initialize", hooks=hooks)
        await prompted(harness, "first", "second")
        harness.prompt("/compact")
        inputs = []
        for body in ({"decision": "block", "reason": "not now"}, {}, {}, {}):
            asked = await harness.receive("control_request")
            inputs.append(asked["request"]["input"])
            response = {"subtype": "success", "request_id": asked["request_id"], "response": body}
            harness.send({"type": "control_response", "response": response})
            if body:
                await harness.receive("result")
                harness.prompt("/compact short")
        await harness.receive("result")
    assert notices(harness)[1]["compact_error"] == "blocked by a hook: not now"
    assert [asked["hook_event_name"] for asked in inputs] == ["PreCompact", *events]
    assert (inputs[0]["custom_instructions"], inputs[1]["custom_instructions"]) == (None, "short")
    assert (inputs[2]["source"], inputs[3]["compact_summary"]) == ("compact", "Sum.")


async def test_clear_begins_again_and_so_do_the_bill_and_a_resumed_session(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says("one", "two")) as harness:
        await prompted(harness, "first")
        cleared = await prompted(harness, "/clear")
        usage = (await harness.request("get_context_usage"))["response"]["response"]
        await prompted(harness, "second")
        before = sent(harness)
    [reset] = harness.messages("conversation_reset")
    assert (reset["trigger"], reset["uuid"]) == ("clear", reset["new_conversation_id"])
    assert (cleared["local_command"], cleared["result"], cleared["modelUsage"]) == ("clear", "", {})
    assert (usage["messageBreakdown"]["userMessageTokens"], usage["apiUsage"]) == (0, None)
    assert [message["content"][0]["text"] for message in before] == ["second", "two"]
    async with SessionHarness(tmp_path, says("three"), resume=harness.session.id) as again:
        assert sent(again) == before


async def test_after_a_compaction_the_model_is_reminded_of_its_work_list(tmp_path: Path) -> None:
    todos = "[{ content = 'Paint', status = 'pending', activeForm = 'Painting' }]"
    script = f"[[turn]]\ntools = [{{ name = 'TodoWrite', input = {{ todos = {todos} }} }}]\n" + says(
        "one", "two", "Sum."
    )
    async with SessionHarness(tmp_path, script, permission_mode="bypassPermissions") as harness:
        await prompted(harness, "first", "second", "/compact")
        last = sent(harness)[-1]["content"][-1]["text"]
    assert last == "<session-note>The work list:\n- [pending] Paint</session-note>"


# Room without a summary.


def reads(*paths: Path) -> str:
    return "".join(f"[[turn]]\ntools = [{{ name = 'Read', input = {{ file_path = '{path}' }} }}]\n" for path in paths)


async def test_old_results_are_removed_before_anything_is_summarized_and_a_resume_sends_the_same(
    tmp_path: Path,
) -> None:
    paths = [tmp_path / f"{number}.txt" for number in range(4)]
    for path in paths:
        path.write_text(f"{path.name}\n" + ("word " * 15 + "\n") * 500)
    options: Json = {"autocompact": "50000", "permission_mode": "bypassPermissions"}
    async with SessionHarness(tmp_path, reads(*paths) + says("done"), **options) as harness:
        result = await prompted(harness, "Read them")
        told = [line["content"] for line in harness.messages("system") if line["subtype"] == "informational"]
        before = harness.session.conversation.build_request()
        texts = [result_text(message) for message in sent(harness)[2::2]]
    assert result["result"] == "done"
    assert notices(harness) == []
    assert [text.startswith("[This result was removed") for text in texts] == [True, True, True, False]
    assert told == ["To make room, 3 old tool results were removed from what the model sees."]
    async with SessionHarness(tmp_path, says("more"), resume=harness.session.id, **options) as again:
        assert again.session.conversation.build_request() == before


def result_text(message: Json) -> str:
    return "".join(str(block["content"]) for block in message["content"] if block["type"] == "tool_result")


async def test_an_unchanged_file_is_referred_to_as_long_as_the_model_can_see_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("word " * 200)
    script = reads(path) * 2 + says("one") + reads(path) + says("two", "Sum.") + reads(path) + says("three")
    async with SessionHarness(tmp_path, script, permission_mode="bypassPermissions") as harness:
        await prompted(harness, "Read it twice")
        path.write_text("other " * 200)
        await prompted(harness, "It has changed", "/compact", "And now?")
        entries = harness.session.journal.log.entries()
        lines = [entry.message for entry in entries if entry.kind == "user"]
    results = [line["tool_use_result"]["type"] for line in lines if isinstance(line.get("tool_use_result"), dict)]
    assert results == ["text", "file_unchanged", "text", "text"]
