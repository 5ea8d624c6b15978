"""When a query ends its engine's input: as soon as everything is answered, and not before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parley.protocol.base import decode
from parley.sdk.query import Progress
from sdk.test_turns import ANSWER, DONE, INIT, life


def after(lines: list[dict[str, Any]], *prompts: str, all_sent: bool = True) -> Progress:
    progress = Progress()
    progress.sent, progress.all_sent = max(1, len(prompts)), all_sent
    for uuid in prompts:
        progress.send(uuid)
    for line in lines:
        progress.take(decode(json.dumps(line).encode()))
    return progress


@pytest.mark.parametrize(
    ("lines", "prompts", "expected"),
    [
        ([], (), False),
        ([INIT, ANSWER], (), False),
        ([INIT, ANSWER, DONE], (), True),
        ([life("a", "started"), INIT, DONE], ("a",), False),
        ([life("a", "started"), INIT, DONE, life("a", "completed")], ("a",), True),
        ([life("a", "started"), INIT, DONE, life("a", "completed")], ("a", "b"), False),
        ([life("a", "cancelled"), life("b", "started"), INIT, DONE, life("b", "completed")], ("a", "b"), True),
        ([INIT, {**DONE, "user_message_uuid": "a"}], ("a",), True),
        ([life("a", "completed"), DONE, INIT], ("a",), False),
        # An engine that tells no lives: its results have to do.
        ([INIT, DONE], ("a", "b"), True),
        ([INIT], ("a",), False),
    ],
)
def test_a_query_is_answered_when_every_prompt_is(
    lines: list[dict[str, Any]], prompts: tuple[str, ...], expected: bool
) -> None:
    assert after(lines, *prompts).is_answered is expected


def test_nothing_is_answered_while_more_may_come() -> None:
    assert not after([INIT, DONE], all_sent=False).is_answered


def test_a_prompt_that_has_been_answered_is_not_waited_for_again() -> None:
    progress = after([life("a", "started"), INIT, DONE, life("a", "completed")], "a")
    progress.send("a")

    assert progress.is_answered


def test_a_result_that_cannot_be_read_is_an_answer_too() -> None:
    progress = after([INIT])
    progress.take(decode(b'{"type":"result","subtype":5}'))

    assert progress.is_answered
