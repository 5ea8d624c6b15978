"""Measure many active sessions in one process: turns per second, how long a turn takes, and memory.

    python bench/many_sessions.py --sessions 1000 --turns 3000 --at-once 16
    python bench/many_sessions.py --tune-gc                  # with parley.tune_gc()
    python bench/many_sessions.py --workers 2                # in two worker processes
    python bench/many_sessions.py --workers 2 --rounds 10    # and in one process, alternately: medians and their ratio
    python bench/many_sessions.py --workers 2 --cores 0.4    # each engine gets 0.4 cores (Linux, as root)
    python bench/many_sessions.py --profile out.prof         # the measured turns, for pstats

A turn is a Read trip: the model calls Read, and answers when it has the file. The model is a process of its own.
The clock says little on a busy machine, so processor time is measured as well: turns per second of it, and how much of
it this process uses from the start of a turn to its end, which is how long the turn would take on an idle core. With
workers, the busiest process counts, because it limits the throughput when there are enough cores. `--cores` shows that
on a small machine: with less than a core for each engine, there is enough left for the program and the model.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from model_server import read_prompt

from parley import Client, Options

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 10_000


@contextlib.contextmanager
def serve_model() -> Iterator[tuple[str, int]]:
    """The address of a model in another process, and the id of that process."""
    argv = [sys.executable, str(Path(__file__).with_name("model_server.py")), "--many"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}", server.pid
        server.stdin.close()


def make_options(folder: Path, url: str, workers: int, fsync: str) -> Options:
    env = {
        "HOME": str(folder),
        "CLAUDE_CONFIG_DIR": str(folder / "config"),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "bench",
        "PARLEY_FSYNC": fsync,
    }
    return Options(engine="local", model="sonnet", cwd=folder, env=env, workers=workers or None)


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """The processor time of a process. The name in the line may contain spaces."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS_PER_SECOND


@contextlib.contextmanager
def limit_cores(pids: list[int], cores: float) -> Iterator[None]:
    """Give each process at most so many cores, by control groups."""
    if not cores:
        yield
        return
    root, quota = CGROUPS, round(PERIOD_US * cores)
    settings = {"cpu.max": f"{quota} {PERIOD_US}"}
    if (CGROUPS / "cpu").is_dir():
        root, settings = CGROUPS / "cpu", {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)}
    folders = [root / f"parley-bench-{pid}" for pid in pids]
    for folder, pid in zip(folders, pids, strict=True):
        folder.mkdir()
        for name, value in {**settings, "cgroup.procs": str(pid)}.items():
            (folder / name).write_text(value)
    try:
        yield
    finally:
        for folder, pid in zip(folders, pids, strict=True):
            (root / "cgroup.procs").write_text(str(pid))
            folder.rmdir()


