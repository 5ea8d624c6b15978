"""A short run of an evaluation that is killed and resumed."""

from __future__ import annotations

from pathlib import Path

from tests.stress.evals import many_cases


def test_a_killed_evaluation_resumes_without_running_anything_twice(tmp_path: Path) -> None:
    seen = many_cases.storm(tmp_path, cases=15, configurations=2)

    assert seen.problems == []
