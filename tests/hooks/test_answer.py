"""How answers are read."""

from __future__ import annotations

from typing import Any

import pytest

from parley.hooks.answer import MOST_REASON_CHARS, HookFailed, Output, read_output
from parley.protocol.base import UNSET


@pytest.mark.parametrize("answer", [None, UNSET, {}, {"from the future": 1}, {"hookSpecificOutput": None}])
def test_an_empty_answer_is_no_opinion(answer: Any) -> None:
    assert read_output(answer) == Output()


@pytest.mark.parametrize(
    "answer",
    ["yes", [], 1, {"continue": "no"}, {"hookSpecificOutput": []}, {"hookSpecificOutput": {"updatedInput": 1}}],
)
def test_an_answer_that_cannot_be_understood_is_a_failure(answer: Any) -> None:
    with pytest.raises(HookFailed):
        read_output(answer)


def test_of_reasons_and_messages_the_beginning_counts_and_of_what_replaces_something_the_whole() -> None:
    long = "x" * (MOST_REASON_CHARS + 5)
    specific = {"permissionDecisionReason": long, "additionalContext": long, "updatedToolOutput": long}
    read = read_output({"stopReason": long, "reason": long, "systemMessage": long, "hookSpecificOutput": specific})
    short = f"{long[:-5]}… (5 more characters)"
    assert [read.stopReason, read.reason, read.systemMessage] == [short] * 3
    said = read.hookSpecificOutput
    assert said is not None
    assert (said.permissionDecisionReason, said.additionalContext, said.updatedToolOutput) == (short, long, long)
