"""Interrupts at random moments: each is answered, each turn has one result, and nothing of it is in the next turn.

    python -m tests.stress.engine.interrupts --played 10000 --real 500 --seed 1

`played`: on a stage where time is played (stage.py), at any moment of a turn: before the first byte, in the middle
of a word, while a tool runs, while a question is open, when all has ended. The laws of schedules.py must hold.

`real`: on the real executable with a real model server on loopback, while an answer streams or a command runs.
The report has how long the answer to an interrupt took, and the turn's result, in milliseconds. `--engine` names
another executable with the same protocol, for comparison. The exit code is 0 if all laws held.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from parley.models.script import read_script
from parley.testing.model_server import running
from tests.helpers.environment import base_environment
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.simulation import Json, SimulatedSession
from tests.stress.engine.schedules import LAWS, Broken, Script

PER_SESSION = 20
"""So many interrupts a session has; then another begins."""
STREAM = ("--print", "--output-format", "stream-json", "--verbose", "--input-format", "stream-json")


# Played time.


class Turns(Script):
    """A prompt, an interrupt somewhere in its turn, and so on."""

    def __init__(self, dice: Random, turns: int) -> None:
        super().__init__(dice, turns)
        self.interrupted = 0

    async def act(self, simulated: SimulatedSession) -> None:
        for _ in range(self._lines):
            before = simulated.results
            self.prompt(simulated)
            await asyncio.sleep(self._dice.choice([0, 0.01, 0.3, 1, 3, 9]) * self._dice.random())
            self.interrupt(simulated)
            self.interrupted += 1
            while simulated.results == before:  # noqa: ASYNC110  # played time
                await asyncio.sleep(0.01)

    def prompt(self, simulated: SimulatedSession) -> None:
        uuid = f"p{len(self.ranks) + 1}"
        self.ranks[uuid] = 1
        self._send(simulated, uuid, {})

    def interrupt(self, simulated: SimulatedSession) -> None:
        simulated.ask(self._new_request(), "interrupt")


def play(folder: Path, interrupts: int, seed: int) -> Counter[str]:
    """Where the turns were when they were interrupted. Raises Broken."""
    ends: Counter[str] = Counter()
    for number in range(-(-interrupts // PER_SESSION)):
        dice = Random(f"{seed}-{number}")
        script = Turns(dice, min(PER_SESSION, interrupts - number * PER_SESSION))
        with SimulatedSession(folder, dice) as simulated:
            try:
                simulated.play(script.act)
            except BaseException as exc:
                raise Broken(f"session {seed}-{number} did not end: {exc!r}") from exc
            problems = [f"{law.__name__}: {problem}" for law in LAWS for problem in law(simulated, script)]
        if simulated.results != script.interrupted:
            problems.append(f"{script.interrupted} turns had {simulated.results} results")
        if problems:
            raise Broken(f"session {seed}-{number}: " + "; ".join(problems))
        ends.update(str(line.get("terminal_reason")) for line in simulated.lines if line["type"] == "result")
    return ends


# The real executable.


class Engine:
    """A process, its lines, and when they came."""

    def __init__(self, command: list[str], folder: Path, url: str, mode: str = "bypassPermissions") -> None:
        environment = {
            "HOME": str(folder),
            "TMPDIR": str(folder),
            **base_environment(),
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "key-of-nobody",
            "IS_SANDBOX": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        argv = [*command, *STREAM, "--include-partial-messages", "--permission-mode", mode]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, env=environment, bufsize=0
        )
        self._rest = b""
        self._asked = 0

    def say(self, line: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")

    def ask(self, subtype: str) -> str:
        self._asked += 1
        request_id = f"r{self._asked}"
        self.say({"type": "control_request", "request_id": request_id, "request": {"subtype": subtype}})
        return request_id

    def hear(self) -> tuple[Json, float]:
        """The next line and when it came. Raises Broken at the end."""
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise Broken("the engine has ended")
            self._rest += chunk
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line), time.perf_counter()

    def until(self, wanted: Any) -> tuple[list[Json], float]:
        """The lines up to the one that is wanted, and when that came."""
        lines: list[Json] = []
        while True:
            line, at = self.hear()
            lines.append(line)
            if wanted(line):
                return lines, at

    def close(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            return self._process.wait(PATIENCE_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()


def is_answer(request_id: str) -> Any:
    return lambda line: line["type"] == "control_response" and line["response"]["request_id"] == request_id


def interrupt_once(engine: Engine, number: int, dice: Random) -> tuple[float, float]:
    """One turn, cut at a random place: seconds to the answer, and to the result. Raises Broken."""
    tool = dice.random() < 0.5
    mark = word(number)
    kind = "SLEEP" if tool else "TALK"
    engine.say({"type": "user", "message": {"role": "user", "content": f"{kind} {number}."}})
    begins = (
        (lambda line: line["type"] == "assistant") if tool else (lambda line: "text_delta" in str(line.get("event")))
    )
    lines, _ = engine.until(begins)
    time.sleep(dice.random() * 0.05)
    asked_at = time.perf_counter()
    request_id = engine.ask("interrupt")
    before, answered_at = engine.until(is_answer(request_id))
    after, result_at = engine.until(lambda line: line["type"] == "result")
    check(lines + before + after, after[-1], mark)
    return answered_at - asked_at, result_at - asked_at


def check(lines: list[Json], result: Json, mark: str) -> None:
    """Raises Broken."""
    if not result.get("terminal_reason", "").startswith("aborted_"):
        raise Broken(f"{mark}: the turn was not cut: {result}")
    if sum(line["type"] == "result" for line in lines) != 1:
        raise Broken(f"{mark}: there is more than one result")
    said = [json.dumps(line) for line in lines if line["type"] in ("assistant", "stream_event")]
    others = [text for text in said if "<" in text and f"<{mark}" not in text]
    if others:
        raise Broken(f"{mark}: a line of another turn: {others[0]}")


def word(number: int) -> str:
    return f"n{number}"


def script_of(interrupts: int) -> str:
    """For each number an answer that streams for long, and one that has a command run for long."""
    turns = []
    for number in range(interrupts):
        mark = f"<{word(number)}>"
        turns.append(
            f'[[turn]]\nwhen = "TALK {number}."\ntext = "{mark * 100}"\nchunk_chars = {len(mark)}\nevent_delay_ms = 5\n'
        )
        command = f"echo '{mark}'; sleep 20; :"
        turns.append(
            f'[[turn]]\nwhen = "SLEEP {number}."\ntools = [{{name = "Bash", input = {{command = "{command}"}}}}]\n'
        )
    return "".join(turns)


def run_real(folder: Path, interrupts: int, seed: int, command: list[str]) -> tuple[list[float], list[float]]:
    """Seconds from each interrupt to its answer, and to the result. Raises Broken."""
    dice = Random(seed)
    answers: list[float] = []
    results: list[float] = []
    with running(read_script(script_of(interrupts), "interrupts")) as server:
        for first in range(0, interrupts, PER_SESSION):
            engine = Engine(command, folder, server.url)
            try:
                engine.until(is_answer(engine.ask("initialize")))
                for number in range(first, min(interrupts, first + PER_SESSION)):
                    answered, ended = interrupt_once(engine, number, dice)
                    answers.append(answered)
                    results.append(ended)
            finally:
                engine.close()
    return answers, results


def percentiles(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    picks = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return ", ".join(
        f"{name} {1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]:.1f} ms"
        for name, share in picks.items()
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--played", type=int, default=10_000)
    parser.add_argument("--real", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", default=str(Path(sys.executable).with_name("parley")))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if chosen.played:
            ends = play(Path(folder), chosen.played, chosen.seed)
            sys.stdout.write(
                f"{chosen.played} interrupts in played time, all laws held: {dict(sorted(ends.items()))}\n"
            )
        if chosen.real:
            answers, results = run_real(Path(folder), chosen.real, chosen.seed, [chosen.engine])
            sys.stdout.write(f"{chosen.real} interrupts of the executable, all laws held\n")
            sys.stdout.write(f"  answer: {percentiles(answers)}\n  result: {percentiles(results)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
