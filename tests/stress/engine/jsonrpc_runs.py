"""Runs, cancels and questions at random times over JSON-RPC: every call is answered as the dialect says.

    python -m tests.stress.engine.jsonrpc_runs --schedules 10000 --seed 1

Each schedule is a session of its own on a stage where time is played (stage.py). The exit code is 0 if the laws
below held in every schedule.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from tests.helpers.simulation import Json, SimulatedSession, schedules_command
from tests.stress.engine.schedules import Broken

BUSY, IDLE = -32001, -32002


class Script:
    """What the host of one schedule does."""

    def __init__(self, dice: Random, lines: int) -> None:
        self._dice = dice
        self._lines = lines
        self.methods: dict[str, str] = {}
        """What was called, by the ids of the calls."""

    async def act(self, simulated: SimulatedSession) -> None:
        for _ in range(self._lines):
            await asyncio.sleep(self._dice.choice([0, 0, 0.1, 1, 5]) * self._dice.random())
            method = self._dice.choices(["run", "cancel", "status"], [10, 4, 3])[0]
            id = f"{method}-{len(self.methods) + 1}"
            self.methods[id] = method
            simulated.say({"jsonrpc": "2.0", "id": id, "method": method, "params": {"prompt": f"<{id}>"}})


def of(simulated: SimulatedSession, id: str) -> list[Json]:
    return [line for line in simulated.lines if line["id"] == id]


def is_last(line: Json) -> bool:
    return "error" in line or line["result"]["type"] == "result"


def every_run_has_one_end_and_nothing_behind_it(simulated: SimulatedSession, script: Script) -> Iterator[str]:
    for id, method in script.methods.items():
        lines = of(simulated, id)
        if method == "run" and [is_last(line) for line in lines] != [*[False] * (len(lines) - 1), True]:
            yield f"{id} was answered with {lines}"


def one_runs_at_a_time(simulated: SimulatedSession, script: Script) -> Iterator[str]:
    running: str | None = None
    for line in simulated.lines:
        id, code = line["id"], line.get("error", {}).get("code")
        if code == BUSY:
            named = line["error"]["data"]["currentRequestId"]
            if running not in (None, named):
                yield f"{id} was refused for {named}, and {running} ran"
            running = named
        elif script.methods[id] == "run":
            if running not in (None, id):
                yield f"{id} was told of, and {running} ran"
            running = None if is_last(line) else id


def cancels_are_answered_behind_the_result(simulated: SimulatedSession, script: Script) -> Iterator[str]:
    ended = 0
    for line in simulated.lines:
        result = line.get("result", {})
        if result.get("type") == "result":
            ended = 1 if result["subtype"] == "cancelled" else 0
        elif script.methods[line["id"]] == "cancel" and "error" not in line:
            if result != {**result, "subtype": "status", "running": False} or not ended:
                yield f"{line['id']} was answered with {line}, and no run was cancelled before it"
        elif line.get("error", {}).get("code") not in (None, BUSY, IDLE):
            yield f"nobody expects {line}"
    for id, method in script.methods.items():
        if method != "run" and len(of(simulated, id)) != 1:
            yield f"{id} was answered {len(of(simulated, id))} times"


def what_was_taken_was_said_once(simulated: SimulatedSession, script: Script) -> Iterator[str]:
    said = "".join(
        block.get("text", "")
        for message in simulated.session.journal.history.render()
        if message["role"] == "user"
        for block in message["content"]
    )
    for id, method in script.methods.items():
        taken = method == "run" and "error" not in of(simulated, id)[-1]
        if said.count(f"<{id}>") != taken:
            yield f"{id} is {said.count(f'<{id}>')} times in the conversation"
    if simulated.work.running or simulated.model.open or simulated.warnings:
        yield f"{simulated.work.running} tools run, {simulated.model.open} streams are open; {simulated.warnings}"


LAWS: tuple[Callable[[SimulatedSession, Script], Iterator[str]], ...] = (
    every_run_has_one_end_and_nothing_behind_it,
    one_runs_at_a_time,
    cancels_are_answered_behind_the_result,
    what_was_taken_was_said_once,
)


def run(folder: Path, schedules: int, seed: int, lines: int = 14) -> Counter[str]:
    """How runs ended. Raises Broken."""
    ends: Counter[str] = Counter()
    for number in range(schedules):
        dice = Random(f"{seed}-{number}")
        script = Script(dice, dice.randint(1, lines))
        with SimulatedSession(folder, dice, dialect="jsonrpc", include_partial_messages=False) as simulated:
            try:
                simulated.play(script.act)
            except BaseException as exc:
                raise Broken(f"schedule {seed}-{number} did not end: {exc!r}") from exc
            problems = [f"{law.__name__}: {problem}" for law in LAWS for problem in law(simulated, script)]
        if problems:
            raise Broken(f"schedule {seed}-{number}: " + "; ".join(problems))
        last = [line for line in simulated.lines if is_last(line)]
        ends.update(str(line["error"]["code"] if "error" in line else line["result"]["subtype"]) for line in last)
    return ends


if __name__ == "__main__":
    sys.exit(schedules_command(__doc__, run))
