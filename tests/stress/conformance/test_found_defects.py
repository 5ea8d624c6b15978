"""The short form of found_defects.py: three defects of the broken engine are found, each by the check meant for it."""

from __future__ import annotations

import pytest

from tests.stress.conformance.found_defects import find_defect


@pytest.mark.parametrize(
    ("defect", "check"),
    [
        ("result-doubled", "turn.one-result"),
        ("deny-ignored", "permission.deny"),
        ("answers-after-the-turn", "control.during-turn"),
    ],
)
async def test_a_defect_is_found(defect: str, check: str) -> None:
    assert await find_defect(defect, only=(check,)) == check