class Collections:
    """The processor time of each run of the garbage collector."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._started = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._started = time.thread_time()
        else:
            self.seconds.append(time.thread_time() - self._started)


async def run_turns(clients: list[Client], turns: int, at_once: int, path: str) -> list[tuple[float, float]]:
    """Run turns in one session after the other, some at the same time; returns the time and CPU time of each."""
    seconds: list[tuple[float, float]] = []
    pending = iter(range(turns))

    async def work() -> None:
        for number in pending:
            started, used = time.perf_counter(), time.process_time()
            result = await clients[number % len(clients)].run(read_prompt(path))
            seconds.append((time.perf_counter() - started, time.process_time() - used))
            if result.message.num_turns != 2:
                raise RuntimeError(f"expected two model calls, not {result.message.num_turns}: {result.text}")

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())
    return seconds


async def measure(args: argparse.Namespace, folder: Path, url: str, model_pid: int) -> None:
    path = folder / "notes.txt"
    path.write_text("A line of notes.\n" * 20)
    if args.tune_gc:
        from parley import tune_gc

        tune_gc()
    clients = [Client(make_options(folder, url, args.workers, args.fsync)) for _ in range(args.sessions)]
    first, rest = clients[: max(1, args.workers)], clients[max(1, args.workers) :]
    for client in first:  # load what is imported late
        await client.connect()
    await run_turns(first, len(first), 1, str(path))
    pids = list(dict.fromkeys([os.getpid(), *(client.pid for client in clients if client.pid)]))
    gc.collect()
    before = sum(map(resident_bytes, pids))
    for client in rest:
        await client.connect()
    await run_turns(rest, len(rest), args.at_once, str(path))
    gc.collect()
    held = sum(map(resident_bytes, pids)) - before

    collections = Collections()
    used = [cpu_seconds(pid) for pid in (*pids, model_pid)]
    started = time.perf_counter()
    with profiled(args.profile), limit_cores(pids[1:] or pids, args.cores):
        seconds = await run_turns(clients, args.turns, args.at_once, str(path))
    elapsed = time.perf_counter() - started
    *busy, model_seconds = (cpu_seconds(pid) - was for pid, was in zip((*pids, model_pid), used, strict=True))
    grown = sum(map(resident_bytes, pids)) - before
    write = sys.stdout.write
    write(f"turns                 {args.turns / elapsed:7.0f} per second\n")
    write(f"turns per CPU second  {args.turns / max(busy):7.0f} of the busiest process, ")
    write(f"{args.turns / sum(busy):.0f} of all\n")
    write(f"CPU seconds           {', '.join(f'{one:.2f}' for one in busy)} (this process, then the workers), ")
    write(f"{model_seconds:.2f} of the model\n")
    for name, times in zip(("turn, by the clock", "turn, CPU of this"), zip(*seconds, strict=True), strict=True):
        cuts = statistics.quantiles(times, n=100)
        write(f"{name:21} {1000 * cuts[49]:7.1f} ms median, {1000 * cuts[98]:.1f} p99, ")
        write(f"{1000 * max(times):.1f} longest\n")
    collecting = sorted(collections.seconds) or [0.0]
    write(f"garbage collection    {1000 * sum(collecting) / args.turns:7.2f} ms of CPU per turn, ")
    write(f"{len(collections.seconds)} runs, the longest {1000 * collecting[-1]:.0f} ms\n")
    write(f"memory of a session   {held / len(rest) / 1e6:7.3f} MB after one turn, ")
    write(f"{grown / len(rest) / 1e6:.3f} MB at the end\n")
    sys.stdout.flush()
    for client in clients:
        await client.close()


def compare(args: argparse.Namespace) -> None:
    """Run the workers and one process alternately, each time in a new program."""
    argv = [sys.executable, __file__]
    for name in ("sessions", "turns", "at_once", "cores", "fsync"):
        argv += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    rates = defaultdict[int, list[float]](list)
    for number in range(args.rounds):
        for workers in (0, args.workers) if number % 2 else (args.workers, 0):
            report = subprocess.run([*argv, "--workers", str(workers)], stdout=subprocess.PIPE, check=True, text=True)
            rates[workers].append(float(report.stdout.split()[1]))
    ratios = [many / one for one, many in zip(rates[0], rates[args.workers], strict=True)]
    for name, values in (("workers", rates[args.workers]), ("one process", rates[0]), ("ratio", ratios)):
        low, middle, high = statistics.quantiles(values, n=4)
        sys.stdout.write(f"{name:21} {middle:7.4g} median, {low:.4g} to {high:.4g} quartiles\n")


@contextlib.contextmanager
def profiled(path: str | None) -> Iterator[None]:
    if path is None:
        yield
        return
    import cProfile

    profile = cProfile.Profile()
    profile.enable()
    yield
    profile.disable()
    profile.dump_stats(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=3000)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0, help="0: in this process")
    parser.add_argument("--rounds", type=int, default=0, help="compare the workers with one process this many times")
    parser.add_argument("--cores", type=float, default=0, help="of each engine process [no limit]")
    parser.add_argument("--fsync", default="turn")
    parser.add_argument("--tune-gc", action="store_true")
    parser.add_argument("--profile", metavar="FILE")
    args = parser.parse_args()
    if args.rounds:
        if args.rounds < 2 or not args.workers:
            parser.error("--rounds must be at least 2, and needs --workers")
        compare(args)
        return 0
    with tempfile.TemporaryDirectory() as folder, serve_model() as (url, model_pid):
        asyncio.run(measure(args, Path(folder), url, model_pid))
    return 0


if __name__ == "__main__":
    sys.exit(main())
