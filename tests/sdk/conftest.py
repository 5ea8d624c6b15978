"""What tests of the client share: a stage, and both kinds of engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdk.stage import ENGINES, Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Everything a program can do works with an engine in a process of its own and with one in this process."""
    return str(request.param)
