"""Fixtures for pytest, for those who test their own agents: `pytest_plugins = ["parley.testing.plugin"]`.

    model_server    starts servers that play scripts or tapes; they end with the test
    parley          the path of the executable
    parley_home     an environment without any key or setting of the person who runs the tests

Not loaded by itself: a test run that does not name it pays nothing for it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from parley.models.fake.script import Script, read_script
from parley.models.faults.catalog import Plan
from parley.testing.model_server import ModelServer, running
from parley.testing.source import Source, from_tape

Start = Callable[..., ModelServer]


@pytest.fixture
def model_server() -> Iterator[Start]:
    """`model_server('[[turn]]…')`, `model_server(script)` or `model_server(replay=path)`, each with `faults=[…]`."""
    with ExitStack() as servers:

        def start(
            script: str | Script | None = None,
            *,
            replay: str | os.PathLike[str] | None = None,
            in_order: bool = False,
            faults: Sequence[str] = (),
        ) -> ModelServer:
            if (script is None) == (replay is None):
                raise TypeError("model_server takes a script or replay=, one of them")
            source: Script | Source
            if replay is not None:
                source = from_tape(Path(replay), in_order=in_order)
            else:
                source = read_script(script, "of the test") if isinstance(script, str) else script or Script()
            return servers.enter_context(running(source, plan=Plan.read(faults, "faults")))

        yield start


@pytest.fixture(scope="session")
def parley() -> str:
    """The executable of this environment, else the one on the PATH."""
    beside = Path(sys.executable).with_name("parley")
    found = str(beside) if beside.exists() else shutil.which("parley")
    if found is None:
        pytest.fail("there is no parley beside this Python or on the PATH", pytrace=False)
    return found


@pytest.fixture
def parley_home(tmp_path: Path) -> dict[str, str]:
    """An environment for the executable: a home of its own, and nothing of yours but the PATH."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    return {"HOME": str(home), "PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
