"""The page of `make drift`, from a real report of pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from parity.drift_page import read_outcomes, render_drift

from tests.helpers.environment import base_environment

MODULES = {
    "test_messages.py": "def test_good(): pass\ndef test_bad(): assert 1 == 2, 'one\\nline'\n",
    "test_ported.py": "import pytest\ndef test_runs(): raise OSError('gone')\ndef test_left(): pytest.skip()\n",
}


def test_names_checks_and_programs_that_fail_are_on_one_page(tmp_path: Path) -> None:
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junit-xml=report.xml", "."]
    subprocess.run(command, cwd=tmp_path, env=base_environment(), capture_output=True, check=False)

    page = render_drift("sdk 9.9", ["tools: 'New' is declared and has no row"], read_outcomes(tmp_path / "report.xml"))

    assert page == (
        "# Drift: sdk 9.9\n\n"
        "## Declared names: 1 open\n\n"
        "- tools: 'New' is declared and has no row\n\n"
        "## Checks: 1 of 2 fail\n\n"
        "- `test_messages.py::test_bad`: AssertionError: one line assert 1 == 2\n\n"
        "## Programs: 1 of 2 fail\n\n"
        "- `test_ported.py::test_runs`: OSError: gone\n"
    )


def test_a_page_without_failures_says_so() -> None:
    parts = ["# Drift: sdk 9.9", "## Declared names: 0 open", "## Checks: 0 of 0 fail", "## Programs: 0 of 0 fail"]
    assert render_drift("sdk 9.9", [], []) == "\n\n".join(parts) + "\n"
