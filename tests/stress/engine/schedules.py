"""Prompts, priorities, cancels and interrupts at random times: none is lost, none runs twice, the order is kept.

    python -m tests.stress.engine.schedules --schedules 10000 --seed 1

Each schedule is a session of its own on a stage where time is played (stage.py). When it has ended, what the
host heard must obey the laws below. The exit code is 0 if they held in every schedule.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from tests.helpers.simulation import Json, SimulatedSession, schedules_command

RANKS = {"now": 0, "next": 1, "later": 2}


class Broken(AssertionError):
    """A law did not hold."""


class Script:
    """What the host of one schedule does."""

    def __init__(self, dice: Random, lines: int) -> None:
        self._dice = dice
        self._lines = lines
        self.ranks: dict[str, int] = {}
        """The prompts, in the order they were sent."""
        self.rejected = 0
        self.asked = 0

    async def act(self, simulated: SimulatedSession) -> None:
        for _ in range(self._lines):
            await asyncio.sleep(self._dice.choice([0, 0, 0.1, 1, 5]) * self._dice.random())
            self._dice.choices(ACTIONS, WEIGHTS)[0](self, simulated)

    def prompt(self, simulated: SimulatedSession) -> None:
        uuid = f"p{len(self.ranks) + 1}"
        priority = self._dice.choices([None, "now", "next", "later"], [5, 1, 2, 2])[0]
        self.ranks[uuid] = RANKS[priority or "next"]
        self._send(simulated, uuid, {"priority": priority} if priority else {})

    def repeat(self, simulated: SimulatedSession) -> None:
        if running := self._known(simulated, "started", "completed"):
            self._send(simulated, self._dice.choice(running), {})

    def cancel(self, simulated: SimulatedSession) -> None:
        if self.ranks:
            simulated.ask(self._new_request(), "cancel_async_message", message_uuid=self._dice.choice(list(self.ranks)))

    def interrupt(self, simulated: SimulatedSession) -> None:
        simulated.ask(self._new_request(), "interrupt", cancel_queued=self._dice.random() < 0.2)

    def mumble(self, simulated: SimulatedSession) -> None:
        self.rejected += 1
        simulated.say({"type": "user", "message": {"role": "user", "content": 5}})

    def _send(self, simulated: SimulatedSession, uuid: str, fields: Json) -> None:
        simulated.say({"type": "user", "message": {"role": "user", "content": f"<{uuid}>"}, "uuid": uuid, **fields})

    def _known(self, simulated: SimulatedSession, *states: str) -> list[str]:
        """Prompts that have come so far. One that was cancelled before it ran may come again, so it does not count."""
        lives = lives_of(simulated.lines)
        return [uuid for uuid, life in lives.items() if life[-1] in states and "started" in life]

    def _new_request(self) -> str:
        self.asked += 1
        return f"r{self.asked}"


ACTIONS: list[Callable[[Script, SimulatedSession], None]] = [
    Script.prompt,
    Script.repeat,
    Script.cancel,
    Script.interrupt,
    Script.mumble,
]
WEIGHTS = [10, 2, 3, 3, 1]


def lives_of(lines: list[Json]) -> dict[str, list[str]]:
    lives: dict[str, list[str]] = {}
    for line in lines:
        if line["type"] == "command_lifecycle":
            lives.setdefault(line["command_uuid"], []).append(line["state"])
    return lives


# The laws.


def every_life_is_whole(simulated: SimulatedSession, script: Script) -> Iterator[str]:
    """Each prompt is queued, then started and ended once, or taken back."""
    whole = (["queued", "started", "completed"], ["queued", "started", "cancelled"], ["queued", "cancelled"])
    lives = lives_of(simulated.lines)
    for uuid in script.ranks:
        if lives.get(uuid) not in whole:
            yield f"the life of {uuid} is {lives.get(uuid)}"


def each_is_in_the_conversation_once(simulated: SimulatedSession, script: Script) -> Iterator[str]:
    """What has started is there once, and what has not is not."""
    said = "".join(
        block.get("text", "")
        for message in simulated.session.journal.history.render()
        if message["role"] == "user"
        for block in message["content"]
    )
    for uuid, life in lives_of(simulated.lines).items():
        if said.count(f"<{uuid}>") != ("started" in life):
            yield f"{uuid} is {said.count(f'<{uuid}>')} times in the conversation, and its life is {life}"


def the_order_is_kept(simulated: SimulatedSession, script: Script) -> Iterator[str]:
    """No one starts while one waits who came earlier or matters more."""
    place = {uuid: (rank, at) for at, (uuid, rank) in enumerate(script.ranks.items())}
    waiting: set[str] = set()
    for line in simulated.lines:
        if line["type"] != "command_lifecycle":
            continue
        uuid, state = line["command_uuid"], line["state"]
        waiting.add(uuid) if state == "queued" else waiting.discard(uuid)
        passed = [other for other in waiting if state == "started" and place[other] < place[uuid]]
        if passed:
            yield f"{uuid} started before {passed}"


def one_result_ends_each_turn(simulated: SimulatedSession, script: Script) -> Iterator[str]:
    """Init, lines, result; and what could not be read has a result as well."""
    open_turn, alone = False, 0
    for line in simulated.lines:
        kind = (line["type"], line.get("subtype"))
        if kind == ("system", "init"):
            if open_turn:
                yield "a turn began inside another"
            open_turn = True
        elif line["type"] == "result":
            alone += not open_turn
            open_turn = False
        elif line["type"] in ("assistant", "stream_event") and not open_turn:
            yield f"a line of the type {line['type']} came after the result of its turn"
    if open_turn or alone != script.rejected:
        yield f"open at the end: {open_turn}; results without a turn: {alone}, unreadable prompts: {script.rejected}"


def nothing_leaks_into_the_next_turn(simulated: SimulatedSession, script: Script) -> Iterator[str]:
    """A turn tells only of answers that it asked for itself."""
    results = 0
    for line in simulated.lines:
        results += line["type"] == "result"
        said = line.get("api_message_id") or line.get("message", {}).get("id")
        if said is not None and simulated.model.answers.get(said) != results:
            yield f"{said} of turn {simulated.model.answers.get(said)} was told in turn {results}"


def results_name_their_prompts(simulated: SimulatedSession, script: Script) -> Iterator[str]:
    """Each prompt that has started is named by exactly one result."""
    named = Counter(
        uuid for line in simulated.lines if line["type"] == "result" for uuid in line.get("user_message_uuids", [])
    )
    started = Counter(uuid for uuid, life in lives_of(simulated.lines).items() if "started" in life)
    if named != started:
        yield f"results name {named - started} too often and {started - named} too seldom"


def every_request_is_answered(simulated: SimulatedSession, script: Script) -> Iterator[str]:
    answered = Counter(line["response"]["request_id"] for line in simulated.lines if line["type"] == "control_response")
    if answered != Counter(f"r{number}" for number in range(1, script.asked + 1)):
        yield f"of {script.asked} requests {len(answered)} were answered, {answered.total()} times"


def every_question_is_settled(simulated: SimulatedSession, script: Script) -> Iterator[str]:
    """Every call has a result, and nothing runs any more."""
    calls = simulated.session.journal.history.open_calls()
    if calls or simulated.work.running or simulated.model.open:
        yield f"open: {calls}, {simulated.work.running} tools, {simulated.model.open} streams"
    if simulated.warnings and not all("refused" in warning for warning in simulated.warnings):
        yield f"warnings: {simulated.warnings}"


LAWS = (
    every_life_is_whole,
    each_is_in_the_conversation_once,
    the_order_is_kept,
    one_result_ends_each_turn,
    nothing_leaks_into_the_next_turn,
    results_name_their_prompts,
    every_request_is_answered,
    every_question_is_settled,
)


def run(folder: Path, schedules: int, seed: int, lines: int = 14) -> Counter[str]:
    """How turns and prompts ended. Raises Broken."""
    ends: Counter[str] = Counter()
    for number in range(schedules):
        dice = Random(f"{seed}-{number}")
        script = Script(dice, dice.randint(1, lines))
        with SimulatedSession(folder, dice) as simulated:
            try:
                simulated.play(script.act)
            except BaseException as exc:
                raise Broken(f"schedule {seed}-{number} did not end: {exc!r}") from exc
            problems = [f"{law.__name__}: {problem}" for law in LAWS for problem in law(simulated, script)]
        if problems:
            raise Broken(f"schedule {seed}-{number}: " + "; ".join(problems))
        ends.update(str(line.get("terminal_reason")) for line in simulated.lines if line["type"] == "result")
        ends.update(f"prompt {life[-1]}" for life in lives_of(simulated.lines).values())
    return ends


if __name__ == "__main__":
    sys.exit(schedules_command(__doc__, run))
