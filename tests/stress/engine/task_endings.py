"""Background tasks that end at random: each is told once, at once, and in its order; also if the engine is killed.

    python -m tests.stress.engine.task_endings --rounds 50 --tasks 20 --seed 1

Each round starts the real executable, lets a scripted model start commands in the background that end at random
moments, and reads what the host is told. In every second round the engine is killed (SIGKILL) at a random moment,
and another one continues with the session. The laws:

    the host hears of the end of each task, by whichever engine, and what it hears twice is the same line
    within a second of it, and in the order in which the tasks ended
    the model hears of each exactly once, in the order in which the host did

The line about a task that ends in the very moment of the kill may come from both engines: it has the same uuid then,
and is counted. The exit code is 0 if all laws held.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

ENGINE = str(Path(sys.executable).with_name("parley"))
STREAM = (
    "--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json",
    "--allowedTools", "Bash",
)  # fmt: skip
DEADLINE_SECONDS = 60.0
Json = dict[str, Any]


@dataclass(frozen=True)
class Limits:
    """How exact the reports must be; a busy machine needs more time."""

    late_seconds: float = 1.0
    same_moment_seconds: float = 0.1
    """Ends that are nearer to each other than this have no order."""


STRICT = Limits()


@dataclass
class Heard:
    at: float
    line: Json


@dataclass
class Engine:
    """One process, and all it says with the time of each line."""

    folder: Path
    options: tuple[str, ...]
    lines: list[Heard] = field(default_factory=list)

    def __post_init__(self) -> None:
        environment = {"HOME": str(self.folder / "home"), "PATH": os.environ["PATH"], "TMPDIR": str(self.folder)}
        argv = [ENGINE, *STREAM, "--model", f"scripted:{self.folder / 'script.toml'}", *self.options]
        self.process = subprocess.Popen(
            argv, cwd=self.folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for raw in self.process.stdout:
            self.lines.append(Heard(time.time(), json.loads(raw)))

    def say(self, text: str) -> None:
        self._write({"type": "user", "message": {"role": "user", "content": text}})

    def ask(self, subtype: str) -> None:
        self._write({"type": "control_request", "request_id": subtype, "request": {"subtype": subtype}})

    def _write(self, line: Json) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def until(self, count: int, *kinds: str) -> bool:
        """Wait for so many lines of some kinds; False if they do not come."""
        end = time.monotonic() + DEADLINE_SECONDS
        while len(self.told(*kinds)) < count:
            if time.monotonic() > end or (self.process.poll() is not None and not self._reader.is_alive()):
                return False
            time.sleep(0.01)
        return True

    def told(self, *kinds: str) -> list[Heard]:
        return [heard for heard in self.lines if heard.line.get("subtype", heard.line["type"]) in kinds or
                heard.line["type"] in kinds]  # fmt: skip

    def end(self, *, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(DEADLINE_SECONDS)
        self._reader.join(DEADLINE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


def script(folder: Path, seconds: list[float]) -> str:
    """A model that starts everything at once, and then takes note."""
    calls = ", ".join(
        f'{{ name = "Bash", input = {{ description = "job {n}", run_in_background = true, command = '
        f'"sleep {wait:.3f}; date +%s.%N > {folder}/ended-{n}" }} }}'
        for n, wait in enumerate(seconds)
    )
    return f'at_end = "repeat"\n[[turn]]\nwhen = "begin"\ntools = [{calls}]\n[[turn]]\ntext = "Noted."\n'


def play(
    folder: Path, tasks: int, dice: Random, kill_after_seconds: float | None, limits: Limits
) -> tuple[list[str], Counter[str]]:
    """One round: what was broken, and what was counted."""
    seconds = [dice.uniform(0.05, 1.5) for _ in range(tasks)]
    (folder / "script.toml").write_text(script(folder, seconds))
    first = Engine(folder, ())
    first.say("begin")
    if not first.until(tasks, "task_started"):
        first.end(kill=True)
        return ["the tasks were never started"], Counter()
    engines = [first]
    if kill_after_seconds is None:
        first.until(tasks + 1, "result")
        first.end()
    else:
        time.sleep(kill_after_seconds)  # the moment of the kill is what is drawn
        first.end(kill=True)
        second = Engine(folder, ("--resume", first.lines[0].line["session_id"]))
        second.say("go on")
        second.until(1, "result")
        second.end()
        engines.append(second)
    killed_at = None if kill_after_seconds is None else first.lines[-1].at
    broken, counts = judged(folder, tasks, engines, killed_at)
    jobs = {heard.line["task_id"]: heard.line["description"] for heard in first.told("task_started")}
    return broken + late_or_out_of_order(folder, jobs, first.told("task_notification"), limits), counts


def judged(folder: Path, tasks: int, engines: list[Engine], killed_at: float | None) -> tuple[list[str], Counter[str]]:
    jobs = {heard.line["task_id"]: heard.line["description"] for heard in engines[0].told("task_started")}
    ends = [heard for engine in engines for heard in engine.told("task_notification")]
    told = Counter(id for id, _ in {(heard.line["task_id"], heard.line["uuid"]) for heard in ends})
    by_model = Counter(heard_by_model(folder, set(jobs)))
    broken: list[str] = []
    counts = Counter(tasks=tasks, told=sum(told.values()), lost=sum(one.line["status"] == "failed" for one in ends))
    counts["told by both engines"] += len(ends) - sum(told.values())
    for id, job in jobs.items():
        if told[id] != 1 or by_model[id] != 1:
            broken.append(f"{job}: told {told[id]} times, and {by_model[id]} times to the model")
    if killed_at is None and len(ends) > sum(told.values()):
        broken.append("a line was told twice")
    if killed_at is None:
        turns = [heard.line["origin"]["runId"] for heard in engines[0].told("result") if "origin" in heard.line]
        if turns != [heard.line["run_id"] for heard in ends]:
            broken.append("the turns are not in the order of the ends")
    return broken, counts


def late_or_out_of_order(folder: Path, jobs: dict[str, str], ends: list[Heard], limits: Limits) -> list[str]:
    broken: list[str] = []
    last = 0.0
    for heard in ends:
        job = jobs[heard.line["task_id"]]
        ended = float((folder / f"ended-{job.split()[1]}").read_text())
        if heard.at - ended > limits.late_seconds:
            broken.append(f"{job}: told {heard.at - ended:.3f} s after its end")
        if ended < last - limits.same_moment_seconds:
            broken.append(f"{job}: told behind one that ended {last - ended:.3f} s later")
        last = max(last, ended)
    return broken


def heard_by_model(folder: Path, ids: set[str]) -> list[str]:
    """The tasks whose ends are in the conversation, as often as they are."""
    [transcript] = (folder / "home" / ".claude" / "projects").glob("*/*.jsonl")
    found: list[str] = []
    for raw in transcript.read_text().splitlines():
        row = json.loads(raw)
        if row.get("type") == "user":
            text = json.dumps(row["message"])
            found += [id for id in ids for _ in re.findall(rf"(?:command|task) {id} \(", text)]
    return found


def run(rounds: int, tasks: int, seed: int, limits: Limits = STRICT) -> tuple[list[str], Counter[str]]:
    broken: list[str] = []
    counts: Counter[str] = Counter()
    for number in range(rounds):
        dice = Random(f"{seed}/{number}")
        with tempfile.TemporaryDirectory(prefix="endings-") as folder:
            kill = dice.uniform(0, 1.2) if number % 2 else None
            problems, counted = play(Path(folder), tasks, dice, kill, limits)
        broken += [f"round {number}: {problem}" for problem in problems]
        counts += counted
    return broken, counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    broken, counts = run(wanted.rounds, wanted.tasks, wanted.seed)
    sys.stdout.write("\n".join([*broken, f"{dict(counts)}: {len(broken)} laws broken"]) + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
