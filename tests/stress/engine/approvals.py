"""Hosts that answer permission questions in every wrong way: what runs is what was approved, and nothing else.

    python -m tests.stress.engine.approvals --schedules 5000 --seed 1

Each schedule is a session on a stage where time is played (stage.py). Its host alters inputs, answers
twice, late, early, for other calls, for withdrawn questions, with forged ids and with nonsense, and
interrupts in between; two questions are often open at once. The laws below look at what ran.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from parley.engine.approval.request import input_digest
from parley.models.base import ModelEvent, ModelRequest
from parley.models.event_synthesis import message_json, synthesize_events
from parley.protocol.base import Struct
from parley.tools.base import Context, Tool, ToolOutput, ToolRegistry
from parley.workspace.base import Scope
from tests.helpers.simulation import Json, SimulatedSession

FORBIDDEN = "forbidden"
SETTINGS = {"permissions": {"ask": ["Look"], "deny": [f"Act(text:{FORBIDDEN})", f"Look(text:{FORBIDDEN})"]}}
GRANT = {"type": "addRules", "rules": [{"toolName": "Act"}], "behavior": "allow", "destination": "session"}
BYPASS = {"type": "setMode", "mode": "bypassPermissions", "destination": "session"}


class Broken(AssertionError):
    """A law did not hold."""


class ActInput(Struct, frozen=True):
    text: str
    numbers: list[int]


class Act(Tool):
    """A tool that notes what it was run with."""

    name = "Act"
    description = "Acts."
    reads_only = False
    input = ActInput

    def __init__(self, ran: list[Json], dice: Random) -> None:
        self._ran = ran
        self._dice = dice

    async def run(self, call: ActInput, context: Context, reach: Scope) -> ToolOutput:
        self._ran.append(msgspec.to_builtins(call))
        await asyncio.sleep(self._dice.random())
        return ToolOutput(content="acted")


class Look(Act):
    """One that only reads, so that several run side by side."""

    name = "Look"
    reads_only = True


class Eager:
    """A model that calls one tool, or two at once, and then says that it is done."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._numbers = count(1)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        dice, number = self._dice, next(self._numbers)
        blocks: list[Json] = [{"type": "text", "text": "word"}]
        name = dice.choice(["Act", "Look", "Look"])
        for at in range(dice.choice([0, 1, 1, 2, 2, 3])):
            text = FORBIDDEN if dice.random() < 0.05 else f"text {number} {at}"
            input = {"text": text, "numbers": [number, at]}
            blocks.append({"type": "tool_use", "id": f"call_{number}_{at}", "name": name, "input": input})
        usage = {"input_tokens": 1, "output_tokens": 1}
        for event in synthesize_events(message_json(blocks, id=f"msg_{number}", model=request.model, usage=usage)):
            yield event

    async def close(self) -> None:
        pass


class Court(SimulatedSession):
    """A stage whose host answers as the dice say."""

    def __init__(self, folder: Path, dice: Random) -> None:
        super().__init__(folder, dice, settings=msgspec.json.encode(SETTINGS).decode())
        self.ran: list[Json] = []
        self.replies: dict[Any, list[Any]] = {}
        """What was sent for a question after it was heard, by its id, in the order of sending."""
        self.kinds: Counter[str] = Counter()
        model = Eager(dice)
        shelf = ToolRegistry(["Act", "Look"], lambda name: (Look if name == "Look" else Act)(self.ran, dice))
        self._setup = msgspec.structs.replace(self._setup.with_model_opener(lambda choice: model), tools=shelf)

    def questions(self) -> dict[str, Json]:
        asked = (line for line in self.lines if line["type"] == "control_request")
        return {line["request_id"]: line["request"] for line in asked}

    async def act(self, simulated: SimulatedSession) -> None:
        for _ in range(self.dice.randint(1, 4)):
            self.say({"type": "user", "message": {"role": "user", "content": "go"}})
            await asyncio.sleep(self.dice.random() * 6)
            if self.dice.random() < 0.3:
                self.ask(f"i{len(self.lines)}", "interrupt")
            if self.dice.random() < 0.3:
                self._answer_too_early()
        await asyncio.sleep(self.dice.choice([0, 5, 60]))

    async def _answer(self, request_id: str) -> None:
        name, answer = self.dice.choice(list(ANSWERS.items()))
        self.kinds[name] += 1
        for wait, response in answer(self, request_id, self.questions()[request_id]):
            await asyncio.sleep(wait)
            self.reply(request_id, response)

    def reply(self, request_id: Any, response: Json) -> None:
        named = response.get("request_id", request_id)
        self.replies.setdefault(named, []).append(response)
        self._send({"type": "control_response", "response": {"request_id": request_id, **response}})

    def _answer_too_early(self) -> None:
        """Ids are counted here, so that the next ones can be guessed."""
        newest = max(self.questions(), default="00000000-0000-4000-8000-000000000001")
        self.kinds["too early"] += 1
        for step in range(1, 12):
            guessed = f"{newest[:-12]}{int(newest[-12:]) + step:012d}"
            forged = {"behavior": "allow", "toolUseID": "forged"}
            response = {"subtype": "success", "request_id": guessed, "response": forged}
            self._send({"type": "control_response", "response": response})

    def _send(self, line: Json) -> None:
        with contextlib.suppress(BrokenPipeError):  # we may have hung up meanwhile
            self.say(line)


