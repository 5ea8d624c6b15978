"""What all tests share: a marker for every tier, async tests, no deadline for an example, and the variables."""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.helpers.sdk import ClientHarness

# The asserts of helpers explain themselves, as those of tests do.
pytest.register_assert_rewrite("tests.helpers", "tests.stress", "tests.compat")
from tests.helpers.environment import make_environment  # noqa: E402
from tests.helpers.patience import TEST_SECONDS  # noqa: E402

HERE = Path(__file__).parent
TIERS = ("unit", "session", "process", "compat", "stress")

# How long an example takes says nothing about what it shows: machines have other work to do.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    for tier in TIERS:
        config.addinivalue_line("markers", f"{tier}: tests in tests/{tier} (set by the folder)")


def pytest_itemcollected(item: pytest.Item) -> None:
    """The first folder is the tier."""
    tier = item.path.relative_to(HERE).parts[0]
    item.add_marker(tier)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Each worker imports the modules in its own order, so that it rewrites the asserts of a part of them.

    It finds those of the others in `__pycache__` by the time it comes to them, unless nothing is written there.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode:
        return
    modules = [
        ".".join(path.relative_to(HERE.parent).with_suffix("").parts)
        for word in session.config.args
        for path in sorted(Path(word.partition("::")[0]).resolve().rglob("test_*.py"))
    ]
    first = len(modules) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for module in modules[first:] + modules[:first]:
        with suppress(Exception, pytest.skip.Exception):  # the collection reports it
            importlib.import_module(module)


def pytest_collection_finish() -> None:
    """What was collected stays until the end: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


async def run_bounded(pyfuncitem: pytest.Function) -> None:
    """Run an async test, which fails if it takes too long."""
    test = pyfuncitem.obj
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    async with asyncio.timeout(TEST_SECONDS):
        await test(**given)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(run_bounded(pyfuncitem))
    return True


@pytest.fixture
def harness(tmp_path: Path) -> ClientHarness:
    """A folder and the options for an engine of either kind; tests of the SDK in several tiers use it."""
    from tests.helpers.sdk import ClientHarness

    return ClientHarness(tmp_path)


def pass_default_signals_to_children() -> None:
    """Start engines as from a terminal, also when the tests were started by `make check &` or `nohup`.

    An ignored signal stays ignored across exec, and an engine respects that. A signal with a handler becomes default
    again across exec: a handler that does nothing keeps the signal away from pytest, but not from its children.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)


def remove_variables_of_the_machine() -> None:
    variables = make_environment(os.environ)
    os.environ.clear()
    os.environ.update(variables)


remove_variables_of_the_machine()
pass_default_signals_to_children()
