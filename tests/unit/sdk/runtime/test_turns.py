"""Which message belongs to which turn, for engines that report the state of prompts and for those that do not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parley import ClaudeSDKError, ResultError, Turn
from parley.protocol.base import decode
from parley.sdk.runtime.message_router import MessageRouter
from parley.sdk.runtime.turns import MessageStream, TurnRecord, TurnTracker
from tests.helpers.sdk import run

INIT = {"type": "system", "subtype": "init", "session_id": "s"}
ANSWER = {"type": "assistant", "message": {"role": "assistant", "content": [], "model": "m"}}
DONE = {"type": "result", "subtype": "success", "is_error": False, "session_id": "s"}


def life(uuid: str, state: str) -> dict[str, Any]:
    return {"type": "command_lifecycle", "command_uuid": uuid, "state": state}


def played(lines: list[dict[str, Any]], *asked: str) -> tuple[list[Turn[Any]], list[Any], MessageRouter]:
    """The turns of these prompts, and the messages that belong to none."""
    inbox, records = MessageRouter(), [TurnRecord(uuid) for uuid in asked]
    for record in records:
        inbox.turns.add(record)
    for line in lines:
        inbox.receive(decode(json.dumps(line).encode()))
    inbox.finish(None, closed=False)
    return [Turn(record) for record in records], run("asyncio", all_of, MessageStream(inbox.common)), inbox


async def all_of(stream: Any) -> list[Any]:
    return [message.raw async for message in stream]


def test_turns_begin_when_they_are_said_to() -> None:
    lines = [life("a", "queued"), life("b", "queued"), life("a", "started"), INIT, ANSWER, DONE, life("a", "completed")]
    lines += [life("b", "started"), INIT, DONE, life("b", "completed")]
    [a, b], nobodys, _ = played(lines, "a", "b")

    assert run("asyncio", all_of, a) == [life("a", "queued"), life("a", "started"), INIT, ANSWER, DONE]
    assert run("asyncio", all_of, b) == [life("b", "queued"), life("b", "started"), INIT, DONE]
    assert (a.state, b.state, nobodys) == ("completed", "completed", [])


def test_the_turn_of_a_notice_is_nobodys() -> None:
    notice = {**DONE, "origin": {"kind": "task-notification"}}
    lines = [life("a", "queued"), INIT, ANSWER, notice, life("a", "started"), INIT, DONE]
    [a], nobodys, _ = played(lines, "a")

    assert nobodys == [INIT, ANSWER, notice]
    assert run("asyncio", all_of, a)[-1] == DONE


def test_prompts_that_join_a_turn_share_the_rest_of_it() -> None:
    lines = [
        life("a", "started"),
        INIT,
        life("b", "queued"),
        life("b", "started"),
        ANSWER,
        life("b", "completed"),
        DONE,
    ]
    [a, b], nobodys, _ = played(lines, "a", "b")

    assert run("asyncio", all_of, b) == [
        life("b", "queued"),
        life("b", "started"),
        ANSWER,
        life("b", "completed"),
        DONE,
    ]
    assert run("asyncio", all_of, a) == [life("a", "started"), INIT, ANSWER, DONE]
    assert (a.result, nobodys) == (b.result, [])


def test_without_lives_turns_come_in_the_order_of_their_prompts() -> None:
    [a, b], nobodys, _ = played([INIT, ANSWER, DONE, INIT, DONE], "a", "b")

    assert run("asyncio", all_of, a) == [INIT, ANSWER, DONE]
    assert run("asyncio", all_of, b) == [INIT, DONE]
    assert nobodys == []


def test_a_result_may_name_its_prompts() -> None:
    named = {**DONE, "user_message_uuids": ["b"]}
    [a, b], _, _ = played([life("x", "queued"), INIT, named], "a", "b")

    assert b.result is not None
    assert a.result is None


def test_a_turn_that_is_cut_off_says_so() -> None:
    [a], _, _ = played([life("a", "started"), INIT], "a")

    with pytest.raises(ClaudeSDKError, match="before the turn ended"):
        run("asyncio", a.wait)


def test_everything_may_be_asked_without_a_turn() -> None:
    _, nobodys, inbox = played([INIT, ANSWER, DONE])

    assert nobodys == [INIT, ANSWER, DONE]
    assert not inbox.is_busy


def test_two_prompts_that_wait_cannot_have_one_uuid() -> None:
    turns = TurnTracker()
    turns.add(TurnRecord("a"))

    with pytest.raises(ValueError, match="'a' is still waiting"):
        turns.add(TurnRecord("a"))


FAILED = {**DONE, "is_error": True, "result": "API Error: 400", "api_error_status": 400}


@pytest.mark.parametrize("shortcut", ["wait", "text", "output"])
def test_a_failed_turn_raises_its_result(shortcut: str) -> None:
    [a], _, _ = played([life("a", "started"), INIT, FAILED], "a")

    with pytest.raises(ResultError, match="API Error: 400") as raised:
        run("asyncio", getattr(a, shortcut))
    assert (raised.value.api_error_status, raised.value.result_message) == (400, a.result)


def test_a_failed_turn_without_a_text_names_the_reason() -> None:
    silent = {**FAILED, "result": "", "terminal_reason": "api_error"}
    [a], _, _ = played([life("a", "started"), INIT, silent], "a")

    with pytest.raises(ResultError, match=r"^the turn failed: api_error$"):
        run("asyncio", a.wait)


def test_a_failed_turn_can_be_read_without_an_exception() -> None:
    [a], _, _ = played([life("a", "started"), INIT, FAILED], "a")

    async def read() -> tuple[Any, ...]:
        return await a.wait(check=False), await a.text(check=False)

    assert run("asyncio", read) == (a.result, "API Error: 400")


def test_a_withdrawn_prompt_has_no_result_and_no_text() -> None:
    [a], _, _ = played([life("a", "queued"), life("a", "cancelled")], "a")

    for read in (a.wait, a.text):
        with pytest.raises(ResultError, match="withdrawn"):
            run("asyncio", read)
    assert (a.result, a.state) == (None, "cancelled")


def delta(text: str, parent: str | None = None) -> dict[str, Any]:
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return {"type": "stream_event", "event": event, "session_id": "s", "uuid": "u", "parent_tool_use_id": parent}


def said(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"role": "assistant", "content": content, "model": "m"}, **more}


@pytest.mark.parametrize(
    ("lines", "pieces"),
    [
        ([delta("Hel"), delta("lo."), said("Hello."), delta("Bye."), said("Bye.")], ["Hel", "lo.", "Bye."]),
        ([said("Hello."), said("Bye.")], ["Hello.", "Bye."]),
        ([delta("inner", parent="t"), said("inner", parent_tool_use_id="t"), delta("outer")], ["outer"]),
        ([said("API Error: busy", error="rate_limit")], []),
    ],
)
def test_text_streams_as_it_arrives_and_only_once(lines: list[Any], pieces: list[str]) -> None:
    [a], _, _ = played([life("a", "started"), INIT, *lines, DONE], "a")

    async def read() -> list[str]:
        return [text async for text in a.text_stream()]

    assert run("asyncio", read) == pieces


def test_a_text_stream_of_a_failed_turn_ends_with_the_error() -> None:
    [a], _, _ = played([life("a", "started"), INIT, said("Half"), FAILED], "a")

    async def read() -> str:
        stream = a.text_stream()
        first = await anext(stream)
        with pytest.raises(ResultError):
            await anext(stream)
        return first

    assert run("asyncio", read) == "Half"
