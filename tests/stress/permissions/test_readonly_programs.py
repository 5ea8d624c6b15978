"""The tables against the real programs: a sample; tests/stress/permissions/readonly_programs.py runs all."""

from __future__ import annotations

import shutil
from itertools import islice

import pytest

from tests.stress.permissions import canary, readonly_programs

pytestmark = pytest.mark.skipif(
    not canary.isolation() or not shutil.which("git", path=readonly_programs.REAL),
    reason="no way to cage the programs, or no git",
)


def test_programs_that_only_read_write_nothing() -> None:
    count, wrote = readonly_programs.run(islice(readonly_programs.commands(), 0, None, 60))

    assert wrote == []
    assert count > 40


def test_the_harness_sees_a_program_that_writes() -> None:
    wrote = ["git branch new", "sort -o out a.txt", "touch ../out/new"]

    assert readonly_programs.run(["ls", *wrote, "git status"]) == (5, wrote)


def test_every_row_is_accepted_without_flags_or_with_one_operand() -> None:
    tried = {text.split()[0] for text in readonly_programs.commands()}

    assert {"ls", "cat", "grep", "sort", "git"} <= tried
