"""No process of a command survives the engine, however the engine ends.

    python -m tests.stress.workspace.surviving_processes                          # 20 shapes x 5 endings, once
    python -m tests.stress.workspace.surviving_processes --rounds 20 --under-load # 2,000 runs with every core busy

Each run starts a real engine with the offline model, lets it run a command of a shape (process_shapes.py),
ends it, and looks up to 20 s later for the processes that enrolled, and for whatever else was below
the engine at its end: by pid and start time, never by name. The exit code is 0 if none was found.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.stress.workspace.process_shapes import SHAPES

ACTORS = Path(__file__).with_name("process_shapes.py")
ENGINE = str(Path(sys.executable).with_name("parley"))
FLAGS = (
    "--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json",
    "--model", "offline", "--allowedTools", "Bash", "--no-session-persistence",
)  # fmt: skip
DEADLINE_SECONDS = 60.0
GONE_SECONDS = 20.0

Process = tuple[int, int]
"""A pid and when it started: a pid alone may belong to somebody else a moment later."""


class Failed(Exception):
    """A run that did not come as far as its end."""


@dataclass
class Run:
    """One engine with one command, in a folder of its own."""

    argv: tuple[str, ...]
    shape: str
    folder: Path
    engine: subprocess.Popen[bytes] = field(init=False)
    heard: Path = field(init=False)

    def start(self, *, stays: bool, background: bool) -> None:
        self.heard = self.folder / "stdout"
        (self.folder / "pids").touch()
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "TMPDIR": str(self.folder)}
        with self.heard.open("wb") as out, (self.folder / "stderr").open("wb") as err:
            self.engine = subprocess.Popen(
                [*self.argv, *FLAGS], cwd=self.folder, env=environment, stdin=subprocess.PIPE, stdout=out, stderr=err
            )
        actor = f"{sys.executable} -I -S {ACTORS} {self.shape} {self.folder / 'pids'} {'stay' if stays else 'leave'}"
        # A keeper that was stopped does not say that the command has ended; then its time has to be up.
        call = {"command": actor, "run_in_background": background, "timeout": 60_000 if stays else 3_000}
        line = {"type": "user", "message": {"role": "user", "content": f"call Bash {json.dumps(call)}"}}
        assert self.engine.stdin is not None
        self.engine.stdin.write(json.dumps(line).encode() + b"\n")
        self.engine.stdin.flush()

    def wait_until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not done():
            if time.monotonic() > deadline:
                raise Failed(f"{self.shape}: no {what}: {(self.folder / 'stderr').read_text()[-500:]}")
            time.sleep(0.02)

    def is_ready(self) -> bool:
        return (self.folder / "pids").read_bytes().endswith(b"ready\n") or b"\nready\n" in self.pids()

    def has_result(self) -> bool:
        return b'"type":"result"' in self.heard.read_bytes()

    def pids(self) -> bytes:
        return (self.folder / "pids").read_bytes()

    def close_input(self) -> None:
        assert self.engine.stdin is not None
        self.engine.stdin.close()

    def has_ended(self) -> bool:
        return self.engine.poll() is not None

    def enrolled(self) -> set[Process]:
        lines = (line.split() for line in self.pids().splitlines() if line != b"ready")
        return {(int(pid), int(started)) for pid, started in lines}


def normal_end(run: Run) -> None:
    run.start(stays=False, background=False)
    run.wait_until(run.has_result, "result")
    run.close_input()


def end_of_input(run: Run) -> None:
    """With a task in the background, for which the engine waits until it is told not to."""
    run.start(stays=True, background=True)
    run.wait_until(lambda: run.is_ready() and run.has_result(), "readiness")
    run.close_input()
    run.engine.send_signal(signal.SIGTERM)


def signalled(number: int) -> Callable[[Run], None]:
    def end(run: Run) -> None:
        run.start(stays=True, background=False)
        run.wait_until(run.is_ready, "readiness")
        run.engine.send_signal(number)

    return end


ENDINGS: dict[str, Callable[[Run], None]] = {
    "normal": normal_end,
    "eof+TERM": end_of_input,
    "SIGTERM": signalled(signal.SIGTERM),
    "SIGINT": signalled(signal.SIGINT),
    "SIGKILL": signalled(signal.SIGKILL),
}


@dataclass(frozen=True)
class Seen:
    """How a run went."""

    shape: str
    ending: str
    processes: int
    survivors: int
    engine_seconds: float
    """From the ending to the engine's exit."""
    gone_seconds: float
    """From the engine's exit until nothing was left."""


