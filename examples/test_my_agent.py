"""Test an agent without a model: a script plays the model.

Run it with pytest.

Prints:
    2 passed
"""

import asyncio
from pathlib import Path
from typing import Any

from parley import Client, Options

LOOKS = """
[[turn]]
tools = [{ name = "Bash", input = { command = "cat notes.txt" } }]

[[turn]]
text = "It says: buy milk."
"""


async def my_agent(question: str, options: Options) -> str:
    """The agent under test."""
    async with Client(options) as client:
        return await (await client.ask(question)).text()


def play(folder: Path, script: str, **given: Any) -> Options:
    (folder / "script.toml").write_text(script)
    (folder / "notes.txt").write_text("buy milk")
    model = f"scripted:{folder / 'script.toml'}"
    return Options(model=model, cwd=folder, engine="local", allowed_tools=["Bash(cat *)"], **given)


def test_the_agent_reads_the_notes(tmp_path: Path) -> None:
    answer = asyncio.run(my_agent("What do my notes say?", play(tmp_path, LOOKS)))

    assert answer == "It says: buy milk."


def test_the_agent_survives_a_backend_that_breaks(tmp_path: Path) -> None:
    answer = asyncio.run(my_agent("What do my notes say?", play(tmp_path, LOOKS, faults=["overloaded"])))

    assert answer == "It says: buy milk."
