"""The tests of the tools and the workspace, in a remote workspace.

    python -m tests.stress.workspace.remote_suite            # all of them
    python -m tests.stress.workspace.remote_suite --short    # a representative part, as in CI

The same test files run twice: as they are, on this machine, and here with PARLEY_TEST_WORKSPACE=remote, which makes the
helpers give them a workspace server in a thread and a connection to it (tests/helpers/remote_workspace.py).
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.helpers.paths import ROOT
from tests.helpers.remote_workspace import VARIABLE

SHORT = (
    "tests/unit/tools/files",
    "tests/unit/tools/search/test_glob.py",
    "tests/process/tools/shell/test_bash.py",
    "tests/session/tools",
)
WHOLE = (
    "tests/unit/tools",
    "tests/process/tools",
    "tests/session/tools",
    "tests/unit/workspace/test_local.py",
    "tests/process/workspace/search/test_search.py",
    "tests/process/workspace/test_worktrees.py",
    "tests/process/hooks/test_command.py",
    "tests/session/engine/tasks",
    "tests/session/engine/turn",
    "tests/session/engine/agents",
)
LEFT_OUT = {
    "test_a_short_file_that_is_in_memory_is_read_without_waiting": "no file is in the memory of this machine",
    "test_a_file_out_of_scope_is_not_read_without_waiting_either": "no file is in the memory of this machine",
    "test_what_an_engine_that_was_killed_left_behind_is_swept_unless_it_has_changes": "reaches into GitWorktrees",
    "test_a_rule_counts_for_either_name_of_a_place": "its rule, unlike a policy, does not follow symlinks itself",
    "test_out_of_time_with_something_found_reports_that": "its clock counts the steps of a local search",
    "test_out_of_time_with_nothing_found_is_an_error": "its clock counts the steps of a local search",
}
"""Tests of something that a remote workspace does not have, and why."""


def run(paths: tuple[str, ...], *options: str) -> int:
    left_out = " and ".join(f"not {name}" for name in LEFT_OUT)
    argv = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-k", left_out, *options, *paths]
    return subprocess.run(argv, cwd=ROOT, env={**os.environ, VARIABLE: "remote"}, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(run(SHORT if "--short" in sys.argv else WHOLE))
