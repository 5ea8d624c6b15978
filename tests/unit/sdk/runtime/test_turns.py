"""Which message belongs to which turn, for engines that report the state of prompts and for those that do not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parley import Turn
from parley.protocol.base import decode
from parley.sdk.errors import ClaudeSDKError
from parley.sdk.runtime.message_router import MessageRouter
from parley.sdk.runtime.turns import TurnTracker
from tests.helpers.sdk import run

INIT = {"type": "system", "subtype": "init", "session_id": "s"}
ANSWER = {"type": "assistant", "message": {"role": "assistant", "content": [], "model": "m"}}
DONE = {"type": "result", "subtype": "success", "is_error": False, "session_id": "s"}


def life(uuid: str, state: str) -> dict[str, Any]:
    return {"type": "command_lifecycle", "command_uuid": uuid, "state": state}


def played(lines: list[dict[str, Any]], *asked: str) -> tuple[list[Turn], list[Any], MessageRouter]:
    """The turns of these prompts, and the messages that belong to none."""
    inbox, turns = MessageRouter(), [Turn(uuid) for uuid in asked]
    for turn in turns:
        inbox.turns.add(turn)
    for line in lines:
        inbox.receive(decode(json.dumps(line).encode()))
    inbox.finish(None, closed=False)
    return turns, run("asyncio", all_of, inbox.stream), inbox


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


def test_a_cancelled_prompt_has_no_result_and_no_error() -> None:
    [a], _, _ = played([life("a", "queued"), life("a", "cancelled")], "a")

    assert (run("asyncio", a.finish_up), a.state) == (None, "cancelled")


def test_a_turn_that_is_cut_off_says_so() -> None:
    [a], _, _ = played([life("a", "started"), INIT], "a")

    with pytest.raises(ClaudeSDKError, match="before the turn ended"):
        run("asyncio", a.finish_up)


def test_everything_may_be_asked_without_a_turn() -> None:
    _, nobodys, inbox = played([INIT, ANSWER, DONE])

    assert nobodys == [INIT, ANSWER, DONE]
    assert not inbox.is_busy


def test_two_prompts_that_wait_cannot_have_one_uuid() -> None:
    turns = TurnTracker()
    turns.add(Turn("a"))

    with pytest.raises(ValueError, match="'a' is still waiting"):
        turns.add(Turn("a"))
