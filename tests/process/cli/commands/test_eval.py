"""`parley eval` as a process: an interrupt, and its cases as tests of pytest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.helpers.forked import PARLEY

SUITE = """
[[configuration]]
name = "good"
model = "scripted:good.toml"

[[configuration]]
name = "slow"
model = "scripted:slow.toml"

[[case]]
name = "greeting"
prompt = "Say hello."
expect.result_contains = "Hello"
"""
WAIT_SECONDS = 60


def write_suite(folder: Path, slow: str) -> None:
    (folder / "good.toml").write_text('[[turn]]\ntext = "Hello."\n')
    (folder / "slow.toml").write_text(slow)
    (folder / "evals.toml").write_text(SUITE)
    (folder / "tmp").mkdir()


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(folder), "TMPDIR": str(folder / "tmp")}


def test_an_interrupt_ends_the_sessions_and_keeps_the_results(tmp_path: Path) -> None:
    write_suite(tmp_path, '[[turn]]\ndelay_ms = 300000\ntext = "Hello."\n')
    results = tmp_path / "eval-results" / "evals-1" / "results.jsonl"
    process = subprocess.Popen(
        [PARLEY, "eval", "evals.toml"], cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + WAIT_SECONDS
    while not results.exists() or results.read_bytes().count(b"\n") < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WAIT_SECONDS)

    assert process.returncode == 130
    assert "1 of 2 runs have no result: interrupted; continue with --resume" in errors
    assert list((tmp_path / "tmp").iterdir()) == []


def test_cases_are_tests_of_pytest(tmp_path: Path) -> None:
    write_suite(tmp_path, '[[turn]]\ntext = "No."\n')
    (tmp_path / "test_other.py").write_text("def test_other():\n    assert False\n")
    words = ["-q", "-p", "parley.testing.plugin", "-p", "no:cacheprovider", "--parley-evals", "evals.toml"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--parley-eval-results", "kept"],
        cwd=tmp_path,
        env=environment(tmp_path) | {"PYTEST_DEBUG_TEMPROOT": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "FAILED evals.toml::greeting[slow]" in done.stdout
    assert "run 1: result contains 'Hello': the result is 'No.'" in done.stdout
    assert len(list((tmp_path / "kept").glob("*/results.jsonl"))) == 2
