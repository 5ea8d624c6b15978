"""How much of a long session is found again: facts planted in it, and asked for when they are long out of sight.

    python bench/recall.py                              # 5,000 messages, 100 facts, then what a turn costs more
    python bench/recall.py --messages 400 --facts 16 --turns 20

The model is a puppet that says little, reads files and, when it is asked a question, searches its memory with the
words of the question. The curator is one too: it keeps every second fact in the tree, the ones that are announced.
Other messages speak of the same things and the same places, so that words alone do not give a fact away. What is
measured: at which place of a search the fact is, in messages and in the tree, and whether it reaches the answer of a
turn. What must hold, or the programme fails: no request is larger than the budget, every fact is found, and the
session reads the same after a resume.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from parley.compose.composer import Composer
from parley.engine.context.history import tokens, weight
from parley.engine.session.config import Setup
from parley.engine.session.hub import Hub
from parley.memory.base import Keeper, Recall
from parley.models.base import Event, ModelRequest
from parley.models.event_synthesis import events_of, message_json
from parley.protocol.base import Json, Message, Struct
from parley.protocol.messages.conversation import User, UserContent
from parley.protocol.messages.dialects import Consolidation
from parley.protocol.messages.result import Result
from parley.protocol.options import Options

THINGS = "backup invoice badge archive printer garden kitchen server parcel contract window heating boat piano"
PLACES = "Turin Bergen Porto Lviv Galway Tartu Gdansk Nantes Murcia Zadar Leiden Uppsala Trieste Bruges"
TOPICS = "weather meeting holiday report budget coffee train invitation"
ANNOUNCED = "Note well:"
VIEW_TOKENS = 8_000
PLACES_OF_HITS = (1, 3, 8)


class Fact(Struct, frozen=True):
    thing: str
    place: str
    answer: str
    announced: bool
    in_file: bool

    @property
    def text(self) -> str:
        told = f"the word for the {self.thing} in {self.place} is {self.answer}"
        return f"{ANNOUNCED} {told}." if self.announced else f"By the way, {told}."

    @property
    def question(self) -> str:
        return f"What was the word for the {self.thing} in {self.place}?"


def facts(number: int, dice: Random) -> list[Fact]:
    pairs = [(thing, place) for thing in THINGS.split() for place in PLACES.split()]
    dice.shuffle(pairs)
    if number > len(pairs):
        raise SystemExit(f"there can be {len(pairs)} facts at most")
    return [
        Fact(thing, place, f"{thing[:2]}{place[:2]}{dice.randrange(10_000, 99_999)}".lower(), at % 2 == 0, at % 4 == 1)
        for at, (thing, place) in enumerate(pairs[:number])
    ]


def chatter(dice: Random) -> str:
    """What is said beside: of the same things and places, and of no word for any of them."""
    thing, other, place = (dice.choice(names.split()) for names in (THINGS, TOPICS, PLACES))
    return f"The {thing} came up again, and the {other} in {place}. " + "It went on for a while. " * dice.randrange(4)


class Puppet:
    """The session's model, its curator and its writer of summaries."""

    def __init__(self) -> None:
        self._ids = count(1)
        self.largest = 0
        self.requests = 0
        self._asked = ("", "")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Event, None]:
        role = str(request.system[0]["text"] if request.system else "")
        if role.startswith("You look after"):
            blocks = self._curate(request)
        elif role.startswith("You write summaries"):
            blocks = [said(str(request.messages[0]["content"][0]["text"])[-400:])]
        else:
            self._note(request)
            blocks = self._answer(request)
        usage = {"input_tokens": size(request), "output_tokens": sum(map(weight, blocks))}
        message = message_json(blocks, id=f"msg_{next(self._ids)}", model=request.model, usage=usage)
        for event in events_of(message, 4_000):
            yield event

    async def close(self) -> None:
        pass

    def _note(self, request: ModelRequest) -> None:
        self.requests += 1
        self.largest = max(self.largest, size(request))

    def _answer(self, request: ModelRequest) -> list[Json]:
        last = request.messages[-1]["content"][-1]
        if last["type"] == "tool_result":
            return [said(self._concluded(str(last["content"])))]
        text = str(last.get("text"))
        if text.startswith("What was"):
            self._asked = re.findall(r"the (\w+) in (\w+)\?", text)[0]
            return [self._call("memory_search", query=text, limit=8)]
        if text.startswith("Read "):
            return [self._call("Read", file_path=text.partition(" ")[2])]
        return [said("I see.")]

    def _concluded(self, result: str) -> str:
        """What a reader makes of a result who only believes what is there."""
        thing, place = self._asked
        told = re.search(rf"the word for the {thing} in {place} is (\w+)", result)
        known = re.search(rf"The {thing} in {place}\): Its word is (\w+)", result)
        return f"It is {(told or known)[1]}." if told or known else "I do not know."  # type: ignore[index]

    def _curate(self, request: ModelRequest) -> list[Json]:
        if len(request.messages) > 1:
            return [said("Kept what was announced.")]
        pattern = rf"\[#(\d+) \w+, [^\]]*\]\n(?:(?!\n\n\[#).)*?{ANNOUNCED} the word for the (\w+) in (\w+) is (\w+)"
        found = re.findall(pattern, str(request.messages[0]["content"][0]["text"]), re.DOTALL)
        return [
            self._call(
                "memory_create",
                slug=f"{thing}-{place}".lower(),
                title=f"The {thing} in {place}",
                body=f"Its word is {answer}.",
                sources=[int(number)],
            )
            for number, thing, place, answer in found
        ] or [said("Nothing was announced.")]

    def _call(self, name: str, **input: Any) -> Json:
        return {"type": "tool_use", "id": f"toolu_{next(self._ids)}", "name": name, "input": input}


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def said(text: str) -> Json:
    return {"type": "text", "text": text}


