"""The seven properties in short; tests/programmes/properties.py tries as many examples as you like."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "programmes"))

import properties  # a programme is no package: its folder must be on the path first


@pytest.mark.parametrize("holds", properties.PROPERTIES, ids=lambda holds: holds.__name__)
def test_it_holds_for_every_rule_set_and_every_call(holds: Callable[..., None]) -> None:
    properties.check(holds, count=200)


def test_a_property_that_does_not_hold_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def every_call_is_allowed(call: object, mode: str) -> None:
        assert properties.verdict(call, [], mode) == 0  # type: ignore[arg-type]

    drawn = {"call": properties.calls, "mode": properties.modes}
    monkeypatch.setitem(properties.PROPERTIES, every_call_is_allowed, drawn)

    with pytest.raises(AssertionError):
        properties.check(every_call_is_allowed, count=50)
