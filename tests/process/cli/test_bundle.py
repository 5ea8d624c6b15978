"""The file of bytecode that an installed executable loads its modules from."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import parley
from tests.helpers.environment import base_environment

TURN = "from parley.cli.main import main; main(['--print', '--model', 'offline', 'say Hi'])\n"
LOADERS = TURN + (
    "import sys; from collections import Counter\n"
    "loaded = [module for name, module in sys.modules.items() if name.startswith(('parley.', 'asyncio.'))]\n"
    "count = Counter(type(module.__loader__).__name__ for module in loaded)\n"
    "print(count['BundleLoader'] > 100, count['SourceFileLoader'] < 12)\n"
)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """An installed package."""
    folder = tmp_path / "site-packages" / "parley"
    shutil.copytree(Path(parley.__file__).parent, folder)
    for old in folder.glob("cli/__pycache__/bundled.*"):
        old.unlink()
    return folder


def run(package: Path, program: str, **variables: str) -> str:
    environment = {"HOME": str(package.parents[1]), **base_environment(), "PYTHONPATH": str(package.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**environment, **variables},
        cwd=package.parents[1],
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def bundles(package: Path) -> list[Path]:
    return [path for path in package.glob("cli/__pycache__/bundled.*") if path.is_file()]


def test_the_second_run_loads_its_modules_from_the_file(installed: Path) -> None:
    assert run(installed, LOADERS) == "Hi\nFalse False\n"
    [path] = bundles(installed)
    written = path.stat().st_ino
    assert run(installed, LOADERS) == "Hi\nTrue True\n"
    assert path.stat().st_ino == written


def test_a_changed_module_is_loaded_from_its_source(installed: Path) -> None:
    run(installed, TURN)
    source = installed / "engine" / "clock.py"
    source.write_text(source.read_text() + "\nADDED = 'new'\n")
    program = TURN + "from parley.engine import clock; print(clock.ADDED, type(clock.__loader__).__name__)"
    assert run(installed, program) == "Hi\nnew SourceFileLoader\n"


def test_a_module_in_the_place_of_one_of_the_standard_library_is_not_kept(installed: Path) -> None:
    own = installed.parents[1] / "shadows"
    own.mkdir()
    (own / "heapq.py").write_text("from _heapq import *; SHADOW = True\n")
    program = TURN + "import heapq; print(hasattr(heapq, 'SHADOW'))"
    path = f"{own}{os.pathsep}{installed.parent}"
    assert run(installed, program, PYTHONPATH=path) == "Hi\nTrue\n"
    assert run(installed, program) == "Hi\nFalse\n"


def test_tracebacks_and_inspect_show_the_source(installed: Path) -> None:
    run(installed, TURN)
    program = TURN + (
        "import inspect, traceback; from parley.engine.session import session\n"
        "print(type(session.__loader__).__name__, inspect.getsource(session.Session).splitlines()[0])\n"
        "try: session.Session.handle(None, None)\n"
        "except AttributeError as exc: print(traceback.extract_tb(exc.__traceback__)[-1])\n"
        "print(session.__file__, session.__cached__)\n"
    )
    _, first, frame, files = run(installed, program).splitlines()
    file = installed / "engine" / "session" / "session.py"
    assert first == "BundleLoader class Session:"
    assert frame.startswith(f"<FrameSummary file {file}, line ")
    assert files == f"{file} {file.parent}/__pycache__/session.{sys.implementation.cache_tag}.pyc"


def test_a_damaged_file_is_replaced(installed: Path) -> None:
    run(installed, TURN)
    [path] = bundles(installed)
    whole = path.read_bytes()
    for damaged in (b"", whole[:1000], whole[: len(whole) // 2], b"another version\n" + whole):
        path.write_bytes(damaged)
        assert run(installed, TURN) == "Hi\n"
        assert run(installed, LOADERS) == "Hi\nTrue True\n"


def test_a_module_whose_bytecode_is_damaged_is_loaded_from_its_source(installed: Path) -> None:
    run(installed, TURN)
    [path] = bundles(installed)
    whole = path.read_bytes()
    path.write_bytes(whole[:1000] + bytes(len(whole) // 2 - 1000) + whole[len(whole) // 2 :])
    assert run(installed, TURN) == "Hi\n"


def test_a_run_that_cannot_write_the_file_works(installed: Path) -> None:
    obstacle = installed / "cli" / "__pycache__" / f"bundled.{sys.implementation.cache_tag}.pyc"
    (obstacle / "child").mkdir(parents=True)
    assert run(installed, TURN) == "Hi\n"
    assert bundles(installed) == []


def test_the_file_is_not_written_where_bytecode_is_unwanted_or_in_a_checkout(installed: Path) -> None:
    assert run(installed, LOADERS, PYTHONDONTWRITEBYTECODE="1") == "Hi\nFalse False\n"
    assert bundles(installed) == []
    checkout = installed.rename(installed.parents[1] / "parley")
    assert run(checkout, LOADERS) == "Hi\nFalse False\n"
    assert bundles(checkout) == []


def test_a_session_of_a_resident_engine_does_not_write_the_file(installed: Path) -> None:
    """Its engine does, at its end: a session would write it again each time."""
    run(installed, TURN + "from parley._launched import set_launcher; set_launcher(1, 1)\n")
    assert bundles(installed) == []
