"""One test per cell of the decision table, against expectations written by hand."""

from __future__ import annotations

import pytest
from gen_permissions import RULES, SAMPLES, Sample, find_verdict

from parley.permissions.decision import MODES

WORDS = {"A": "allow", "?": "ask", "D": "deny"}

# One letter per mode: default, acceptEdits, plan, bypassPermissions, dontAsk, auto. Rows: no rule, allow, ask, deny.
ASKED = "????D?"
DENIED = "DDDDDD"
ALWAYS = "AAAAAA"
EXPECTED = {
    "reads a file in a working directory": (ALWAYS, ALWAYS, ASKED, DENIED),
    "reads a file elsewhere": ("???AD?", ALWAYS, ASKED, DENIED),
    "edits a file in a working directory": ("?A?ADA", "AA?AAA", ASKED, DENIED),
    "edits a file elsewhere": ("???AD?", "AA?AAA", ASKED, DENIED),
    "edits a protected file": ("???AD?", "???AD?", ASKED, DENIED),
    "read-only command": (ALWAYS, ALWAYS, ASKED, DENIED),
    "command that edits files in a working directory": ("?A?ADA", "AA?AAA", ASKED, DENIED),
    "any other command": ("???AD?", "AA?AAA", ASKED, DENIED),
    "command that cannot be parsed": ("???AD?", "AA?AAA", ASKED, DENIED),
    "command that deletes a critical directory": (ASKED, ASKED, ASKED, DENIED),
    "fetches from a public host": ("???AD?", ALWAYS, ASKED, DENIED),
    "fetches from a local or private address": ("???AD?", "???AD?", ASKED, DENIED),
    "MCP tool": ("???AD?", "AA?AAA", ASKED, DENIED),
    "task list of the session": (ALWAYS, ALWAYS, ASKED, DENIED),
    "subagent": (ALWAYS, ALWAYS, ASKED, DENIED),
    "question for a person": (ASKED, ASKED, ASKED, DENIED),
}
CELLS = [
    pytest.param(sample, rule, mode, WORDS[EXPECTED[sample.kind][row][column]], id=f"{sample.kind}, {rule}, {mode}")
    for sample in SAMPLES
    for row, rule in enumerate(RULES)
    for column, mode in enumerate(MODES)
]


@pytest.mark.parametrize(("sample", "rule", "mode", "expected"), CELLS)
def test_a_call_is_decided_as_the_table_says(sample: Sample, rule: object, mode: str, expected: str) -> None:
    assert find_verdict(sample, rule, mode) == expected  # type: ignore[arg-type]  # one of RULES


def test_every_kind_has_its_row() -> None:
    assert [sample.kind for sample in SAMPLES] == list(EXPECTED)
