"""Fixtures for tests of the client: both kinds of engine."""

from __future__ import annotations

import pytest

from tests.helpers.sdk import ENGINES


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Runs a test with an engine in a subprocess and with one in this process."""
    return str(request.param)
