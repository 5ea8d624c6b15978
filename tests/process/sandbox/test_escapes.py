"""Attempts to escape from the sandbox (T-16): by root and by another user, from bubblewrap and from Landlock.

The attempts are in `tests/helpers/escape`. They run as one Bash command of a real session. The control runs them
without a sandbox: an attempt that does not work there could not escape from anything.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Any

import pytest

from tests.helpers import other_user, sandbox_session
from tests.helpers.escape.run import ENTRIES

USERS = ("root", "other") if os.geteuid() == 0 else ("other",)
FEWEST = 100

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is for Linux")


def play(user: str, kind: str, **variables: str) -> dict[str, Any]:
    """Run all attempts. Returns what escaped and what was tried."""
    program = sys.executable if user == "root" else other_user.find_interpreter()
    if program is None:
        pytest.skip("no interpreter that another user can run")
    argv = [program, "-m", "tests.helpers.escape.stage", kind]
    done = other_user.run(argv, as_root=user == "root", PYTHONPATH=other_user.import_path(), **variables)
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("user", USERS)
def test_the_attempts_work_without_a_sandbox(user: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    variables = {}
    if os.geteuid() == 0:
        folder = tmp_path_factory.mktemp("setuid")
        program = folder / "id"
        shutil.copy("/usr/bin/id", program)
        program.chmod(0o4755)
        for parent in (folder, *folder.parents[:-2]):
            parent.chmod(parent.stat().st_mode | 0o055)
        variables["ESCAPE_SETUID"] = str(program)
    report = play(user, "none", **variables)
    everywhere = {name for name, entry in ENTRIES.items() if not entry.needs}
    assert everywhere - set(report["escaped"]) == set()
    assert len(report["escaped"]) >= FEWEST
    assert "unknown" not in report["escaped"]


@pytest.mark.parametrize("kind", sandbox_session.KINDS)
@pytest.mark.parametrize("user", USERS)
def test_no_attempt_escapes(user: str, kind: str) -> None:
    sandbox_session.require(kind)
    report = play(user, kind)
    assert report["escaped"] == {}
    assert len(report["tried"]) >= FEWEST
