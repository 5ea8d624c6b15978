"""Prompts that wait for their turn."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import pytest

from parley.engine.session.prompts import Prompt, PromptQueue, RejectedPrompt, ResumedTurnItem, join_content
from parley.protocol.base import Json

T = TypeVar("T")


def prompt(name: str) -> Prompt:
    return Prompt(content=[text(name)], uuid=name)


def text(text: str, **more: object) -> Json:
    return {"type": "text", "text": text, **more}


def filled(*items: Prompt | RejectedPrompt, closed: bool = False) -> PromptQueue:
    inbox = PromptQueue()
    for item in items:
        inbox.put(item)
    if closed:
        inbox.close()
    return inbox


A, B, C = map(prompt, "abc")
BAD = RejectedPrompt("no content")
Taken = list[Prompt] | RejectedPrompt | ResumedTurnItem | None


async def take_all(inbox: PromptQueue, together: bool) -> list[Taken]:
    taken: list[Taken] = []
    while (item := await inbox.take(together)) is not None:
        taken.append(item)
    return taken


@pytest.mark.parametrize(
    ("together", "taken"),
    [
        (False, [[A], [B], BAD, [C]]),
        (True, [[A, B], BAD, [C]]),
    ],
)
async def test_prompts_are_taken_in_their_order_alone_or_together(together: bool, taken: list[Taken]) -> None:
    assert await take_all(filled(A, B, BAD, C, closed=True), together) == taken


async def test_a_prompt_that_cannot_be_read_keeps_its_place() -> None:
    assert await take_all(filled(BAD, BAD, A, closed=True), together=True) == [BAD, BAD, [A]]


async def test_an_empty_inbox_waits_for_the_next_prompt() -> None:
    inbox = PromptQueue()
    taking = asyncio.create_task(inbox.take(merge=False))
    done, _ = await asyncio.wait({taking}, timeout=0)
    inbox.put(A)
    assert (bool(done), await taking) == (False, [A])


async def test_closing_ends_the_wait() -> None:
    inbox = PromptQueue()
    taking = asyncio.create_task(inbox.take(merge=False))
    await asyncio.wait({taking}, timeout=0)
    inbox.close()
    assert await taking is None


async def test_what_waited_when_it_closed_is_still_taken() -> None:
    assert [await inbox.take(False) for inbox in [filled(A, B, closed=True)] for _ in range(4)] == [
        [A],
        [B],
        None,
        None,
    ]


async def test_a_waiting_prompt_can_be_taken_back_once() -> None:
    async def work() -> tuple[list[bool], list[str], int]:
        inbox = filled(A, BAD, B, C)
        return (
            [inbox.remove("b"), inbox.remove("b"), inbox.remove("x")],
            [prompt.uuid for prompt in inbox.list_prompts()],
            len(inbox),
        )

    assert await work() == ([True, False, False], ["a", "c"], 3)


async def test_a_prompt_that_was_taken_does_not_wait_any_more() -> None:
    inbox = filled(A, B)
    await inbox.take(merge=False)
    assert (inbox.remove("a"), [prompt.uuid for prompt in inbox.list_prompts()]) == (False, ["b"])


IMAGE: Json = {"type": "image", "source": {}}


@pytest.mark.parametrize(
    ("contents", "joined"),
    [
        ([], []),
        ([[text("a")]], [text("a")]),
        ([[text("a")], [text("b")], [text("c")]], [text("a\nb\nc")]),
        ([[text("a"), text("b")], [text("c"), text("d")]], [text("a"), text("b\nc"), text("d")]),
        ([[text("a"), IMAGE], [text("b")]], [text("a"), IMAGE, text("b")]),
        ([[text("a")], [IMAGE, text("b")], [text("c")]], [text("a"), IMAGE, text("b\nc")]),
        ([[IMAGE], [IMAGE]], [IMAGE, IMAGE]),
        ([[text("a", cache_control={})], [text("b")]], [text("a\nb", cache_control={})]),
        ([[], [text("a")], []], [text("a")]),
    ],
)
def test_prompts_are_joined_line_by_line_with_other_blocks_in_their_places(
    contents: list[list[Json]], joined: list[Json]
) -> None:
    prompts = [Prompt(content=content, uuid=str(number)) for number, content in enumerate(contents)]
    before = [list(content) for content in contents]

    assert join_content(prompts) == joined
    assert [prompt.content for prompt in prompts] == before


def test_prompts_that_are_put_back_are_the_first_of_their_priority_again() -> None:
    inbox = PromptQueue()
    for uuid, rank in (("a", 1), ("b", 1), ("c", 1)):
        inbox.put(Prompt(content=[], uuid=uuid, priority=rank))
    taken = inbox.take_prompts()
    inbox.put(Prompt(content=[], uuid="later", priority=1))
    inbox.put(Prompt(content=[], uuid="now", priority=0))

    inbox.put_back(taken)

    assert [prompt.uuid for prompt in inbox.list_prompts()] == ["now", "a", "b", "c", "later"]
