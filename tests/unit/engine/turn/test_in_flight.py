"""How far calls have come."""

from __future__ import annotations

import pytest

from parley.engine.turn.in_flight import CUT_OFF, Course
from parley.engine.turn.tool_outcome import Called
from parley.tools.base import Result

GIVEN = Called(result=Result(content="secret"))
FAILED = Called(result=Result(content="no such file", is_error=True))


@pytest.mark.parametrize(
    ("called", "guarded", "shown"), [(GIVEN, False, True), (GIVEN, True, False), (FAILED, True, True)]
)
def test_what_a_call_gave_that_was_cut_off_is_had_once_and_withheld_where_it_is_guarded(
    called: Called, guarded: bool, shown: bool
) -> None:
    course = Course()
    course.begin("t1")
    if guarded:
        course.guard("t1")
    course.ran("t1", called)
    assert course.has_begun
    course.leave("t1")
    taken = course.take("t1")
    assert taken is not None
    assert (taken == called, CUT_OFF in str(taken.result.content)) == (shown, not shown)
    assert (course.take("t1"), course.has_begun) == (None, False)


def test_nothing_is_left_of_a_call_that_is_over() -> None:
    course = Course()
    course.begin("t1")
    course.ran("t1", GIVEN)
    course.leave("t1")
    course.end("t1")
    assert (course.take("t1"), course.has_begun) == (None, False)
