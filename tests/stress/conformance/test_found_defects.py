"""The short form of found_defects.py: defects of the broken engine are found, each by the check meant for it.

Every check that public issues ask for is there.
"""

from __future__ import annotations

import pytest

from parley.conformance.runner import SuitePlan, select_checks
from tests.stress.conformance.found_defects import find_defect

FOUND = [
    ("result-doubled", "turn.one-result"),
    ("deny-ignored", "permission.deny"),
    ("answers-after-the-turn", "control.during-turn"),
    ("history-edited", "turn.prefix"),
    ("command-as-prompt", "command.unknown"),
    ("text-on-stdin-lost", "input.text"),
    ("tools-flag-ignored", "flag.tools"),
    ("limit-as-success", "flag.max-turns"),
    ("structured-output-lost", "flag.json-schema"),
    ("second-result-lost", "tool_fact.who-runs-tools"),
    ("task-end-lost", "task.background"),
    ("deny-rules-ignored", "mode.bypassPermissions"),
    ("hook-answers-ignored", "hook.stop-block"),
    ("hooks-lost", "hook.PermissionRequest"),
    ("server-failed", "mcp.get-405"),
    ("mcp-config-ignored", "mcp.revision-2026-07-28"),
    ("late-server-failed", "mcp.ready-in-time"),
    ("late-server-failed", "mcp.ready-late"),
    ("server-pending", "mcp.never-ready"),
    ("always-load-ignored", "mcp.always-load"),
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
    ("exits-after-result", "complaint.watched-work-ends"),
    ("early-prompt-lost", "complaint.reopened-prompt"),
    ("deny-rules-ignored", "complaint.rules-in-auto"),
    ("deferred-refused", "complaint.deferred-tool"),
    ("hour-ignored", "complaint.long-cache"),
    ("settings-ignored", "complaint.sandbox-holds"),
]


def test_every_check_for_a_complaint_has_a_defect() -> None:
    assert {check.id for check in select_checks(SuitePlan(suite="complaints"))} <= {check for _, check in FOUND}


@pytest.mark.parametrize(("defect", "check"), FOUND)
async def test_a_defect_is_found(defect: str, check: str) -> None:
    assert await find_defect(defect, only=(check,)) == check