Answer = Callable[[Court, str, Json], Iterator[tuple[float, Json]]]
ANSWERS: dict[str, Answer] = {}


def says(answer: Answer) -> Answer:
    ANSWERS[answer.__name__.replace("_", " ")] = answer
    return answer


def yes(**fields: Any) -> Json:
    return {"subtype": "success", "response": {"behavior": "allow", **fields}}


NO: Json = {"subtype": "success", "response": {"behavior": "deny", "message": "no"}}
NONSENSE: list[Any] = [
    *({}, [], "allow", None, 7, {"behavior": "ALLOW"}, {"behavior": "delegate"}, {"behavior": "deny"}),
    *({"behavior": "allow", "updatedInput": "x"}, {"behavior": "allow", "updatedPermissions": [{"type": "all"}]}),
    *({"behavior": ["allow"]}, {"behavior": "allow", "toolUseID": 5}, {"behaviour": "allow"}),
]


@says
def plainly_allowed(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    yield court.dice.random(), yes(toolUseID=asked["tool_use_id"])


@says
def allowed_without_a_name(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    yield court.dice.random(), yes()


@says
def altered(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    yield court.dice.random(), yes(updatedInput={"text": "altered", "numbers": [court.dice.randint(0, 99)]})


@says
def altered_into_what_is_forbidden(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    yield court.dice.random(), yes(updatedInput={**asked["input"], "text": FORBIDDEN})


@says
def altered_into_no_input(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    yield court.dice.random(), yes(updatedInput={"text": 5})


@says
def granted_for_the_session(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    if court.dice.random() < 0.2:
        yield court.dice.random(), yes(updatedPermissions=[GRANT])
    else:
        yield court.dice.random(), yes(updatedPermissions=[BYPASS])


@says
def denied(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    yield court.dice.random(), NO


@says
def denied_and_stopped(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    yield court.dice.random(), {"subtype": "success", "response": {**NO["response"], "interrupt": True}}


@says
def failed(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    yield court.dice.random(), {"subtype": "error", "error": "no"}


@says
def nonsense(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    yield court.dice.random(), {"subtype": "success", "response": court.dice.choice(NONSENSE)}


@says
def for_another_call(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    yield court.dice.random(), yes(toolUseID=court.dice.choice(["", "call_0_0", asked["tool_use_id"] + "0"]))


@says
def with_ids_swapped(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    """The answer to this question goes out under the id of another; its own is denied later."""
    other = court.dice.choice(list(court.questions()))
    yield court.dice.random(), yes(toolUseID=asked["tool_use_id"]) | {"request_id": other}
    yield 1, NO


@says
def twice_no_first(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    yield court.dice.random(), NO
    yield court.dice.choice([0, 0.5]), yes()


@says
def twice_yes_first(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    yield court.dice.random(), yes()
    yield court.dice.choice([0, 0.5]), yes(updatedInput={"text": "second", "numbers": []})
    yield court.dice.choice([0, 0.5]), NO


@says
def forged_ids(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    for forged in ("", "x", id + "0", id.upper() + " ", 7):
        yield 0, yes(toolUseID=asked["tool_use_id"]) | {"request_id": forged}
    yield court.dice.random(), court.dice.choice([yes(), NO])


@says
def late(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    yield court.dice.choice([3, 8, 50]), yes()


@says
def never(court: Court, id: str, asked: Json) -> Iterator[tuple[float, Json]]:
    yield from ()


# The laws.


def approved(court: Court, request_id: str) -> str | None:
    """The hash that the first answer to a question approves; None if it approves nothing."""
    asked = court.questions()[request_id]
    replies = court.replies.get(request_id) or [NO]
    answer = replies[0].get("response")
    if not isinstance(answer, dict) or answer.get("behavior") != "allow":
        return None
    if answer.get("toolUseID") not in (None, asked["tool_use_id"]):
        return None
    return input_digest(answer.get("updatedInput") or asked["input"])


def records(court: Court) -> list[Json]:
    return [entry.message for entry in court.session.config.storage.log.entries() if entry.kind == "permission"]


def what_runs_was_approved(court: Court) -> Iterator[str]:
    """By the first answer to the question about this very call, or by a rule that the host gave."""
    allowed = {record["tool_use_id"]: record for record in records(court) if record["decision"] == "allow"}
    asked = {question["tool_use_id"]: id for id, question in court.questions().items()}
    hashes = Counter(record["input_sha256"] for record in allowed.values())
    for executed in court.ran:
        if not hashes[input_digest(executed)]:
            yield f"{executed} ran without an approval of its own"
        hashes[input_digest(executed)] -= 1
    for id, record in allowed.items():
        if record["source"] == "host" and approved(court, asked[id]) != record["input_sha256"]:
            yield f"{id} was allowed although the host said {court.replies.get(asked[id])}"
        if record["source"] != "host" and (record["source"], record.get("rule")) != ("rule", "Act"):
            yield f"{id} was allowed by {record}"


def grants_come_from_the_host(court: Court) -> Iterator[str]:
    granted = any(
        reply.get("response", {}).get("updatedPermissions") == [GRANT]
        for replies in court.replies.values()
        for reply in replies[:1]
        if isinstance(reply.get("response"), dict)
    )
    if not granted and any(record["source"] == "rule" and record["decision"] == "allow" for record in records(court)):
        yield "a rule allowed a call that nobody gave"
    if court.session.mode != "default":
        yield f"the session went into {court.session.mode}"


def nothing_forbidden_runs(court: Court) -> Iterator[str]:
    if any(executed["text"] == FORBIDDEN for executed in court.ran):
        yield "what a rule forbids ran"


def questions_show_the_hash_of_what_they_show(court: Court) -> Iterator[str]:
    for question in court.questions().values():
        if question["input_sha256"] != input_digest(question["input"]):
            yield f"{question} has a wrong hash"


def each_call_has_one_decision_and_one_result(court: Court) -> Iterator[str]:
    blocks = [
        block
        for line in court.lines
        if line["type"] in ("assistant", "user") and isinstance(line["message"]["content"], list)
        for block in line["message"]["content"]
    ]
    calls = Counter(block["id"] for block in blocks if block["type"] == "tool_use")
    results = Counter(block["tool_use_id"] for block in blocks if block["type"] == "tool_result")
    if calls != results:
        yield f"calls {calls}, results {results}"
    if twice := [id for id, times in Counter(record["tool_use_id"] for record in records(court)).items() if times > 1]:
        yield f"decided on twice: {twice}"


def each_turn_has_one_result(court: Court) -> Iterator[str]:
    started = sum(line.get("subtype") == "init" for line in court.lines)
    if started != court.results:
        yield f"{started} turns, {court.results} results"


LAWS = (
    what_runs_was_approved,
    grants_come_from_the_host,
    nothing_forbidden_runs,
    questions_show_the_hash_of_what_they_show,
    each_call_has_one_decision_and_one_result,
    each_turn_has_one_result,
)


def run(folder: Path, schedules: int, seed: int) -> Counter[str]:
    """How often each kind of answer was given, and how many calls ran. Raises Broken."""
    seen: Counter[str] = Counter()
    for number in range(schedules):
        court = Court(folder, Random(f"{seed}-{number}"))
        with court:
            try:
                court.play(court.act)
            except BaseException as exc:
                raise Broken(f"schedule {seed}-{number} did not end: {exc!r}") from exc
            problems = [f"{law.__name__}: {problem}" for law in LAWS for problem in law(court)]
        if problems:
            raise Broken(f"schedule {seed}-{number}: " + "; ".join(problems))
        seen += court.kinds
        seen["calls that ran"] += len(court.ran)
        seen["calls that were denied"] += sum(record["decision"] == "deny" for record in records(court))
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen = run(Path(folder), chosen.schedules, chosen.seed)
    sys.stdout.write(f"{chosen.schedules} schedules, all laws held: {dict(sorted(seen.items()))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
