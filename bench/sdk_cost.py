"""Measure the SDK: importing it, a turn with an in-process engine, and many idle sessions in one process.

    python bench/sdk_cost.py --sessions 1000 --turns 200

The limits: an import of 25 ms above a bare interpreter, 2 MB for an idle session, 2 ms for a scripted turn.
Start-up is measured with bytecode: run `python -m compileall -q src` first.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from parley import Client, Options

TURNS_EACH = 20
"""A new session after this many turns, because sessions grow with every turn."""
SCRIPT = 'at_end = "repeat"\n[[turn]]\ntext = "Hello."\n'


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def options(folder: Path) -> Options:
    (folder / "script.toml").write_text(SCRIPT)
    home = {"HOME": str(folder), "CLAUDE_CONFIG_DIR": str(folder / "config"), "PARLEY_FSYNC": "off"}
    return Options(engine="local", model=f"scripted:{folder / 'script.toml'}", cwd=folder, env=home)


def cpu_seconds(code: str, rounds: int = 15) -> float:
    """Processor time of an interpreter that runs this code. The clock says little on a busy machine."""
    times = []
    for _ in range(rounds):
        before = os.times()
        subprocess.run([sys.executable, "-c", code], check=True)
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return statistics.fmean(sorted(times)[: rounds // 2])


async def turn_seconds(folder: Path, turns: int) -> tuple[list[float], float]:
    """The duration of each turn, and the average processor time."""
    times: list[float] = []
    used = 0.0
    while len(times) < turns:
        async with Client(options(folder)) as client:
            await (await client.ask("Hi"))  # load what is imported late
            started_cpu = time.process_time()
            for _ in range(min(TURNS_EACH, turns - len(times))):
                started = time.perf_counter()
                await (await client.ask("Hi"))
                times.append(time.perf_counter() - started)
            used += time.process_time() - started_cpu
    return times, used / len(times)


async def idle_bytes(folder: Path, sessions: int) -> float:
    """The memory of one more idle session, after one turn each."""
    clients = [Client(options(folder)) for _ in range(sessions)]
    await run_turn(clients[0])
    gc.collect()
    before = resident_bytes()
    for client in clients[1:]:
        await run_turn(client)
    gc.collect()
    idle = (resident_bytes() - before) / (sessions - 1)
    for client in clients:
        await client.close()
    return idle


async def run_turn(client: Client) -> None:
    await client.connect()
    await (await client.ask("Hi"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=200)
    options = parser.parse_args()
    bare, loaded = cpu_seconds("pass"), cpu_seconds("import parley")
    used = cpu_seconds("from parley import Client, Options, query, tool")
    with tempfile.TemporaryDirectory() as name:
        times, cpu = asyncio.run(turn_seconds(Path(name), options.turns))
    with tempfile.TemporaryDirectory() as name:
        idle = asyncio.run(idle_bytes(Path(name), options.sessions))
    write = sys.stdout.write
    write(f"import parley          {1000 * (loaded - bare):6.1f} ms of CPU above a bare interpreter\n")
    write(f"Client, Options, query {1000 * (used - bare):6.1f} ms of CPU above a bare interpreter (limit 25)\n")
    write(f"scripted turn          {1000 * statistics.median(times):6.2f} ms, {1000 * cpu:.2f} ms of CPU (limit 2)\n")
    write(f"idle session           {idle / 1e6:6.2f} MB of {options.sessions} in one process (limit 2)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
