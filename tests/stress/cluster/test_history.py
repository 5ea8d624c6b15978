"""The checker of histories finds what it is for: each history here has one fault, or none."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from tests.stress.cluster.history import OK, REFUSED, UNKNOWN, Final, Operation, check

CREATED = Operation(0, "create", "s", begin=0, end=1, outcome=OK)


def prompt(value: str, begin: float, end: float = math.inf, outcome: str = OK) -> Operation:
    return Operation(0, "prompt", "s", value, begin, end, outcome)


def rename(value: str, begin: float, end: float = math.inf, outcome: str = OK) -> Operation:
    return Operation(0, "rename", "s", value, begin, end, outcome)


def final(prompts: str = "", results: str = "", title: str = "", ran: str = "") -> Final:
    return Final({"s": []}, {"s": title}, {"s": results.split()}, {"s": prompts.split()}, Counter(ran.split()))


@pytest.mark.parametrize(
    ("operations", "end"),
    [
        ([prompt("a", 2, 3), prompt("b", 4, 5)], final("a b", "a b")),
        ([prompt("a", 2, outcome=UNKNOWN)], final("a", "a")),
        ([prompt("a", 2, outcome=UNKNOWN)], final()),
        ([prompt("a", 2, 5), prompt("b", 3, 4)], final("b a", "a b", ran="a b")),
        ([rename("x", 2, 3), rename("y", 4, outcome=UNKNOWN)], final(title="x")),
        ([rename("x", 2, 3), rename("y", 4, outcome=UNKNOWN)], final(title="y")),
        ([rename("x", 2, 9), rename("y", 3, 4)], final(title="x")),
    ],
)
def test_a_history_that_can_have_happened_passes(operations: list[Operation], end: Final) -> None:
    assert check([CREATED, *operations], end) == []


@pytest.mark.parametrize(
    ("operations", "end", "found"),
    [
        ([prompt("a", 2, 3)], final(), "the acknowledged prompt a has 0 results"),
        ([prompt("a", 2, 3)], final("a", "a a"), "the acknowledged prompt a has 2 results"),
        ([prompt("a", 2, outcome=UNKNOWN)], final("a", "a a"), "the prompt a has 2 results"),
        ([prompt("a", 2, 3)], final("a a", "a"), "the prompt a was taken 2 times"),
        ([prompt("a", 2, 3, REFUSED)], final("a", "a"), "the refused prompt a was taken"),
        ([prompt("a", 2, 3), prompt("b", 4, 5)], final("b a", "a b"), "the prompt b overtook a"),
        ([prompt("a", 2, 3)], final("a", "a", ran="a a"), "the command of the prompt a ran 2 times"),
        ([rename("x", 2, 3)], final(), "the acknowledged title 'x' is missing"),
        ([rename("x", 2, 3), rename("y", 4, 5)], final(title="x"), "but 'y' was acknowledged later"),
        ([rename("x", 2, 3, REFUSED)], final(title="x"), "the refused title 'x' was set"),
        ([Operation(0, "read", "s", "unknown_session", 2, 3, REFUSED)], final(), "was unknown to a read"),
        ([Operation(0, "delete", "s", "", 2, 3, OK)], final(), "is there again after its deletion"),
        (
            [Operation(0, "delete", "s", "", 2, 3, OK), Operation(0, "read", "s", "", 4, 5, OK)],
            final(),
            "answered a read",
        ),
    ],
)
def test_a_fault_is_found(operations: list[Operation], end: Final, found: str) -> None:
    problems = check([CREATED, *operations], end)

    assert any(found in problem for problem in problems), problems


def test_a_session_that_nobody_deleted_must_be_there() -> None:
    assert check([CREATED], Final({}, {}, {}, {})) == ["session s is missing [lost]"]
