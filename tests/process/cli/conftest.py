"""The real executable on a machine without keys and settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.environment import base_environment
from tests.helpers.forked import run_parley

PARLEY = str(Path(sys.executable).with_name("parley"))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A machine without keys and settings."""
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home"), **base_environment()}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Any:
    """Run the executable in a forked process (`tests/helpers/forked.py`)."""

    def start(*argv: str, stdin: str | bytes = b"", **more: str) -> subprocess.CompletedProcess[str]:
        return run_parley(argv, cwd=tmp_path, env={**environment, **more}, stdin=stdin)

    return start
