"""pytest fixtures to test your own agents: `pytest_plugins = ["parley.testing.plugin"]`.

    model_server    starts servers that play scripts or recordings; they stop after the test
    parley          the path of the executable
    parley_home     an environment without your keys and settings

The plugin is not loaded automatically.
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
from parley.models.faults.catalog import FaultPlan
from parley.testing.model_server import ModelServer, running
from parley.testing.source import AnswerSource, from_recording

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
                raise TypeError("model_server takes either a script or replay=")
            source: Script | AnswerSource
            if replay is not None:
                source = from_recording(Path(replay), in_order=in_order)
            else:
                source = read_script(script, "in the test") if isinstance(script, str) else script or Script()
            return servers.enter_context(running(source, plan=FaultPlan.read(faults, "faults")))

        yield start


@pytest.fixture(scope="session")
def parley() -> str:
    """The executable of this environment, or the one in PATH."""
    beside = Path(sys.executable).with_name("parley")
    found = str(beside) if beside.exists() else shutil.which("parley")
    if found is None:
        pytest.fail("no parley executable next to this Python or in PATH", pytrace=False)
    return found


@pytest.fixture
def parley_home(tmp_path: Path) -> dict[str, str]:
    """An environment for the executable: an empty home directory and your PATH."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    return {"HOME": str(home), "PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