def size(request: ModelRequest) -> int:
    blocks = (block for message in request.messages for block in message["content"])
    return sum(map(weight, (*blocks, *request.tools))) + sum(tokens(len(part["text"])) for part in request.system)


class Ear:
    """A host that only listens."""

    def __init__(self) -> None:
        self.results: asyncio.Queue[Result] = asyncio.Queue()
        self.consolidations: list[Consolidation] = []

    def tell(self, message: Message) -> None:
        if isinstance(message, Result):
            self.results.put_nowait(message)
        elif isinstance(message, Consolidation):
            self.consolidations.append(message)

    async def ask(self, request: object, request_id: str | None = None) -> Any:
        raise NotImplementedError

    async def reached(self) -> bool:
        return True

    def pending(self) -> list[Any]:
        return []


class Talk:
    """A session in this process."""

    def __init__(self, folder: Path, puppet: Puppet, **options: Any) -> None:
        memory = {"viewTokens": VIEW_TOKENS, "trivialTokens": 2_000}
        given: Json = {
            "model": "puppet",
            "database": str(folder / "agent.db"),
            "tools": ("Read", "memory_search"),
            "system_prompt": "Be brief.",
            "settings": json.dumps({"memory": memory}),
        }
        environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "TMPDIR": str(folder), "PARLEY_FSYNC": "off"}
        composer = Composer(Options(**{**given, **options}), environment, str(folder))
        setup: Setup = composer.setup(tell)
        self.ear, self._hub = Ear(), Hub()
        opened = msgspec.structs.replace(setup, open_model=lambda choice: puppet)
        self.session = self._hub.open(opened, self.ear)
        self._running = asyncio.create_task(self.session.run_turns())

    async def say(self, text: str) -> Result:
        self.session.handle(User(message=UserContent(content=text)))
        return await self.ear.results.get()

    async def end(self) -> None:
        self.session.finish()
        await self._running
        self._hub.close(self.session.id)

    @property
    def keeper(self) -> Keeper:
        assert self.session.remembering is not None
        return self.session.remembering.keeper


def prompts(planted: list[Fact], messages: int, folder: Path, dice: Random) -> Iterator[tuple[str, int]]:
    """What is said, and how many messages come of it; the facts are in the first nine tenths."""
    places = dict(zip(sorted(dice.sample(range(int(messages * 0.36)), len(planted))), planted, strict=True))
    told = turn = 0
    while told < messages:
        fact = places.get(turn)
        text = chatter(dice) if fact is None else f"{chatter(dice)}{fact.text}"
        lines = 2
        if (fact is not None and fact.in_file) or turn % 17 == 0:
            path = folder / f"note-{turn}.txt"
            path.write_text(text)
            text, lines = f"Read {path}", 4
        yield text, lines
        told, turn = told + lines, turn + 1


