"""The tools' own tests, in a remote workspace. The whole suite: `python -m tests.stress.workspace.remote_suite`."""

from __future__ import annotations

from tests.stress.workspace.remote_suite import SHORT, run


def test_a_representative_part_of_the_tools_tests_passes_in_a_remote_workspace() -> None:
    assert run(SHORT, "-x") == 0
