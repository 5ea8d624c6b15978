"""What tests of the client share: both kinds of engine."""

from __future__ import annotations

import pytest

from tests.helpers.sdk import ENGINES


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Everything a program can do works with an engine in a process of its own and with one in this process."""
    return str(request.param)
