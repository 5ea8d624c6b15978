"""One test a cell of the decision table, against expectations written by hand."""

from __future__ import annotations

import runpy

import pytest

from parley.permissions import table
from parley.permissions.decision import MODES
from parley.permissions.table import RULES, SAMPLES, Sample, text, verdict
from tests.helpers import paths

DOCUMENT = paths.DOCS / "permissions.md"
WORDS = {"A": "allow", "?": "ask", "D": "deny"}

# A letter a mode: default, acceptEdits, plan, bypassPermissions, dontAsk, auto. Rows: no rule, allow, ask, deny.
ASKED = "????D?"
DENIED = "DDDDDD"
ALWAYS = "AAAAAA"
EXPECTED = {
    "reads a file in a working directory": (ALWAYS, ALWAYS, ASKED, DENIED),
    "reads a file elsewhere": ("???AD?", ALWAYS, ASKED, DENIED),
    "edits a file in a working directory": ("?A?ADA", "AA?AAA", ASKED, DENIED),
    "edits a file elsewhere": ("???AD?", "AA?AAA", ASKED, DENIED),
    "edits a protected file": ("???AD?", "???AD?", ASKED, DENIED),
    "command that only reads": (ALWAYS, ALWAYS, ASKED, DENIED),
    "command that edits in a working directory": ("?A?ADA", "AA?AAA", ASKED, DENIED),
    "any other command": ("???AD?", "AA?AAA", ASKED, DENIED),
    "command that cannot be read": ("???AD?", "AA?AAA", ASKED, DENIED),
    "command that deletes what all depends on": (ASKED, ASKED, ASKED, DENIED),
    "fetches from a public host": ("???AD?", ALWAYS, ASKED, DENIED),
    "fetches from this machine or a neighbour": ("???AD?", "???AD?", ASKED, DENIED),
    "tool of an MCP server": ("???AD?", "AA?AAA", ASKED, DENIED),
    "list of the session's own": (ALWAYS, ALWAYS, ASKED, DENIED),
    "subagent": (ALWAYS, ALWAYS, ASKED, DENIED),
    "question to a person": (ASKED, ASKED, ASKED, DENIED),
}
CELLS = [
    pytest.param(sample, rule, mode, WORDS[EXPECTED[sample.kind][row][column]], id=f"{sample.kind}, {rule}, {mode}")
    for sample in SAMPLES
    for row, rule in enumerate(RULES)
    for column, mode in enumerate(MODES)
]


@pytest.mark.parametrize(("sample", "rule", "mode", "expected"), CELLS)
def test_a_call_is_decided_as_the_table_says(sample: Sample, rule: object, mode: str, expected: str) -> None:
    assert verdict(sample, rule, mode) == expected  # type: ignore[arg-type]  # one of RULES


def test_every_kind_has_its_row() -> None:
    assert [sample.kind for sample in SAMPLES] == list(EXPECTED)


def test_the_document_is_what_the_code_says() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == text()


def test_the_module_writes_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(table.__file__, run_name="__main__")

    assert capsys.readouterr().out == text()
