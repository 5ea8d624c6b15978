"""Seven faults on the real executable, many runs side by side: one result a prompt, and the next turn works.

    python -m tests.stress.models.fault_storm --runs 100 --parallel 16

Each run has a model server of its own in this process (testing/model_server.py), whose first answers are struck by the
fault, and an engine of its own with short deadlines. It gets one prompt, then another: each must have exactly one
result, the second a good one, and the engine must end well. The exit code is 0 if all runs went so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from parley.models.faults import FaultPlan
from parley.models.script import Script, ScriptedCall, ScriptedTurn
from parley.testing.model_server import ModelServer
from tests.helpers.environment import base_environment
from tests.helpers.process import kill

PARLEY = str(Path(sys.executable).with_name("parley"))
RUN_SECONDS = 120
FAULTS = {
    "silence before the first byte": "stall-first-byte",
    "silence in the midst": "stall=4",
    "a drip of pings": "pings=0.2",
    "a reset": "reset=4",
    "a storm of 429 and 529": "rate-limit-wait=0@1-2,overloaded@3-4",
    "a truncated stream": "truncated=4",
    "a malformed event": "malformed=4",
}
LIMITS = {"firstByteTimeoutMs": 3000, "streamIdleTimeoutMs": 1000, "contentTimeoutMs": 2000}
"""Short, but no engine on a busy machine takes as long."""
ENVIRONMENT = {
    "ANTHROPIC_API_KEY": "a-key-for-tests",
    "IS_SANDBOX": "1",
}
ARGV = ("--model", "m", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--print")
FREE = ("--permission-mode", "bypassPermissions", "--no-session-persistence")
PATIENCE = ("--settings", json.dumps({"limits": LIMITS}))


class Broken(AssertionError):
    """A run did not go as it must."""


def script() -> Script:
    """A call first, which is struck, and texts after it."""
    call = ScriptedTurn(text="I will see to it.", tools=[ScriptedCall(name="Bash", input={"command": "echo x >> ran"})])
    return Script(turn=[call, ScriptedTurn(text="Done.")], at_end="repeat")


async def one_run(folder: Path, faults: str) -> str:
    """How the first turn ended. Raises Broken."""
    await asyncio.to_thread(folder.mkdir)
    plan = FaultPlan.read(faults.split(","), "fault")
    async with ModelServer(script(), plan=plan) as server, asyncio.timeout(RUN_SECONDS):
        engine = await asyncio.create_subprocess_exec(
            *(PARLEY, *ARGV, *FREE, *PATIENCE),
            cwd=folder,
            env={"HOME": str(folder), **base_environment(), "ANTHROPIC_BASE_URL": server.url, **ENVIRONMENT},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            first = await turn(engine, "first")
            second = await turn(engine, "second")
            rest, warnings = await engine.communicate(b"")
        finally:
            if engine.returncode is None:
                kill(engine)
                await engine.wait()
    lines = [*first, *second, *(json.loads(line) for line in rest.splitlines())]
    results = [line for line in lines if line["type"] == "result"]
    if len(results) != 2 or results[1]["is_error"] or results[1]["result"] != "Done.":
        raise Broken(f"{faults}: results {results}")
    if engine.returncode != 0 or warnings:
        raise Broken(f"{faults}: exit {engine.returncode}, {warnings.decode()}")
    calls = [block for line in lines if line["type"] == "assistant" for block in line["message"]["content"]]
    told = sum(block["type"] == "tool_use" for block in calls)
    ran = (folder / "ran").read_text().count("x") if (folder / "ran").exists() else 0
    if told != ran:
        raise Broken(f"{faults}: {told} calls were told and {ran} ran")
    return "a good result" if not results[0]["is_error"] else f"an error: {results[0]['result']}"


async def turn(engine: asyncio.subprocess.Process, prompt: str) -> list[Any]:
    """The lines of one turn."""
    assert engine.stdin is not None
    assert engine.stdout is not None
    engine.stdin.write(json.dumps({"type": "user", "message": {"role": "user", "content": prompt}}).encode() + b"\n")
    lines: list[Any] = []
    while not lines or lines[-1]["type"] != "result":
        lines.append(json.loads(await engine.stdout.readline()))
    return lines


async def storm(folder: Path, *, runs: int, parallel: int, faults: list[str] | None = None) -> Counter[str]:
    """How the first turns ended, by fault. Raises Broken."""
    room, ends = asyncio.Semaphore(parallel), Counter[str]()

    async def bounded(name: str, number: int) -> None:
        async with room:
            ends[f"{name}: {await one_run(folder / f'{name}-{number}', FAULTS[name])}"] += 1

    async with asyncio.TaskGroup() as tasks:
        for number in range(runs):
            for name in faults or FAULTS:
                tasks.create_task(bounded(name, number))
    return ends


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="of each fault")
    parser.add_argument("--parallel", type=int, default=16)
    given = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ends = asyncio.run(storm(Path(folder), runs=given.runs, parallel=given.parallel))
    for end, times in sorted(ends.items()):
        sys.stdout.write(f"{times:5}  {end}\n")
    sys.stdout.write(f"{ends.total()} runs in {time.monotonic() - started:.0f} s, one result a prompt in each\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
