"""The short form of found_defects.py: defects of the broken engine are found, each by the check meant for it.

Every check of `complaints.toml` is there.
"""

from __future__ import annotations

import pytest

from tests.stress.conformance.found_defects import find_defect


@pytest.mark.parametrize(
    ("defect", "check"),
    [
        ("result-doubled", "turn.one-result"),
        ("deny-ignored", "permission.deny"),
        ("answers-after-the-turn", "control.during-turn"),
        ("early-success", "complaint.resume-one-result"),
        ("system-changes", "complaint.resume-prefix"),
        ("cap-as-schema", "complaint.turn-cap"),
        ("background-killed", "complaint.background-finishes"),
        ("structured-output-lost", "complaint.structured-output-stays"),
        ("idle-tools", "complaint.no-idle-tools"),
        ("waits-for-stdin", "complaint.open-stdin"),
        ("error-exits-zero", "complaint.failure-is-told"),
        ("settings-ignored", "complaint.hooks-in-print-mode"),
        ("settings-ignored", "complaint.hooks-know-the-mode"),
        ("reminders-sent-back", "complaint.hidden-texts"),
        ("result-emptied", "complaint.stop-hook-keeps-result"),
        ("hook-answers-ignored", "complaint.agent-input-changed"),
        ("hooks-lost", "complaint.agent-hooks"),
        ("hook-answers-ignored", "complaint.agent-context"),
        ("agent-again", "complaint.agent-runs-once"),
        ("agent-result-lost", "complaint.silent-agent"),
        ("image-unchecked", "complaint.broken-image"),
        ("agents-flag-ignored", "complaint.long-input"),
        ("sources-ignored", "complaint.isolation"),
        ("usage-wrong", "result.numbers"),
        ("model-usage-wrong", "result.numbers"),
        ("duration-wrong", "result.durations"),
        ("kept-anyway", "flag.not-kept"),
    ],
)
async def test_a_defect_is_found(defect: str, check: str) -> None:
    assert await find_defect(defect, only=(check,)) == check
