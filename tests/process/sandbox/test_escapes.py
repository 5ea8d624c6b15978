"""Attempts to escape from the sandbox (T-16): by root and by another user, from bubblewrap and from Landlock.

The attempts are in `tests/helpers/escape`. They run as one Bash command of a real session. The control runs them
without a sandbox: an attempt that does not work there could not escape from anything.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import paths, sandbox_session
from tests.helpers.environment import base_environment
from tests.helpers.escape.run import ENTRIES
from tests.helpers.patience import TEST_SECONDS

OTHER_USER = 65534
USERS = ("root", "other") if os.geteuid() == 0 else ("other",)
FEWEST = 100

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is for Linux")


@functools.cache
def find_interpreter() -> str | None:
    """An interpreter of our version that the other user can run."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for program in (sys.executable, shutil.which(name, path="/usr/bin:/usr/local/bin")):
        if program is None:
            continue
        with contextlib.suppress(PermissionError):
            if run_as("other", [program, "-c", "import ctypes"]).returncode == 0:
                return program
    return None


def run_as(user: str, argv: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    identity: dict[str, Any] = {}
    if user == "other" and os.geteuid() == 0:
        identity = {"user": OTHER_USER, "group": OTHER_USER, "extra_groups": []}
    return subprocess.run(
        argv,
        cwd="/",
        env={**base_environment(), "PYTHONDONTWRITEBYTECODE": "1", **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=TEST_SECONDS,
        **identity,
    )


def play(user: str, kind: str, **variables: str) -> dict[str, Any]:
    """Run all attempts. Returns what escaped and what was tried."""
    program = sys.executable if user == "root" else find_interpreter()
    if program is None:
        pytest.skip("no interpreter that another user can run")
    path = os.pathsep.join(str(entry) for entry in (paths.ROOT, paths.SOURCE, *site_packages()))
    done = run_as(user, [program, "-m", "tests.helpers.escape.stage", kind], PYTHONPATH=path, **variables)
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def site_packages() -> list[Path]:
    import msgspec

    return [Path(msgspec.__file__).parents[1]]


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