async def run(folder: Path, messages: int, number: int, seed: int) -> list[str]:
    """What was found is printed; what must hold and does not is returned."""
    dice, puppet, flaws = Random(seed), Puppet(), list[str]()
    planted = facts(number, dice)
    talk = Talk(folder, puppet)
    begun = time.monotonic()
    told = 0
    for text, lines in prompts(planted, messages, folder, dice):
        result = await talk.say(text)
        told += lines
        if result.is_error:
            return [f"a turn failed: {result}"]
    seconds = time.monotonic() - begun
    in_view = sum(fact.answer in str(talk.session.record.history.messages()) for fact in planted)
    assert talk.session.remembering is not None
    talk.session.remembering.begin()
    await talk.session.remembering.settled(60)
    places = [place_of(fact, talk.keeper.recall) for fact in planted]
    answered = [fact.answer in str((await talk.say(fact.question)).result) for fact in planted]
    before = talk.session.conversation.request()
    await talk.end()
    again = Talk(folder, puppet, resume=talk.session.id)
    if again.session.conversation.request() != before:
        flaws.append("the resumed session does not read what it read before")
    await again.end()

    created = sum(line.entries_created for line in talk.ear.consolidations)
    tell(f"{told} messages, {puppet.requests} requests, {seconds:.1f} s")
    tell(f"the largest request: {puppet.largest} tokens of {VIEW_TOKENS}; {in_view} of {number} facts are in view")
    tell(f"{len(talk.ear.consolidations)} consolidations, {created} entries")
    report("messages", [messages for messages, _ in places], number)
    kept = [fact.announced for fact in planted]
    report("tree", [at for (_, at), is_kept in zip(places, kept, strict=True) if is_kept], sum(kept))
    tell(f"answers with the fact in them: {sum(answered)} of {number}")
    if puppet.largest > VIEW_TOKENS:
        flaws.append(f"a request had {puppet.largest} tokens; the budget is {VIEW_TOKENS}")
    flaws += [f"not found: {fact.text}" for fact, (at, _) in zip(planted, places, strict=True) if at is None]
    flaws += [f"not answered: {fact.text}" for fact, is_there in zip(planted, answered, strict=True) if not is_there]
    flaws += [
        f"not in the tree: {fact.text}"
        for fact, (_, at) in zip(planted, places, strict=True)
        if fact.announced and at is None
    ]
    return flaws


def place_of(fact: Fact, recall: Recall) -> tuple[int | None, int | None]:
    """Where among the hits a fact is: among messages, and among entries."""
    found = recall.search(fact.question, 50)
    messages = [any(fact.answer in line.text for line in recall.messages(hit.seq, hit.seq)) for hit in found.messages]
    return first(messages), first([fact.answer in entry.body for entry in found.entries])


def first(hits: list[bool]) -> int | None:
    return hits.index(True) + 1 if True in hits else None


def report(where: str, places: list[int | None], number: int) -> None:
    shares = [sum(at is not None and at <= most for at in places) / max(1, number) for most in PLACES_OF_HITS]
    told = ", ".join(f"{share:.0%} in the first {most}" for most, share in zip(PLACES_OF_HITS, shares, strict=True))
    tell(f"{where}: {told}")


async def cost(folder: Path, turns: int) -> tuple[float, float, float]:
    """Milliseconds of processor time of a turn: without a memory, with one, and with one that consolidates a lot."""
    busy = {"settings": json.dumps({"memory": {"trivialTokens": 0}})}
    kinds: list[Json] = [{"memory": "off"}, {}, busy]
    talks = [Talk(folder / str(at), Puppet(), **options) for at, options in enumerate(kinds)]
    best = [float("inf")] * len(talks)
    for _ in range(5):  # taking turns, so that what else the machine does hits all of them
        for at, talk in enumerate(talks):
            begun = time.process_time()
            for _ in range(turns):
                await talk.say("Something of no importance was said here.")
            best[at] = min(best[at], (time.process_time() - begun) / turns * 1000)
    for talk in talks:
        await talk.end()
    return best[0], best[1], best[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--facts", type=int, default=100)
    parser.add_argument("--turns", type=int, default=100, help="for the cost of a turn")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        flaws = asyncio.run(run(Path(folder), given.messages, given.facts, given.seed))
        for at in range(3):
            Path(folder, str(at)).mkdir()
        without, plain, busy = asyncio.run(cost(Path(folder), given.turns))
    tell(f"a turn: {without:.2f} ms without a memory, {plain:.2f} ms with one, {busy:.2f} ms with each looked through")
    for flaw in flaws:
        tell(f"FLAW: {flaw}")
    return 1 if flaws else 0


if __name__ == "__main__":
    sys.exit(main())
