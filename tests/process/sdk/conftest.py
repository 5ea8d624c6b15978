"""Fixtures for tests of the client: every kind of engine."""

from __future__ import annotations

import pytest

from tests.helpers.sdk import ENGINES


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Runs a test with an engine in a subprocess, in this process, and in a worker process."""
    return str(request.param)
