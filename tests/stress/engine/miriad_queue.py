"""Messages, interrupts and questions at random times in the miriad dialect: its queue loses and doubles nothing.

    python -m tests.stress.engine.miriad_queue --schedules 10000 --seed 1

Each schedule is a session of its own on a stage where time is played (stage.py). The host knows nothing but the
lines it sent and heard, as every client of the dialect: what waits, what went in and what ended is reckoned from
them (`Reckoning`) and must agree with what the engine says, line for line, and with the conversation it keeps.
The exit code is 0 if that held in every schedule.
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

JOINT = "\n\n"
NO_TURN = "No turn is currently running"


class Script:
    """What the host of one schedule does."""

    def __init__(self, dice: Random, lines: int) -> None:
        self._dice = dice
        self._lines = lines
        self.prompts: list[str] = []
        self.interrupts = 0
        self.statuses = 0

    async def act(self, simulated: SimulatedSession) -> None:
        for _ in range(self._lines):
            await asyncio.sleep(self._dice.choice([0, 0, 0.1, 1, 5]) * self._dice.random())
            self._dice.choices(ACTIONS, WEIGHTS)[0](self, simulated)

    def prompt(self, simulated: SimulatedSession) -> None:
        name = f"<p{len(self.prompts) + 1}>"
        self.prompts.append(name)
        blocks = [{"type": "text", "text": name}]
        content = name if self._dice.random() < 0.7 else blocks
        simulated.say({"type": "user", "message": {"role": "user", "content": content}, "session_id": name})

    def interrupt(self, simulated: SimulatedSession) -> None:
        self.interrupts += 1
        simulated.say({"type": "control", "action": "interrupt"})

    def status(self, simulated: SimulatedSession) -> None:
        self.statuses += 1
        simulated.say({"type": "control", "action": "status"})


ACTIONS: list[Callable[[Script, SimulatedSession], None]] = [Script.prompt, Script.interrupt, Script.status]
WEIGHTS = [10, 3, 3]


class Reckoning:
    """What a client knows of the queue from what it hears."""

    def __init__(self, script: Script) -> None:
        self._to_come = list(script.prompts)
        self.waiting: list[str] = []
        self.turn: str | None = None
        """The prompt of the turn that runs, or is about to; None if none does, or it has not been told of yet."""
        self.ends: Counter[str] = Counter()
        self.cut = False
        self.calls: list[str] = []
        self.problems: list[str] = []

    def hear(self, line: Json) -> None:
        kind = line.get("subtype") if line["type"] == "system" else line["type"]
        HEARD.get(str(kind), Reckoning.note)(self, line)

    def must(self, fact: object, said: str) -> None:
        if not fact:
            self.problems.append(said)

    def begin(self) -> None:
        """Something of a turn was heard: it is that of the next prompt that was not queued."""
        if self.turn is None and self._to_come:
            self.turn = self._to_come.pop(0)

    def queued(self, line: Json) -> None:
        self.begin()
        came = self._to_come.pop(0) if self._to_come else "nobody"
        self.waiting.append(came)
        said = (line["session_id"], line["position"])
        self.must(said == (came, len(self.waiting)), f"queued {said}, and {self.waiting} wait")

    def injected(self, line: Json) -> None:
        joined, self.waiting = self.waiting[: line["message_count"]], self.waiting[line["message_count"] :]
        self.ends["injected"] += len(joined)
        self.must(not self.waiting, f"{self.waiting} were left out of what went in")
        self.must(line["content_length"] == len(JOINT.join(joined)), f"{joined} have not {line['content_length']}")

    def assistant(self, line: Json) -> None:
        self.begin()
        self.calls += [block["id"] for block in line["message"]["content"] if block["type"] == "tool_use"]

    def tool_result(self, line: Json) -> None:
        call = line["tool_result"]["tool_use_id"]
        self.must(call in self.calls, f"the call {call} was not announced, or has had its result")
        self.calls = [other for other in self.calls if other != call]

    def interrupted(self, line: Json) -> None:
        self.begin()
        self.must(self.turn, "an interrupt was taken and no turn ran")
        self.cut = True

    def error(self, line: Json) -> None:
        self.must(line["message"] == NO_TURN and self.turn is None, f"in turn {self.turn}: {line['message']}")

    def status(self, line: Json) -> None:
        if line["running"]:
            self.begin()
        waits = line["queued_messages"]
        self.must(waits == len(self.waiting), f"{waits} wait by the status, and {self.waiting} do")
        self.must(line["running"] == (self.turn is not None), f"running is {line['running']} in turn {self.turn}")

    def result(self, line: Json) -> None:
        self.begin()
        subtype = line["subtype"]
        self.ends[subtype] += 1
        self.must(self.turn == line["session_id"], f"a result of {line['session_id']} in turn {self.turn}")
        self.must(line["is_error"] == (subtype == "error"), f"is_error is {line['is_error']} of {subtype}")
        self.must(self.cut == (subtype == "cancelled"), f"{self.turn} ended as {subtype}; interrupted: {self.cut}")
        self.must(not self.calls, f"{self.calls} have no result")
        self.turn, self.cut = (self.waiting.pop(0) if self.waiting else None), False

    def note(self, line: Json) -> None:
        self.problems.append(f"nobody expects {line}")


HEARD: dict[str, Callable[[Reckoning, Json], None]] = {
    name: getattr(Reckoning, name)
    for name in ("queued", "injected", "assistant", "tool_result", "interrupted", "error", "status", "result")
}


def flaws_of(simulated: SimulatedSession, script: Script, reckoning: Reckoning) -> Iterator[str]:
    yield from reckoning.problems
    if reckoning.waiting or reckoning.turn is not None:
        yield f"at the end {reckoning.waiting} wait, and {reckoning.turn} runs"
    ends = reckoning.ends
    turns = ends["success"] + ends["cancelled"] + ends["error"]
    if turns + ends["injected"] != len(script.prompts):
        yield f"{len(script.prompts)} prompts, and {dict(ends)}"
    kinds = Counter(line.get("subtype") for line in simulated.lines)
    if kinds["interrupted"] + kinds["error"] - ends["error"] != script.interrupts:
        yield f"{script.interrupts} interrupts, and {dict(kinds)}"
    if kinds["status"] != script.statuses:
        yield f"{script.statuses} times the status was asked for, and told {kinds['status']} times"
    yield from flaws_inside(simulated, script)


def flaws_inside(simulated: SimulatedSession, script: Script) -> Iterator[str]:
    """What the conversation itself has to say, and what still runs."""
    said = JOINT.join(
        block.get("text", "")
        for message in simulated.session.journal.history.render()
        if message["role"] == "user"
        for block in message["content"]
    )
    for name in script.prompts:
        if said.count(name) != 1:
            yield f"{name} is {said.count(name)} times in the conversation"
    if sorted(script.prompts, key=said.find) != script.prompts:
        yield "the order was not kept"
    calls = simulated.session.journal.history.open_calls()
    if calls or simulated.work.running or simulated.model.open or simulated.warnings:
        yield f"open: {calls}, {simulated.work.running} tools, {simulated.model.open} streams; {simulated.warnings}"


def run(folder: Path, schedules: int, seed: int, lines: int = 14) -> Counter[str]:
    """How turns ended, and how many prompts went into one. Raises Broken."""
    ends: Counter[str] = Counter()
    for number in range(schedules):
        dice = Random(f"{seed}-{number}")
        script = Script(dice, dice.randint(1, lines))
        with SimulatedSession(folder, dice, dialect="miriad", include_partial_messages=False) as simulated:
            try:
                simulated.play(script.act)
            except BaseException as exc:
                raise Broken(f"schedule {seed}-{number} did not end: {exc!r}") from exc
            reckoning = Reckoning(script)
            for line in simulated.lines:
                reckoning.hear(line)
            problems = list(flaws_of(simulated, script, reckoning))
        if problems:
            raise Broken(f"schedule {seed}-{number}: " + "; ".join(problems))
        ends.update(reckoning.ends)
    return ends


if __name__ == "__main__":
    sys.exit(schedules_command(__doc__, run))
