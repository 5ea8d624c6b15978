"""A short run of tests/stress/engine/jsonrpc_runs.py, which goes as far as you like, and what its laws catch."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.session.session import Session
from tests.stress.engine import jsonrpc_runs
from tests.stress.engine.schedules import Broken


def test_every_run_has_one_end_and_every_cancel_one_answer(tmp_path: Path) -> None:
    ends = jsonrpc_runs.run(tmp_path, schedules=80, seed=7)

    assert {"success", "cancelled", "-32001", "-32002"} == ends.keys()


def test_the_laws_catch_a_cancel_that_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "abort", lambda session: None)
    with pytest.raises(Broken, match="no run was cancelled before it"):
        jsonrpc_runs.run(tmp_path, schedules=80, seed=7)
