"""Test an agent without a model: a script takes its place.

Run it with pytest.

Prints:
    2 passed
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from parley import Client, Options, Script
from parley.testing import call

pytest_plugins = ["parley.testing.plugin"]
pytestmark = pytest.mark.usefixtures("parley_config")  # sessions are kept out of your own store

LOOKS = Script(
    [
        ["I will look.", call("Bash", command="cat notes.txt")],
        "It says: buy milk.",
    ]
)


async def my_agent(question: str, options: Options) -> str:
    """The agent under test."""
    async with Client(options) as client:
        return (await client.run(question)).text


def play(folder: Path, **given: Any) -> Options:
    (folder / "notes.txt").write_text("buy milk")
    return Options(model=LOOKS, cwd=folder, engine="local", allowed_tools=["Bash(cat *)"], **given)


def test_the_agent_reads_the_notes(tmp_path: Path) -> None:
    answer = asyncio.run(my_agent("What do my notes say?", play(tmp_path)))

    assert answer == "It says: buy milk."


def test_the_agent_survives_a_backend_that_breaks(tmp_path: Path) -> None:
    answer = asyncio.run(my_agent("What do my notes say?", play(tmp_path, faults=["overloaded"])))

    assert answer == "It says: buy milk."
