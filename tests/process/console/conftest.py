"""Tests of the console share one browser: to start it takes longer than most of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from tests.conftest import run_bounded
from tests.helpers.console import shared


@pytest.fixture(scope="session", autouse=True)
def browser_process() -> Iterator[None]:
    yield
    shared.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test on the loop of the browser."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    shared.run(run_bounded(pyfuncitem))
    return True
