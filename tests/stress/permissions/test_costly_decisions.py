"""A short run of costly_decisions.py, which can run longer and measures time and memory."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from tests.stress.permissions import costly_decisions

MOST_CALLS = 400_000
"""Function calls in one decision: tests count calls, because they do not assert on time."""


class Counter:
    """Counts calls of Python and C functions."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> Counter:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        self.calls += event in ("call", "c_call")


def test_no_decision_takes_more_steps_than_it_may(tmp_path: Path) -> None:
    world = costly_decisions.World(tmp_path)
    rules = [world.rules(number) for number in range(len(costly_decisions.RULE_SETS))]
    world.decide(("Bash", {"command": "ls $(ls)"}), rules[0], "default")
    for call, number, mode in costly_decisions.calls(seed=1, count=150):
        with Counter() as counter:
            world.decide(call, rules[number], mode)

        assert counter.calls < MOST_CALLS, f"{mode}, rules {number}: {call[0]} {str(call[1])[:300]}"


def test_the_grammar_nests_repeats_and_lengthens() -> None:
    made = [call for call, _, _ in costly_decisions.calls(seed=1, count=300)]
    lengths = sorted(len(str(input)) for _, input in made)

    assert {"Bash", "Read", "Glob", "WebFetch"} <= {tool for tool, _ in made}
    assert lengths[-1] > 50_000
