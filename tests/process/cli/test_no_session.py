"""A session that cannot be opened: one sentence on stderr, exit 1, and a result with the same text for clients."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.environment import base_environment
from tests.helpers.patience import PATIENCE_SECONDS

PARLEY = str(Path(sys.executable).with_name("parley"))
NOBODY = ("setpriv", "--reuid", "54321", "--clear-groups", PARLEY)
"""A user id without an entry in the password database."""
AS_JSON = ("--output-format", "json")
AS_STREAM = ("--output-format", "stream-json", "--verbose")


def can_be_nobody() -> bool:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return False
    return subprocess.run([*NOBODY, "--version"], cwd="/", capture_output=True, check=False).returncode == 0


def check(code: int, stdout: str, stderr: str, reason: str, *, has_result: bool) -> None:
    assert reason in stderr
    assert "Traceback" not in stderr
    assert code == 1
    if not has_result:
        assert stdout == ""
        return
    result = json.loads(stdout)
    assert (result["type"], result["subtype"], result["is_error"]) == ("result", "error_during_execution", True)
    assert reason in result["errors"][0]


@pytest.mark.parametrize("form", [(), AS_JSON, AS_STREAM])
def test_a_config_folder_that_is_a_file(run: Any, tmp_path: Path, form: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("no folder")
    done = run("-p", "--model", "offline", *form, "say x", CLAUDE_CONFIG_DIR=str(tmp_path / "file"))
    check(done.returncode, done.stdout, done.stderr, "Not a directory", has_result=bool(form))


@pytest.mark.parametrize("form", [(), AS_JSON, AS_STREAM])
@pytest.mark.parametrize("which", [(), ("--continue",), ("--resume", "11111111-2222-4333-8444-555555555555")])
def test_a_config_folder_that_may_not_be_entered(tmp_path: Path, which: tuple[str, ...], form: tuple[str, ...]) -> None:
    if not can_be_nobody():
        pytest.skip("only root can become somebody else")
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o700)
    done = as_nobody(*which, *form, HOME="/", CLAUDE_CONFIG_DIR=str(locked))
    check(done.returncode, done.stdout, done.stderr, "", has_result=bool(form))
    assert str(locked) in done.stderr or "No conversation found" in done.stderr


@pytest.mark.parametrize("form", [(), AS_JSON, AS_STREAM])
def test_a_user_without_a_home(form: tuple[str, ...]) -> None:
    if not can_be_nobody():
        pytest.skip("only root can become somebody else")
    done = as_nobody(*form)
    check(done.returncode, done.stdout, done.stderr, "set HOME", has_result=bool(form))


def test_a_user_without_a_home_can_trust_nothing() -> None:
    if not can_be_nobody():
        pytest.skip("only root can become somebody else")
    done = subprocess.run(
        [*NOBODY, "trust", "--list"], cwd="/", env=base_environment(), capture_output=True, check=False
    )
    check(done.returncode, done.stdout.decode(), done.stderr.decode(), "set HOME", has_result=False)


def as_nobody(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NOBODY, "-p", "--model", "offline", *argv, "say x"],
        cwd="/",
        env={**base_environment(), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
