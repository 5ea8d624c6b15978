"""T-27: the real executable with real tools is killed at random, and resumed until its job is done.

    python -m tests.stress.stores.engine_kills --kills 1000

Each job has a model server of its own in this process, played by a worker (scripted_job.py): 24 steps, commands that
append to a file and files to be written. Half of the jobs ask the host about every command, which allows it. After
each SIGKILL another engine resumes the session at once. What must hold:

    no line that was printed is missing in the log, or different there
    no effect happens twice, and each happens
    every request of a resumed session is one that the API would take
    a resume takes less than 2 s to its first line, and finds the session free
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.store import ClaudeStore
from parley.testing.model_server import ModelServer, ModelSource
from tests.helpers.environment import base_environment
from tests.helpers.process import kill
from tests.stress.stores.scripted_job import ENDED, Step, Worker

Json = dict[str, Any]
PARLEY = str(Path(sys.executable).with_name("parley"))
ARGV = ("--model", "m", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--print")
MODES = (("--permission-mode", "bypassPermissions"), ("--permission-prompt-tool", "stdio"))
ENVIRONMENT = {"ANTHROPIC_API_KEY": "a-key-for-tests", "IS_SANDBOX": "1", **base_environment()}
STEPS = 24
START_SECONDS, WORK_SECONDS = 0.5, 0.8
"""One in five dies so soon after its start, the others so soon after their first line."""
RESUME_SECONDS = 2.0
SILENCE_SECONDS = 60
"""Whoever says nothing for so long hangs."""
KEPT = ("user", "assistant", "result")


@dataclass
class Seen:
    """What a number of jobs came to."""

    jobs: int = 0
    kills: int = 0
    messages: int = 0
    requests: int = 0
    resume_seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def slowest(self, share: float) -> float:
        """The time that so large a share of the resumes kept within."""
        ordered = sorted(self.resume_seconds) or [0.0]
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def problem(self, text: str) -> None:
        self.problems.append(text)


def steps(folder: Path) -> list[Step]:
    def command(id: str) -> tuple[str, Json]:
        return "Bash", {"command": f"echo {id} >> ran"}

    def file(number: int) -> Step:
        return lambda call: ("Write", {"file_path": str(folder / f"made-{number}"), "content": f"{call}\n"})

    return [command if number % 3 else file(number) for number in range(STEPS)]


def look(id: str) -> tuple[str, Json]:
    """What has run so far: nothing yet, if the first command was cut off."""
    return "Bash", {"command": "touch ran; cat ran"}


class Job:
    def __init__(self, folder: Path, mode: tuple[str, ...], dice: Random, kills: int, seen: Seen) -> None:
        self._folder = folder
        self._mode = mode
        self._dice = dice
        self.kills_left = kills
        self._seen = seen
        self._session_id: str | None = None
        self._printed: dict[str, Json] = {}
        self._killer: asyncio.TimerHandle | None = None
        self._worker = Worker(steps(folder), look)

    async def run(self) -> None:
        self._folder.mkdir()
        self._seen.jobs += 1
        async with ModelServer(ModelSource(self._worker, "m")) as server:
            self._environment = {**ENVIRONMENT, "HOME": str(self._folder), "ANTHROPIC_BASE_URL": server.url}
            while not await self._live():
                pass
        self._check()

    async def _live(self) -> bool:
        """One engine, killed at some time if kills are left; whether the job is done."""
        is_kept = any(self._folder.glob(f".claude/projects/*/{self._session_id}.jsonl"))
        again = ("--resume", str(self._session_id)) if is_kept else ()
        started = time.monotonic()
        engine = await asyncio.create_subprocess_exec(
            *(PARLEY, *ARGV, *self._mode, *again),
            cwd=self._folder,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        early = self._dice.random() < 0.2
        if self.kills_left and early:
            self._kill_in(self._dice.random() * START_SECONDS, engine)
        works = self.kills_left > 0 and not early
        try:
            return await self._talk(engine, started, works=works, is_resume=bool(again))
        finally:
            if self._killer is not None:
                self._killer.cancel()
            if engine.returncode is None:
                kill(engine)
            await engine.wait()

    def _kill_in(self, seconds: float, engine: asyncio.subprocess.Process) -> None:
        self._killer = asyncio.get_running_loop().call_later(seconds, self._kill, engine)

    def _kill(self, engine: asyncio.subprocess.Process) -> None:
        if engine.returncode is None:
            kill(engine)
            self.kills_left -= 1
            self._seen.kills += 1

    async def _talk(self, engine: asyncio.subprocess.Process, started: float, *, works: bool, is_resume: bool) -> bool:
        assert engine.stdin is not None
        assert engine.stdout is not None
        assert engine.stderr is not None
        say(engine.stdin, {"type": "user", "message": {"role": "user", "content": "go on"}})
        first = True
        while (raw := await self._next(engine.stdout)).endswith(b"\n"):
            if first and is_resume:
                self._note_resume(time.monotonic() - started)
            if first and works:
                self._kill_in(self._dice.random() * WORK_SECONDS, engine)
            first, line = False, json.loads(raw)
            self._session_id = line.get("session_id") or self._session_id
            if line["type"] == "control_request":
                allowed = {"behavior": "allow", "updatedInput": line["request"]["input"]}
                response = {"subtype": "success", "request_id": line["request_id"], "response": allowed}
                say(engine.stdin, {"type": "control_response", "response": response})
            elif line["type"] in KEPT:
                self._printed[line["uuid"]] = line
            if line["type"] == "result":
                if line.get("result") == ENDED:
                    return True
                self._seen.problem(f"{self._folder.name}: {line}")
                return True
        if engine.returncode is None and await engine.wait() != -9:
            warning = (await engine.stderr.read()).decode()
            self._seen.problem(f"{self._folder.name}: ended with {engine.returncode}: {warning}")
            return True
        return False

    async def _next(self, stdout: asyncio.StreamReader) -> bytes:
        """The next line; half of one, or nothing, at the end."""
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                return await stdout.readline()
        except TimeoutError:
            last = list(self._printed.values())[-1:]
            self._seen.problem(f"{self._folder.name}: hangs behind {last}")
            raise

    def _note_resume(self, seconds: float) -> None:
        self._seen.resume_seconds.append(seconds)

    def _check(self) -> None:
        seen, name = self._seen, self._folder.name
        store = ClaudeStore(self._folder / ".claude", EntryContext(cwd=str(self._folder), version="0"), seen.problem)
        kept = {entry.message.get("uuid"): entry.message for entry in store.read(str(self._session_id))}
        seen.messages += len(self._printed)
        seen.requests += self._worker.requests
        seen.problems += [f"{name}: {problem}" for problem in self._worker.problems]
        for uuid, line in self._printed.items():
            if kept.get(uuid) != line:
                seen.problem(f"{name}: was printed as {line}, and is kept as {kept.get(uuid)}")
        ran = (self._folder / "ran").read_text().split()
        done = sorted(int(id.split("_")[1]) for id in ran)
        if done != [number for number in range(STEPS) if number % 3]:
            seen.problem(f"{name}: these commands ran: {ran}")
        if len(list(self._folder.glob("made-*"))) != len([number for number in range(STEPS) if number % 3 == 0]):
            seen.problem(f"{name}: files are missing")


def say(pipe: asyncio.StreamWriter, line: Json) -> None:
    pipe.write(json.dumps(line).encode() + b"\n")


async def storm(folder: Path, *, kills: int, parallel: int, seed: int, each: int = 10) -> Seen:
    """So many kills, a few to each job."""
    seen, dice, left = Seen(), Random(seed), kills

    async def work(lane: int) -> None:
        nonlocal left
        while left > 0:
            number, mine = seen.jobs, min(each, left)
            left -= mine
            job = Job(folder / f"job-{number}", MODES[number % len(MODES)], Random(dice.random()), mine, seen)
            await job.run()
            left += job.kills_left  # it was done before all of them had come

    async with asyncio.TaskGroup() as tasks:
        for lane in range(parallel):
            tasks.create_task(work(lane))
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        seen = asyncio.run(storm(Path(folder), kills=given.kills, parallel=given.parallel, seed=given.seed))
    if seen.slowest(1) > RESUME_SECONDS:
        seen.problem(f"a resume took {seen.slowest(1):.2f} s")
    for problem in seen.problems:
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write(
        f"{seen.kills} kills in {seen.jobs} jobs, {len(seen.resume_seconds)} resumes, "
        f"half of them within {seen.slowest(0.5):.2f} s, 99 % within {seen.slowest(0.99):.2f} s, "
        f"the slowest {seen.slowest(1):.2f} s; "
        f"{seen.messages} messages printed, {seen.requests} requests; {len(seen.problems)} problems; "
        f"{time.monotonic() - started:.0f} s\n"
    )
    return 1 if seen.problems else 0


if __name__ == "__main__":
    sys.exit(main())
