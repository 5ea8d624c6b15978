"""The clients as fixtures, installed when a test first asks for one.

A plugin that the test modules name, and no second conftest.py: mypy knows a module by its file's name alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.harness import FIRST, HELLO, SECOND, TALK, Report, Stage, installed
from tests.compat.install import CURRENT_PYTHON, OLD_PYTHON, TYPESCRIPT, Client


@pytest.fixture(scope="session", params=[CURRENT_PYTHON, OLD_PYTHON], ids=lambda client: client.version)
def python_sdk(request: pytest.FixtureRequest) -> Client:
    return installed(request.param)


@pytest.fixture(scope="session", params=[TYPESCRIPT], ids=lambda client: client.version)
def typescript_sdk(request: pytest.FixtureRequest) -> Client:
    return installed(request.param)


@pytest.fixture(scope="session", params=[False, True], ids=["whole", "partial"])
def partial(request: pytest.FixtureRequest) -> bool:
    """Whether the client asks for partial messages."""
    return bool(request.param)


@pytest.fixture(params=[(CURRENT_PYTHON, False), (OLD_PYTHON, True)], ids=["current-whole", "old-partial"])
def python(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    """Each release and each form of messages once; `python_hello` and `python_talk` are played in all combinations."""
    client, partial = request.param
    return Stage(installed(client), tmp_path, partial)


WAYS = [
    ("pipe", False),
    ("pipe", True),
    ("websocket", False),
    ("websocket", True),
    ("sse", True),
    ("direct", True),
]
"""How the TypeScript SDK reaches the engine, and whether it gets partial messages."""


@pytest.fixture(scope="session", params=WAYS, ids=lambda way: f"{way[0]}-{'partial' if way[1] else 'whole'}")
def way(request: pytest.FixtureRequest) -> tuple[str, bool]:
    connection, is_partial = request.param
    return str(connection), bool(is_partial)


@pytest.fixture
def typescript(typescript_sdk: Client, way: tuple[str, bool], tmp_path: Path) -> Stage:
    """The SDK on a pipe, and its network clients on a gateway."""
    connection, is_partial = way
    return Stage(typescript_sdk, tmp_path, is_partial, connection)


@pytest.fixture
def typescript_on_a_pipe(typescript_sdk: Client, partial: bool, tmp_path: Path) -> Stage:
    return Stage(typescript_sdk, tmp_path, partial)


# Runs that several tests look at: starting a client takes a second.


@pytest.fixture(scope="session")
def python_hello(python_sdk: Client, partial: bool, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return Stage(python_sdk, tmp_path_factory.mktemp("hello"), partial).run("query", [HELLO], prompt="Hi")


@pytest.fixture(scope="session")
def python_talk(python_sdk: Client, partial: bool, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return Stage(python_sdk, tmp_path_factory.mktemp("talk"), partial).run("client", [FIRST, SECOND], steps=TALK)


@pytest.fixture(scope="session")
def typescript_hello(typescript_sdk: Client, way: tuple[str, bool], tmp_path_factory: pytest.TempPathFactory) -> Report:
    connection, is_partial = way
    stage = Stage(typescript_sdk, tmp_path_factory.mktemp("hello"), is_partial, connection)
    return stage.run("query", [HELLO], prompt="Hi")


@pytest.fixture(scope="session")
def typescript_talk(typescript_sdk: Client, way: tuple[str, bool], tmp_path_factory: pytest.TempPathFactory) -> Report:
    connection, is_partial = way
    stage = Stage(typescript_sdk, tmp_path_factory.mktemp("talk"), is_partial, connection)
    return stage.run("stream", [FIRST, SECOND], steps=TALK)
