"""Measure many concurrent subagents in one session: memory per idle agent, and event loop lag.

    python -m bench.agents --agents 100

Each agent calls the model once and waits for a slow answer. The memory is the growth of the resident set while all of
them wait, divided by their number. The lag is how late a timer of 5 ms fires.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import tempfile
from pathlib import Path

from tests.helpers.session import SessionHarness

TICK_SECONDS = 0.005


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def script(agents: int, wait_ms: int) -> str:
    calls = ", ".join(
        f'{{ name = "Agent", input = {{ description = "d{n}", prompt = "WORK {n}.", run_in_background = true }} }}'
        for n in range(agents)
    )
    turns = [f'at_end = "repeat"\n[[turn]]\nwhen = "begin"\ntools = [{calls}]\n']
    turns += [f'[[turn]]\nwhen = "WORK {n}."\ndelay_ms = {wait_ms}\ntext = "Report {n}."\n' for n in range(agents)]
    return "".join([*turns, '[[turn]]\ntext = "Noted."\n'])


async def watch(lags: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + TICK_SECONDS
        await asyncio.sleep(TICK_SECONDS)
        lags.append(loop.time() - due)


async def measure(folder: Path, agents: int, wait_ms: int) -> tuple[float, float, int]:
    lags: list[float] = []
    async with SessionHarness(folder, script(agents, wait_ms), skip_permissions=True) as harness:
        harness.prompt("hello")
        await harness.receive("result")
        gc.collect()
        before = resident_bytes()
        watcher = asyncio.create_task(watch(lags))
        harness.prompt("begin")
        for _ in range(agents):
            await harness.receive("system", "task_started")
        await harness.receive("result")
        idle = (resident_bytes() - before) / agents
        done = 0
        for _ in range(agents):
            line = await harness.receive("system", "task_notification")
            done += line["status"] == "completed"
        watcher.cancel()
    lags.sort()
    return idle / 2**20, lags[int(len(lags) * 0.99)] * 1000, done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--wait-ms", type=int, default=5000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        idle_mb, lag, done = asyncio.run(measure(Path(folder), options.agents, options.wait_ms))
    sys.stdout.write(f"{done} agents done; {idle_mb:.3f} MB per idle agent, loop lag {lag:.1f} ms (p99)\n")
    return 0 if done == options.agents and idle_mb <= 1 and lag <= 50 else 1


if __name__ == "__main__":
    sys.exit(main())
