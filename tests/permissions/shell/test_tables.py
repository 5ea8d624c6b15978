"""The tables against the real programs: a sample; tests/programmes/readers.py runs all."""

from __future__ import annotations

import shutil
import sys
from itertools import islice
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "programmes"))

import canary  # a programme is no package: its folder must be on the path first
import readers

pytestmark = pytest.mark.skipif(
    not canary.isolation() or not shutil.which("git", path=readers.REAL),
    reason="no way to cage the programs, or no git",
)


def test_programs_that_only_read_write_nothing() -> None:
    count, wrote = readers.run(islice(readers.commands(), 0, None, 25))

    assert wrote == []
    assert count > 100


def test_the_harness_sees_a_program_that_writes() -> None:
    wrote = ["git branch new", "sort -o out a.txt", "touch ../out/new"]

    assert readers.run(["ls", *wrote, "git status"]) == (5, wrote)


def test_every_row_is_accepted_without_flags_or_with_one_operand() -> None:
    tried = {text.split()[0] for text in readers.commands()}

    assert {"ls", "cat", "grep", "sort", "git"} <= tried
