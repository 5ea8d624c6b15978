"""Rows of summaries: what is merged when, what they cover, and which messages stay."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.context.history import is_paired, message_tokens, tokens_from_chars
from parley.memory.base import Summary
from parley.memory.summarizer import (
    FAN,
    INTRO,
    ROW_SHARE,
    TAIL_SHARE,
    find_due,
    find_summaries,
    find_tail_start,
    find_unsummarized,
    format_summaries,
    merge_summaries,
    row_tokens,
    summary_records,
    summary_tokens,
)
from parley.stores.base import Entry
from tests.unit.engine.context.test_history import (
    assistant,
    boundary,
    call,
    conversations,
    heard,
    result,
    text,
    user,
)


def summary(order: int, first: int, last: int, words: str = "x") -> Summary:
    return Summary(order=order, first=first, last=last, text=words)


@pytest.mark.parametrize(
    ("orders", "place"),
    [
        ((), None),
        ((1, 1, 1), None),
        ((1, 1, 1, 1), slice(0, 4)),
        ((2, 2, 1, 1, 1, 1), slice(2, 6)),
        ((2, 2, 2, 2, 1), slice(0, 4)),
        ((3, 3, 3, 2, 2, 2, 1, 1, 1), None),
    ],
)
def test_a_full_hand_of_one_order_becomes_one_of_the_next(orders: tuple[int, ...], place: slice | None) -> None:
    row = [summary(order, at, at) for at, order in enumerate(orders)]

    assert find_due(row, 1_000) == place


def test_a_row_that_is_too_long_is_merged_from_its_beginning() -> None:
    row = [summary(2, 0, 9, "a" * 400), summary(1, 10, 12, "b" * 400)]

    assert find_due(row, 1_000) is None
    assert find_due(row, 100) == slice(0, 2)
    assert find_due(row[:1], 1) is None
    assert merge_summaries(row, "both") == summary(3, 0, 12, "both")


@given(st.lists(st.integers(1, 400), min_size=1, max_size=200), st.integers(400, 4_000))
def test_a_row_covers_everything_once_in_its_order_and_stays_within_its_room(sizes: list[int], room: int) -> None:
    row: list[Summary] = []
    most_chars = summary_tokens(room) * 4
    for at, size in enumerate(sizes):
        row.append(summary(1, at, at, "x" * min(size, most_chars)))
        while (place := find_due(row, row_tokens(room))) is not None:
            row[place] = [merge_summaries(row[place], "y" * most_chars)]
        assert row[0].first == 0
        assert row[-1].last == at
        assert all(one.last + 1 == other.first and one.order >= other.order for one, other in pairwise(row))
        assert all(sum(each.order == order for each in row) < FAN for order in {each.order for each in row})
        assert len(row) == 1 or sum(tokens_from_chars(len(block)) for block in format_summaries(row)) <= row_tokens(
            room
        )


def test_a_row_is_found_again_in_the_line_that_reports_it() -> None:
    row = [summary(2, 0, 40, "One.\nTwo."), summary(1, 41, 50, "")]
    told = user("s", *map(text, [INTRO, *format_summaries(row), "The last request", "[date]"]))
    history = heard(
        user("1", text("one")), boundary(preserved_segment={"anchor_uuid": "s"}, distilled=summary_records(row)), told
    )

    assert find_summaries(history.list_entries()) == row
    assert find_summaries(heard(user("1", text("one"))).list_entries()) == []
    assert find_summaries([]) == []


def test_a_line_of_summaries_is_not_distilled_again() -> None:
    row = [summary(1, 0, 3)]
    told = user("s", *map(text, [INTRO, *format_summaries(row)]))
    behind = (assistant("5", text("five")), user("6", text("six")))
    history = heard(boundary(preserved_segment={"anchor_uuid": "s"}, distilled=summary_records(row)), told, *behind)

    assert [line.uuid for line in find_unsummarized(history.list_entries(), frozenset({"6"}))] == ["5"]


def test_as_much_stays_as_there_is_room_for() -> None:
    words = [assistant(f"a{at}", text("x" * 400)) if at % 2 else user(f"u{at}", text("x" * 400)) for at in range(20)]

    assert find_tail_start(heard(*words).list_messages(), 1_000) == 16
    assert find_tail_start(heard(*words).list_messages(), 100_000) == 1
    assert find_tail_start(heard(*words).list_messages(), 0) == 20
    working = (user("1", text("go")), assistant("2", call("a")), user("3", result("a")), assistant("4", text("done")))
    assert find_tail_start(heard(*working).list_messages(), 20) == 3


@given(conversations(), st.integers(0, 600))
def test_what_stays_is_paired_and_has_room(entries: list[Entry], room: int) -> None:
    spoken = heard(*entries).list_messages()
    at = find_tail_start(spoken, room)
    if at is None:
        return
    assert at >= 1
    assert is_paired(spoken[at:])
    is_prompt = at == len(spoken) - 1 and spoken[at].role == "user"
    assert is_prompt or sum(map(message_tokens, spoken[at:])) <= room * TAIL_SHARE


def test_the_shares_leave_room() -> None:
    assert ROW_SHARE + TAIL_SHARE < 0.8
