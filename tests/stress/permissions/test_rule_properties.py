"""A short run of the seven properties; tests/stress/permissions/rule_properties.py tries more examples."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.stress.permissions import rule_properties


@pytest.mark.parametrize("holds", rule_properties.PROPERTIES, ids=lambda holds: holds.__name__)
def test_it_holds_for_every_rule_set_and_every_call(holds: Callable[..., None]) -> None:
    rule_properties.check(holds, count=100)


def test_a_property_that_does_not_hold_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def every_call_is_allowed(call: object, mode: str) -> None:
        assert rule_properties.verdict(call, [], mode) == 0  # type: ignore[arg-type]

    drawn = {"call": rule_properties.calls, "mode": rule_properties.modes}
    monkeypatch.setitem(rule_properties.PROPERTIES, every_call_is_allowed, drawn)

    with pytest.raises(AssertionError):
        rule_properties.check(every_call_is_allowed, count=50)
