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
    "tests/unit/tools/test_glob.py",
    "tests/process/tools/test_bash.py",
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
    "test_the_plan_file_is_used_if_the_call_has_no_plan": "it names the plan file of this machine",
    "test_a_plan_written_in_the_same_breath_is_shown": "it names the plan file of this machine",
    "test_plan_mode_is_entered_and_left_for_the_mode_before_it": "it names the plan file of this machine",
    "test_a_task_is_reported_and_its_end_starts_a_turn": "it names the output file of this machine",
    "test_where_the_temporary_folder_is_taken_output_goes_to_the_sessions_own": "output is on the server",
    "test_an_agent_with_a_memory_is_shown_what_it_wrote": "agents' project memory is left out, and reported",
    "test_an_agent_of_a_tree_that_no_one_trusts_runs_nothing": "agents of the project are left out, and reported",
    "test_agents_come_from_the_host_the_command_line_and_files": "agents of the project are left out, and reported",
    "test_a_restricted_session_has_no_worktrees": "--restricted is refused",
    "test_the_decision_and_the_wait_are_on_record": "its client may answer before a decision with a round trip",
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
