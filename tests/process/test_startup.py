"""What is loaded before the first result: the engine is spawned once per session, so every module counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.helpers.environment import base_environment

HEAVY = {
    "httpx2",
    "httpx",
    "anyio",
    "mcp",
    "pydantic",
    "jsonschema",
    "tree_sitter",
    "importlib.metadata",
    "pypdf",
    "urllib.request",
    "http.client",
    "email",
    "json",
    "tomllib",
    "argparse",
    "dataclasses",
    "sqlite3",
    "multiprocessing",
    "unittest",
    "xml",
    "html",
}
MOST_MODULES = 350


def loaded_for(tmp_path: Path, *argv: str) -> list[str]:
    """The modules that a run of the engine has loaded when it ends."""
    program = (
        "import sys; from parley.cli.main import main; code = main(sys.argv[1:]); "
        "sys.stderr.write(' '.join(sys.modules)); sys.exit(code)"
    )
    environment = {"HOME": str(tmp_path), **base_environment()}
    done = subprocess.run(
        [sys.executable, "-c", program, *argv],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=60,
        check=True,
    )
    return done.stderr.split()


def test_no_heavy_module_is_loaded_for_an_offline_turn(tmp_path: Path) -> None:
    loaded = loaded_for(
        tmp_path, "--print", "--output-format", "stream-json", "--verbose", "--model", "offline", "say Hi"
    )
    assert sorted(HEAVY & set(loaded)) == []
    assert len(loaded) < MOST_MODULES


def test_nothing_of_hooks_is_loaded_where_there_are_none(tmp_path: Path) -> None:
    loaded = loaded_for(tmp_path, "--print", "--model", "offline", 'call Bash {"command": "echo one"}')
    assert sorted(name for name in loaded if name.startswith(("parley.hooks", "parley.engine.hooks"))) == [
        "parley.engine.hooks",
        "parley.engine.hooks.registry",
    ]


def test_nothing_of_a_memory_is_loaded_where_there_is_none(tmp_path: Path) -> None:
    for more in ((), ("--db", "kept.db", "--memory", "off")):
        loaded = loaded_for(tmp_path, "--print", "--model", "offline", *more, "say Hi")
        assert [name for name in loaded if name.startswith("parley.memory")] == []


def test_the_version_is_reported_without_loading_the_engine(tmp_path: Path) -> None:
    loaded = loaded_for(tmp_path, "--version")
    assert not {"asyncio", "msgspec", "typing", "parley.engine.session.session"} & set(loaded)
