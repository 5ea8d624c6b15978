"""A query closes the engine's input when everything is answered, and not before. Invalid prompts are refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from parley import Client, Message, ResultMessage, query, query_sync
from parley.protocol.base import decode
from parley.sdk.runtime.query_stream import QueryProgress
from tests.helpers.sdk import ClientHarness, run
from tests.unit.sdk.runtime.test_turns import ANSWER, DONE, INIT, life


def after(lines: list[dict[str, Any]], *prompts: str, all_sent: bool = True) -> QueryProgress:
    progress = QueryProgress()
    progress.sent, progress.all_sent = max(1, len(prompts)), all_sent
    for uuid in prompts:
        progress.add(uuid)
    for line in lines:
        progress.update(decode(json.dumps(line).encode()))
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
        # An engine that does not report the state of prompts: results are counted instead.
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
    progress.add("a")

    assert progress.is_answered


def test_a_result_that_cannot_be_read_is_an_answer_too() -> None:
    progress = after([INIT])
    progress.update(decode(b'{"type":"result","subtype":5}'))

    assert progress.is_answered


def said(text: str) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}}


async def texts() -> AsyncIterator[Any]:
    yield "Hi"


async def no_messages() -> AsyncIterator[Any]:
    yield said("Hi")
    yield {"type": "user", "message": 3}


async def lines_then_failure() -> AsyncIterator[Any]:
    yield said("Hi")
    raise LookupError("the queue is gone")


async def failure() -> AsyncIterator[Any]:
    raise LookupError("the queue is gone")
    yield


async def cancelled() -> AsyncIterator[Any]:
    yield said("Hi")
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("prompts", "kind", "words", "answers"),
    [
        (texts, TypeError, "must be a message.*'Hi'", 0),
        (no_messages, ValueError, "not a valid message", 1),
        (lines_then_failure, LookupError, "the queue is gone", 1),
        (failure, LookupError, "the queue is gone", 0),
        (cancelled, RuntimeError, "cancelled", 1),
    ],
)
def test_what_goes_wrong_in_the_prompts_is_raised_when_those_before_are_answered(
    harness: ClientHarness, engine: str, prompts: Any, kind: type[Exception], words: str, answers: int
) -> None:
    heard: list[Message] = []

    async def play() -> None:
        async for message in query(prompt=prompts(), options=harness.options(engine)):
            heard.append(message)  # noqa: PERF401  # messages before the exception must be kept

    with pytest.raises(kind, match=words):
        run("asyncio", play)

    assert [one.result for one in heard if isinstance(one, ResultMessage)] == ["Hello."] * answers


@pytest.mark.parametrize("prompt", [None, 3, [said("Hi")], iter([said("Hi")])], ids=["none", "number", "list", "iter"])
def test_what_is_not_a_prompt_is_refused_at_once(harness: ClientHarness, prompt: Any) -> None:
    for ask in (query, query_sync):
        with pytest.raises(TypeError, match="prompt must be a string or an async iterable"):
            ask(prompt=prompt, options=harness.options("local"))

    async def play() -> None:
        async with Client(harness.options("local")) as client:
            with pytest.raises(TypeError, match="prompt must be a string or an async iterable"):
                await client.query(prompt)

    run("asyncio", play)
