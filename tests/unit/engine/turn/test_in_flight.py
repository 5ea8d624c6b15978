"""How far calls have come."""

from __future__ import annotations

import pytest

from parley.engine.turn.in_flight import CUT_OFF, InFlightCalls
from parley.engine.turn.tool_outcome import ToolOutcome
from parley.tools.base import ToolOutput

GIVEN = ToolOutcome(output=ToolOutput(content="secret"))
FAILED = ToolOutcome(output=ToolOutput(content="no such file", is_error=True))


@pytest.mark.parametrize(
    ("called", "guarded", "shown"), [(GIVEN, False, True), (GIVEN, True, False), (FAILED, True, True)]
)
def test_what_a_call_gave_that_was_cut_off_is_had_once_and_withheld_where_it_is_guarded(
    called: ToolOutcome, guarded: bool, shown: bool
) -> None:
    course = InFlightCalls()
    course.start("t1")
    if guarded:
        course.guard("t1")
    course.record_output("t1", called)
    assert course.has_started
    course.discard("t1")
    taken = course.pop_output("t1")
    assert taken is not None
    assert (taken == called, CUT_OFF in str(taken.output.content)) == (shown, not shown)
    assert (course.pop_output("t1"), course.has_started) == (None, False)


def test_nothing_is_left_of_a_call_that_is_over() -> None:
    course = InFlightCalls()
    course.start("t1")
    course.record_output("t1", GIVEN)
    course.discard("t1")
    course.finish("t1")
    assert (course.pop_output("t1"), course.has_started) == (None, False)
