"""The garbage collector in a process with many sessions."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

from parley import Client, Script
from parley.models.script import ScriptedCall, ScriptedTurn
from parley.testing.model_server import running
from tests.helpers.sdk import ClientHarness

PROGRAM = """
import gc, sys
import parley
before = gc.get_threshold(), gc.get_freeze_count()
from parley import Client, Options, run_sync
run_sync("say Hello.", Options(model="offline", engine="local", env={"HOME": sys.argv[1]}))
assert (gc.get_threshold(), gc.get_freeze_count()) == before, "a library must not change the collector of a program"
parley.tune_gc()
assert "parley.engine.turn.turn" in sys.modules
assert gc.get_freeze_count() > 1000
assert gc.isenabled()
print(gc.get_threshold())
gc.set_threshold(0)
parley.tune_gc()
print(gc.get_threshold())
gc.set_threshold(1_000_000, 1, 1)
parley.tune_gc()
print(gc.get_threshold())
"""


def test_the_collector_is_tuned_only_on_request(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.stderr == ""
    assert done.stdout == "(10000, 50, 100)\n(0, 50, 100)\n(1000000, 50, 100)\n"


async def test_a_turn_leaves_nothing_for_the_collector(tmp_path: Path) -> None:
    """In a process with many sessions, every object in a reference cycle adds to the pauses of all of them."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("Notes.\n")
    calls = [ScriptedCall(name="Read", input={"file_path": str(tmp_path / "work" / "notes.txt")})]
    script = Script([ScriptedTurn(tools=calls), ScriptedTurn(text="Done.")], at_end="repeat")
    with running(script) as server:
        options = ClientHarness(tmp_path).options("local", model="sonnet", env={"ANTHROPIC_BASE_URL": server.url})
        async with Client(options) as client:
            for _ in range(3):  # load what is imported late
                await client.run("go")
            gc.collect()
            gc.disable()
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                texts = [(await client.run("go")).text for _ in range(5)]
                gc.collect()
                left = [type(one).__name__ for one in gc.garbage]
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
                gc.enable()

    assert texts == ["Done."] * 5
    assert left == []
