"""What the messages of a reply say about their turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.http_server import loopback, silence
from tests.helpers.mcp import script
from tests.helpers.session import Json, SessionHarness

FIRST, SECOND, THIRD = (f"{number}1111111-1111-4111-8111-111111111111" for number in (1, 2, 3))
THINKING = '[[turn]]\nthinking = "let me think about it"\ntext = "Done."\nchunk_chars = 12\n'


async def test_the_first_event_and_the_first_message_name_the_prompt(tmp_path: Path) -> None:
    turns = script([("Bash", {"command": "echo hi"})], "Done.")
    async with SessionHarness(tmp_path, turns, include_partial_messages=True) as harness:
        harness.prompt("Hi", uuid=FIRST)
        await harness.receive("result")
    for kind in ("stream_event", "assistant"):
        first, *others = harness.messages(kind)
        assert (first["user_message_uuid"], first["user_message_uuids"]) == (FIRST, [FIRST])
        assert others
        assert not any("user_message_uuid" in line or "user_message_uuids" in line for line in others)


async def test_a_prompt_without_an_id_is_not_named(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script("Done."), include_partial_messages=True) as harness:
        harness.prompt("Hi")
        await harness.receive("result")
    assert not any("user_message_uuid" in line for line in harness.lines)


ASKING = "[[turn]]\ntools = [{ name = 'Bash', id = 't1', input = { command = 'touch made' } }]\n"


def marks(harness: SessionHarness, kind: str) -> list[tuple[str, list[str]]]:
    lines = [line for line in harness.messages(kind) if "user_message_uuid" in line]
    return [(line["user_message_uuid"], line["user_message_uuids"]) for line in lines]


@pytest.mark.parametrize(
    ("started_by", "expected"),
    [
        (FIRST, [(FIRST, [FIRST])]),
        (None, [(THIRD, [SECOND, THIRD])]),  # as a notification does, which is not of the client
    ],
)
async def test_the_prompt_that_is_answered_is_named_again_only_if_it_changes(
    tmp_path: Path, started_by: str | None, expected: Any
) -> None:
    options: Json = {"permission_prompt_tool": "stdio", "include_partial_messages": True}
    async with SessionHarness(tmp_path, ASKING + script("Done."), **options) as harness:
        harness.prompt("Hi", **({} if started_by is None else {"uuid": started_by}))
        asked = await harness.receive("control_request")
        harness.prompt("And", uuid=SECOND)
        harness.prompt("also", uuid=THIRD)
        deny(harness, asked)
        result = await harness.receive("result")
    assert marks(harness, "assistant") == marks(harness, "stream_event") == expected
    assert result["user_message_uuid"] == expected[0][0]
    assert result["user_message_uuids"] == [*filter(None, [started_by]), SECOND, THIRD]


async def test_of_prompts_that_start_a_turn_together_the_last_is_answered(tmp_path: Path) -> None:
    options: Json = {"permission_prompt_tool": "stdio", "include_partial_messages": True}
    async with SessionHarness(tmp_path, ASKING + script("Done."), **options) as harness:
        harness.prompt("Hi")
        await harness.receive("control_request")
        harness.prompt("And", uuid=SECOND)
        harness.prompt("also", uuid=THIRD)
        await harness.request("interrupt")
        await harness.receive("result")
        await harness.receive("result")
    expected = [(THIRD, [SECOND, THIRD])]
    assert marks(harness, "assistant") == marks(harness, "stream_event") == marks(harness, "result") == expected


async def test_the_progress_of_thinking_is_counted(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, THINKING, include_partial_messages=True) as harness:
        harness.prompt("Hi", uuid=FIRST)
        await harness.receive("result")
        session_id = harness.session.id
    counted = [line for line in harness.messages("system") if line["subtype"] == "thinking_tokens"]
    assert [{key: line[key] for key in line if key != "uuid"} for line in counted] == [
        {
            "type": "system",
            "subtype": "thinking_tokens",
            "estimated_tokens": total,
            "estimated_tokens_delta": 3,
            "user_message_uuid": FIRST,
            "session_id": session_id,
        }
        for total in (3, 6)
    ]
    assert len({line["uuid"] for line in counted}) == 2


async def test_thinking_is_not_counted_for_clients_without_partial_messages(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, THINKING) as harness:
        harness.prompt("Hi")
        await harness.receive("result")
    assert not any(line.get("subtype") == "thinking_tokens" for line in harness.lines)


async def test_a_successful_result_says_when_its_turn_got_how_far(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script("Done.", "Again.")) as harness:
        harness.prompt("Hi", uuid=FIRST)
        result = await harness.receive("result")
        harness.prompt("Hi")
        unnamed = await harness.receive("result")
    steps = ("time_to_request_ms", "ttft_stream_ms", "first_content_frame_ms", "duration_ms")
    times = [result[step] for step in steps]
    assert times == sorted(times)
    assert times[0] > 0
    assert result["ttft_ms"] == result["ttft_stream_ms"]
    assert 1_800_000_000_000 < result["request_sent_wall_ms"] < 1_800_000_100_000
    assert "request_sent_wall_ms" not in unnamed


async def test_an_error_has_no_timings_of_its_own_but_its_origin(tmp_path: Path) -> None:
    origin = {"kind": "peer", "from": "another"}
    async with SessionHarness(tmp_path, "[[turn]]\nerror = { status = 400 }\n", max_turns=1) as harness:
        harness.prompt(" ", origin=origin)
        refused = await harness.receive("result")
    assert refused["subtype"] == "error_during_execution"
    assert refused["origin"] == origin
    assert "time_to_request_ms" not in refused


@pytest.mark.parametrize("reason", [None, "host_draining"])
async def test_a_turn_that_continues_after_a_restart_says_why(tmp_path: Path, reason: str | None) -> None:
    async with SessionHarness(tmp_path, ASKING, permission_prompt_tool="stdio") as killed:
        killed.prompt("Go")
        await killed.receive("control_request")
        session_id = killed.session.id
        await killed.crash()
        killed.close = _nothing  # type: ignore[method-assign]  # it has ended
    options: Json = {"permission_prompt_tool": "stdio", "resume": session_id, "include_partial_messages": True}
    harness = SessionHarness(tmp_path, script("Done.", "More."), **options)
    if reason is not None:
        harness.environment["CLAUDE_CODE_RESUME_REASON"] = reason
    async with harness:
        await harness.request("initialize")
        asked = await harness.receive("control_request")
        answer = {
            "subtype": "success",
            "request_id": asked["request_id"],
            "response": {"behavior": "deny", "message": ""},
        }
        harness.send({"type": "control_response", "response": answer})
        result = await harness.receive("result")
        harness.prompt("More")
        other = await harness.receive("result")
    expected = reason or "interrupted_turn"
    assert result["resume_reason"] == expected
    assert "resume_reason" not in other
    for kind in ("assistant", "stream_event"):
        assert [line["resume_reason"] for line in harness.messages(kind) if "resume_reason" in line] == [expected]


def deny(harness: SessionHarness, asked: Json) -> None:
    reply = {"behavior": "deny", "message": "No."}
    answer = {"subtype": "success", "request_id": asked["request_id"], "response": reply}
    harness.send({"type": "control_response", "response": answer})


async def _nothing() -> None:
    await asyncio.sleep(0)


async def test_a_failed_turn_of_a_resumed_session_says_why_it_ran(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ASKING, permission_prompt_tool="stdio") as killed:
        killed.prompt("Go")
        await killed.receive("control_request")
        session_id = killed.session.id
        await killed.crash()
        killed.close = _nothing  # type: ignore[method-assign]  # it has ended
    options: Json = {"permission_prompt_tool": "stdio", "resume": session_id, "max_turns": 1}
    async with SessionHarness(tmp_path, script([("Bash", {"command": "echo hi"})]), **options) as harness:
        await harness.request("initialize")
        asked = await harness.receive("control_request")
        answer = {
            "subtype": "success",
            "request_id": asked["request_id"],
            "response": {"behavior": "deny", "message": ""},
        }
        harness.send({"type": "control_response", "response": answer})
        result = await harness.receive("result")
    assert (result["subtype"], result["resume_reason"]) == ("error_max_turns", "interrupted_turn")


async def test_a_retry_says_that_the_backend_sent_nothing(tmp_path: Path) -> None:
    async with loopback(silence(started=False), silence(started=False)) as server:
        harness = SessionHarness(tmp_path, "", model="claude-opus-5-5")
        harness.environment |= {
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "k",
            "API_TIMEOUT_MS": "200",
            "CLAUDE_CODE_MAX_RETRIES": "1",
        }
        async with harness:
            harness.prompt("Hi")
            result = await harness.receive("result")
    [retry] = [line for line in harness.messages("system") if line["subtype"] == "api_retry"]
    assert retry["no_response"] == {"waited_ms": 200, "retry_wait_ms": 200}
    assert result["terminal_reason"] == "api_error"


async def test_another_failure_says_nothing_about_waiting(tmp_path: Path) -> None:
    busy: Any = "[[turn]]\nerror = { status = 529, type = 'overloaded_error', retry_after_seconds = 0 }\n"
    async with SessionHarness(tmp_path, busy + script("Done.")) as harness:
        harness.prompt("Hi")
        await harness.receive("result")
    [retry] = [line for line in harness.messages("system") if line["subtype"] == "api_retry"]
    assert "no_response" not in retry