def play(argv: tuple[str, ...], shape: str, ending: str) -> Seen:
    """One run. Raises Failed."""
    with tempfile.TemporaryDirectory(prefix="survivors-", ignore_cleanup_errors=True) as name:
        run = Run(argv, shape, Path(name))
        try:
            ENDINGS[ending](run)
            below = descendants(run.engine.pid)
            began = time.monotonic()
            run.wait_until(run.has_ended, "end of the engine")
            ended = time.monotonic()
            left, gone_at = look_for(run, below, ended + GONE_SECONDS)
            return Seen(
                shape=shape,
                ending=ending,
                processes=len(run.enrolled()),
                survivors=left,
                engine_seconds=ended - began,
                gone_seconds=gone_at - ended,
            )
        finally:
            clean_up(run)


def look_for(run: Run, below: set[Process], deadline: float) -> tuple[int, float]:
    """How many are left in the end, and when that was so.

    One that forks and ends all the time may be between two processes when we look: those who are gone
    must be joined by no one for a while.
    """
    while True:
        before, at = run.enrolled(), time.monotonic()
        left = sum(is_alive(process) for process in before | below)
        if left and at > deadline:
            return left, at
        time.sleep(0.1)
        if not left and run.enrolled() == before:
            return 0, at


def clean_up(run: Run) -> None:
    """Whatever happened, nothing of ours stays behind."""
    run.engine.kill()
    with suppress(OSError):
        run.close_input()
    run.engine.wait()
    for process in filter(is_alive, run.enrolled()):
        with suppress(ProcessLookupError):
            os.kill(process[0], signal.SIGKILL)


def stat_of(pid: int) -> list[bytes] | None:
    """The fields behind the name, beginning with the state; None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None


def is_alive(process: Process) -> bool:
    """Zombies count, unless they wait for the first process of the machine, which is no one's fault."""
    stat = stat_of(process[0])
    return stat is not None and int(stat[19]) == process[1] and not (stat[0] == b"Z" and stat[1] == b"1")


def descendants(root: int) -> set[Process]:
    stats = {int(name): stat_of(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    parents = {pid: int(stat[1]) for pid, stat in stats.items() if stat is not None}
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {(pid, int(stat[19])) for pid in found - {root} if (stat := stats[pid]) is not None}


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that do nothing, as fast as they can."""
    busy = [subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


ALL_PAIRS = [(shape, ending) for shape in SHAPES for ending in ENDINGS]


def sample_pairs() -> list[tuple[str, str]]:
    """Every shape with SIGKILL, which leaves the engine no time, and with one of the other endings in turn."""
    others = [ending for ending in ENDINGS if ending != "SIGKILL"]
    turns = [(shape, others[number % len(others)]) for number, shape in enumerate(SHAPES)]
    return [*((shape, "SIGKILL") for shape in SHAPES), *turns]


def run(
    pairs: Iterable[tuple[str, str]],
    jobs: int,
    report: Callable[[Seen], None] = lambda seen: None,
    argv: tuple[str, ...] = (ENGINE,),
) -> list[Seen]:
    """Shapes with endings. Raises Failed."""
    found = []
    with ThreadPoolExecutor(jobs) as pool:
        for seen in pool.map(lambda pair: play(argv, *pair), pairs):
            report(seen)
            found.append(seen)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1, help="how often each of the 100 pairs is run")
    parser.add_argument("--jobs", type=int, default=8, help="how many engines run at a time")
    parser.add_argument("--engine", default=ENGINE, help="the command that starts it")
    parser.add_argument("--under-load", action="store_true", help="keep every core busy meanwhile")
    options = parser.parse_args()
    survivors: Counter[tuple[str, str]] = Counter()

    def tell(seen: Seen) -> None:
        survivors[seen.shape, seen.ending] += seen.survivors
        if seen.survivors:
            sys.stdout.write(f"SURVIVORS {seen}\n")
            sys.stdout.flush()

    began = time.monotonic()
    with load(os.cpu_count() or 1 if options.under_load else 0):
        seen = run(ALL_PAIRS * options.rounds, options.jobs, tell, tuple(shlex.split(options.engine)))
    slowest = max(seen, key=lambda one: one.gone_seconds)
    sys.stdout.write(
        f"{len(seen)} runs, {sum(one.processes for one in seen)} processes, {survivors.total()} survivors; "
        f"slowest to be gone {slowest.gone_seconds:.2f} s ({slowest.shape}, {slowest.ending}); "
        f"slowest engine {max(one.engine_seconds for one in seen):.2f} s; {time.monotonic() - began:.0f} s in all\n"
    )
    return 1 if survivors.total() else 0


if __name__ == "__main__":
    sys.exit(main())
