"""pytest fixtures to test your own agents: `pytest_plugins = ["parley.testing.plugin"]`.

    scripted            makes options whose model plays a script: `scripted("Hello.")`
    model_server        starts servers that play scripts or recordings; they stop after the test
    fake_claude         writes an executable that plays a scenario, for a client of any language
    replayed_claude     the same for a recording
    parley_executable   the path of the executable
    parley_home         an environment without your keys and settings
    parley_config       lets a test keep its sessions in a directory of its own, and not read your settings

`pytest -p parley.testing.plugin --parley-evals FILE` runs the cases of `parley eval` as tests (`eval_items.py`).

`parley` is another name of `parley_executable`. It hides the package of that name in the test.

The plugin is not loaded automatically.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Protocol

import pytest

from parley.models.faults import FaultPlan
from parley.models.script import Script, TurnLike, read_script
from parley.sdk.options import Options
from parley.testing.model_server import AnswerSource, ModelServer, from_recording, running

Start = Callable[..., ModelServer]
EVALS = "--parley-evals"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("parley")
    group.addoption(EVALS, action="append", default=[], metavar="FILE", help="run the cases of `parley eval` as tests")
    group.addoption("--parley-eval-results", metavar="DIR", help="keep the results of --parley-evals in this folder")


def pytest_configure(config: pytest.Config) -> None:
    """Without other arguments, only the cases run."""
    files = [str(Path(file).absolute()) for file in config.getoption(EVALS)]
    if files:
        is_alone = config.args_source is not pytest.Config.ArgsSource.ARGS
        config.args = files if is_alone else [*config.args, *files]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path not in [Path(file).absolute() for file in parent.config.getoption(EVALS)]:
        return None
    from parley.testing import EvalFile

    collector: pytest.Collector = EvalFile.from_parent(parent, path=file_path)
    return collector


class MakeOptions(Protocol):
    """The fixture `scripted`."""

    def __call__(
        self, *turns: TurnLike, at_end: Literal["error", "repeat"] = "error", **options: Any
    ) -> Options[Any]: ...


@pytest.fixture
def scripted(tmp_path: Path) -> MakeOptions:
    """Options whose model plays these turns, with the engine in the process of the test.

        def test_it(scripted):
            options = scripted(["I will look.", call("Bash", command="cat notes.txt")], "Buy milk.", tools=["Bash"])
            assert run_sync("What do my notes say?", options).text == "Buy milk."

    A turn is what `Script` takes. The other arguments are options. The working directory is `tmp_path`. Sessions
    are kept in it, not among yours, and your settings are not read.
    """

    def make(*turns: TurnLike, at_end: Literal["error", "repeat"] = "error", **options: Any) -> Options[Any]:
        home = tmp_path / "home"
        own = {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / ".claude"), "PARLEY_STORE": ""}
        env = {**own, **options.pop("env", {})}
        script = Script(turns, at_end=at_end)
        return Options(**{"model": script, "cwd": tmp_path, "engine": "local", "env": env, **options})

    return make


@pytest.fixture
def parley_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration directory of the test's own, for options that `scripted` does not make.

    Sessions go there instead of among yours, where `parley --continue` would find them, and your settings are not read.
    """
    config = tmp_path / "home" / ".claude"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(config))
    monkeypatch.delenv("PARLEY_STORE", raising=False)
    return config


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


@pytest.fixture
def fake_claude(tmp_path: Path) -> Callable[[str | os.PathLike[str]], str]:
    """`fake_claude(scenario)`: the path of an executable that plays a scenario, given as a file or as TOML."""
    from parley.testing import load_scenario

    def install(scenario: str | os.PathLike[str]) -> str:
        path = Path(scenario)
        if isinstance(scenario, str) and "\n" in scenario:
            path = Path(tempfile.mkdtemp(dir=tmp_path), "scenario.toml")
            path.write_text(scenario, encoding="utf-8")
        load_scenario(path)  # a mistake fails the test here, and not in its client
        return write_claude(tmp_path, "fake", path)

    return install


@pytest.fixture
def replayed_claude(tmp_path: Path) -> Callable[[str | os.PathLike[str]], str]:
    """`replayed_claude(recording)`: the path of an executable that replays the engine of a recording."""
    from parley.stores.wire_recording import read_wire_recording

    def install(recording: str | os.PathLike[str]) -> str:
        read_wire_recording(recording)
        return write_claude(tmp_path, "replay", Path(recording))

    return install


def write_claude(tmp_path: Path, command: str, file: Path) -> str:
    """Write an executable that runs a command with a file, in a folder of its own."""
    from parley.testing.launcher_script import write_launcher

    path = Path(tempfile.mkdtemp(dir=tmp_path, prefix=f"{command}-"), "claude")
    write_launcher(path, [command, str(file.absolute()), "--"])
    return str(path)


@pytest.fixture(scope="session")
def parley_executable() -> str:
    """The executable of this environment, or the one in PATH."""
    beside = Path(sys.executable).with_name("parley")
    found = str(beside) if beside.exists() else shutil.which("parley")
    if found is None:
        pytest.fail("no parley executable next to this Python or in PATH", pytrace=False)
    return found


@pytest.fixture(scope="session")
def parley(parley_executable: str) -> str:
    """The same as `parley_executable`, which does not hide the package `parley`."""
    return parley_executable


@pytest.fixture
def parley_home(tmp_path: Path) -> dict[str, str]:
    """An environment for the executable: an empty home directory and your PATH."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    return {"HOME": str(home), "PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
