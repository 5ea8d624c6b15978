"""Signals to the executable: twice, followed by another one, and ignored ones."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.patience import PATIENCE_SECONDS
from tests.process.cli.conftest import PARLEY

LINES = ("--output-format", "stream-json", "--verbose")
ALLOWED = ("--permission-mode", "bypassPermissions")


@contextmanager
def at_work(
    folder: Path, environment: dict[str, str], command: dict[str, str], *, before: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """An engine that is running a command, which creates the file `started`."""
    with subprocess.Popen(
        [
            *before,
            PARLEY,
            "--print",
            "--model",
            "offline",
            *LINES,
            *ALLOWED,
            f"call Bash {json.dumps(command)}\nsay Ok.",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env={**environment, "IS_SANDBOX": "1"},
        text=True,
    ) as engine:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (folder / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield engine


def results(engine: subprocess.Popen[str]) -> list[Any]:
    assert engine.stdout is not None
    told = [json.loads(line) for line in engine.stdout.read().splitlines()]
    return [line.get("terminal_reason") for line in told if line["type"] == "result"]


SLOW = {"command": "trap 'sleep 0.3; exit' TERM; touch begun; while :; do sleep 0.05; done"}


def is_pending(pid: int, number: signal.Signals) -> bool:
    masks = re.findall(r"(?m)^S..Pnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return any(int(mask, 16) >> number - 1 & 1 for mask in masks)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_signal_that_comes_twice_at_once_is_one(tmp_path: Path, environment: dict[str, str]) -> None:
    """`timeout` sends its signal to the process, and then to the group that it is in.

    On a busy machine the second may come too late to be taken for the first, so there are several attempts.
    """
    told: list[Any] = []
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with at_work(folder, environment, SLOW) as engine:
            engine.send_signal(signal.SIGTERM)
            while is_pending(engine.pid, signal.SIGTERM):
                pass  # or the system merges the two signals
            engine.send_signal(signal.SIGTERM)
            told = results(engine)
            assert engine.wait(PATIENCE_SECONDS) == 143
        if told:
            break
    assert told == ["aborted_tools"]


def test_another_signal_ends_the_process(tmp_path: Path, environment: dict[str, str]) -> None:
    with at_work(tmp_path, environment, SLOW) as engine:
        # It is stopped meanwhile, so that it receives both before it does anything else.
        for number in (signal.SIGSTOP, signal.SIGHUP, signal.SIGTERM, signal.SIGCONT):
            engine.send_signal(number)
        assert results(engine) == []
        assert engine.wait(PATIENCE_SECONDS) == 143


def test_nohup_is_heeded(tmp_path: Path, environment: dict[str, str]) -> None:
    until_told = "touch begun; while [ ! -e hung-up ]; do sleep 0.02; done"
    with at_work(tmp_path, environment, {"command": until_told}, before=("nohup",)) as engine:
        engine.send_signal(signal.SIGHUP)
        (tmp_path / "hung-up").touch()
        assert results(engine) == ["completed"]
        assert engine.wait(PATIENCE_SECONDS) == 0
