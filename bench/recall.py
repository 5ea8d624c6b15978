"""Measure recall in a long session: facts are planted in it and asked for when they are out of the context.

    python bench/recall.py                              # 5,000 messages, 100 facts, then the cost per turn
    python bench/recall.py --messages 400 --facts 16 --turns 20

A fake model says little, reads files and, when asked a question, searches its memory with the words of the question.
The curator is fake too: it stores every second fact in the tree, the announced ones. Other messages mention the same
things and places, so that single words do not identify a fact. Measured are the rank of the fact in a search, among
messages and in the tree, and whether it reaches the answer of a turn. The exit code is 1 if a request exceeds the
budget, a fact is not found, or the session differs after a resume.
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
from parley.engine.context.history import estimate_tokens, tokens_from_chars
from parley.engine.session.config import SessionConfig
from parley.engine.session.session import Session
from parley.memory.base import Recall
from parley.memory.session_memory import SessionMemory
from parley.memory.worker import LocalMemoryWorker
from parley.models.base import ModelEvent, ModelRequest
from parley.models.event_synthesis import message_json, synthesize_events
from parley.protocol.base import Json, Message, Struct
from parley.protocol.messages.conversation import User, UserContent
from parley.protocol.messages.dialects import Consolidation
from parley.protocol.messages.result import Result
from parley.protocol.options import CliOptions

THINGS = "backup invoice badge archive printer garden kitchen server parcel contract window heating boat piano"
PLACES = "Turin Bergen Porto Lviv Galway Tartu Gdansk Nantes Murcia Zadar Leiden Uppsala Trieste Bruges"
TOPICS = "weather meeting holiday report budget coffee train invitation"
ANNOUNCED = "Note well:"
VIEW_TOKENS = 8_000
RANKS = (1, 3, 8)


class Fact(Struct, frozen=True):
    thing: str
    place: str
    answer: str
    announced: bool
    in_file: bool

    @property
    def text(self) -> str:
        sentence = f"the word for the {self.thing} in {self.place} is {self.answer}"
        return f"{ANNOUNCED} {sentence}." if self.announced else f"By the way, {sentence}."

    @property
    def question(self) -> str:
        return f"What was the word for the {self.thing} in {self.place}?"


def facts(number: int, random: Random) -> list[Fact]:
    pairs = [(thing, place) for thing in THINGS.split() for place in PLACES.split()]
    random.shuffle(pairs)
    if number > len(pairs):
        raise SystemExit(f"at most {len(pairs)} facts are possible")
    return [
        Fact(
            thing, place, f"{thing[:2]}{place[:2]}{random.randrange(10_000, 99_999)}".lower(), at % 2 == 0, at % 4 == 1
        )
        for at, (thing, place) in enumerate(pairs[:number])
    ]


def filler(random: Random) -> str:
    """Filler about the same things and places, without a word for any of them."""
    thing, other, place = (random.choice(names.split()) for names in (THINGS, TOPICS, PLACES))
    return f"The {thing} came up again, and the {other} in {place}. " + "It went on for a while. " * random.randrange(4)


class FakeModel:
    """The session's model, its curator and its summarizer."""

    def __init__(self) -> None:
        self._ids = count(1)
        self.largest = 0
        self.requests = 0
        self._asked = ("", "")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        role = str(request.system[0]["text"] if request.system else "")
        if role.startswith("You look after"):
            blocks = self._curate(request)
        elif role.startswith("You write summaries"):
            blocks = [text_block(str(request.messages[0]["content"][0]["text"])[-400:])]
        else:
            self._count(request)
            blocks = self._answer(request)
        usage = {"input_tokens": size(request), "output_tokens": sum(map(estimate_tokens, blocks))}
        message = message_json(blocks, id=f"msg_{next(self._ids)}", model=request.model, usage=usage)
        for event in synthesize_events(message, 4_000):
            yield event

    async def close(self) -> None:
        pass

    def _count(self, request: ModelRequest) -> None:
        self.requests += 1
        self.largest = max(self.largest, size(request))

    def _answer(self, request: ModelRequest) -> list[Json]:
        last = request.messages[-1]["content"][-1]
        if last["type"] == "tool_result":
            return [text_block(self._conclude(str(last["content"])))]
        text = str(last.get("text"))
        if text.startswith("What was"):
            self._asked = re.findall(r"the (\w+) in (\w+)\?", text)[0]
            return [self._call("memory_search", query=text, limit=8)]
        if text.startswith("Read "):
            return [self._call("Read", file_path=text.partition(" ")[2])]
        return [text_block("I see.")]

    def _conclude(self, result: str) -> str:
        """The answer of a reader who only uses the result."""
        thing, place = self._asked
        in_message = re.search(rf"the word for the {thing} in {place} is (\w+)", result)
        in_entry = re.search(rf"The {thing} in {place}\): Its word is (\w+)", result)
        return f"It is {(in_message or in_entry)[1]}." if in_message or in_entry else "I do not know."  # type: ignore[index]

    def _curate(self, request: ModelRequest) -> list[Json]:
        if len(request.messages) > 1:
            return [text_block("Kept what was announced.")]
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
        ] or [text_block("Nothing was announced.")]

    def _call(self, name: str, **input: Any) -> Json:
        return {"type": "tool_use", "id": f"toolu_{next(self._ids)}", "name": name, "input": input}


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def text_block(text: str) -> Json:
    return {"type": "text", "text": text}


def size(request: ModelRequest) -> int:
    blocks = (block for message in request.messages for block in message["content"])
    return sum(map(estimate_tokens, (*blocks, *request.tools))) + sum(
        tokens_from_chars(len(part["text"])) for part in request.system
    )


class CollectingHost:
    """A host that only collects messages."""

    def __init__(self) -> None:
        self.results: asyncio.Queue[Result] = asyncio.Queue()
        self.consolidations: list[Consolidation] = []

    def send(self, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, Result):
                self.results.put_nowait(message)
            elif isinstance(message, Consolidation):
                self.consolidations.append(message)

    async def request(self, request: object, request_id: str | None = None) -> Any:
        raise NotImplementedError

    async def drain(self) -> bool:
        return True

    def pending_requests(self) -> list[Any]:
        return []


class LocalSession:
    """A session in this process."""

    def __init__(self, folder: Path, model: FakeModel, **options: Any) -> None:
        memory = {"viewTokens": VIEW_TOKENS, "trivialTokens": 2_000}
        defaults: Json = {
            "model": "fake",
            "database": str(folder / "agent.db"),
            "tools": ("Read", "memory_search"),
            "system_prompt": "Be brief.",
            "settings": json.dumps({"memory": memory}),
        }
        environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "TMPDIR": str(folder), "PARLEY_FSYNC": "off"}
        composer = Composer(CliOptions(**{**defaults, **options}), environment, str(folder), warn=write)
        config: SessionConfig = composer.make_config()
        self.host = CollectingHost()
        replace = msgspec.structs.replace
        self.session = Session(replace(config, model=replace(config.model, open=lambda ref: model)), self.host)
        self._running = asyncio.create_task(self.session.run_turns())

    async def ask(self, text: str) -> Result:
        self.session.handle(User(message=UserContent(content=text)))
        return await self.host.results.get()

    async def end(self) -> None:
        self.session.close_input()
        await self._running
        self.session.journal.close()

    @property
    def memory(self) -> SessionMemory:
        assert isinstance(self.session.memory_worker, LocalMemoryWorker)
        return self.session.memory_worker.memory


def prompts(planted: list[Fact], messages: int, folder: Path, random: Random) -> Iterator[tuple[str, int]]:
    """The prompts and the number of messages each causes. The facts are in the first nine tenths."""
    places = dict(zip(sorted(random.sample(range(int(messages * 0.36)), len(planted))), planted, strict=True))
    sent = turn = 0
    while sent < messages:
        fact = places.get(turn)
        text = filler(random) if fact is None else f"{filler(random)}{fact.text}"
        lines = 2
        if (fact is not None and fact.in_file) or turn % 17 == 0:
            path = folder / f"note-{turn}.txt"
            path.write_text(text)
            text, lines = f"Read {path}", 4
        yield text, lines
        sent, turn = sent + lines, turn + 1


async def run(folder: Path, messages: int, number: int, seed: int) -> list[str]:
    """Print the results. Returns the problems found."""
    random, model, problems = Random(seed), FakeModel(), list[str]()
    planted = facts(number, random)
    local = LocalSession(folder, model)
    started = time.monotonic()
    sent = 0
    for text, lines in prompts(planted, messages, folder, random):
        result = await local.ask(text)
        sent += lines
        if result.is_error:
            return [f"a turn failed: {result}"]
    seconds = time.monotonic() - started
    in_view = sum(fact.answer in str(local.session.journal.history.render()) for fact in planted)
    assert local.session.memory_worker is not None
    local.session.memory_worker.start()
    await local.session.memory_worker.wait_idle(60)
    ranks = [rank_of(fact, local.memory) for fact in planted]
    answered = [fact.answer in str((await local.ask(fact.question)).result) for fact in planted]
    before = local.session.conversation.build_request()
    await local.end()
    resumed = LocalSession(folder, model, resume=local.session.id)
    if resumed.session.conversation.build_request() != before:
        problems.append("the resumed session differs from the first one")
    await resumed.end()

    created = sum(line.entries_created for line in local.host.consolidations)
    write(f"{sent} messages, {model.requests} requests, {seconds:.1f} s")
    write(f"the largest request: {model.largest} tokens of {VIEW_TOKENS}; {in_view} of {number} facts are in view")
    write(f"{len(local.host.consolidations)} consolidations, {created} entries")
    report("messages", [messages for messages, _ in ranks], number)
    stored = [fact.announced for fact in planted]
    report("tree", [at for (_, at), is_stored in zip(ranks, stored, strict=True) if is_stored], sum(stored))
    write(f"answers with the fact in them: {sum(answered)} of {number}")
    if model.largest > VIEW_TOKENS:
        problems.append(f"a request had {model.largest} tokens; the budget is {VIEW_TOKENS}")
    problems += [f"not found: {fact.text}" for fact, (at, _) in zip(planted, ranks, strict=True) if at is None]
    problems += [f"not answered: {fact.text}" for fact, is_there in zip(planted, answered, strict=True) if not is_there]
    problems += [
        f"not in the tree: {fact.text}"
        for fact, (_, at) in zip(planted, ranks, strict=True)
        if fact.announced and at is None
    ]
    return problems


def rank_of(fact: Fact, recall: Recall) -> tuple[int | None, int | None]:
    """The rank of a fact among the messages and among the tree entries that a search finds."""
    found = recall.search(fact.question, 50)
    messages = [any(fact.answer in line.text for line in recall.messages(hit.seq, hit.seq)) for hit in found.messages]
    return first(messages), first([fact.answer in entry.body for entry in found.entries])


def first(hits: list[bool]) -> int | None:
    return hits.index(True) + 1 if True in hits else None


def report(where: str, ranks: list[int | None], number: int) -> None:
    shares = [sum(at is not None and at <= most for at in ranks) / max(1, number) for most in RANKS]
    text = ", ".join(f"{share:.0%} in the first {most}" for most, share in zip(RANKS, shares, strict=True))
    write(f"{where}: {text}")


async def cost(folder: Path, turns: int) -> tuple[float, float, float]:
    """Processor milliseconds per turn: without memory, with memory, and with consolidation after every turn."""
    busy = {"settings": json.dumps({"memory": {"trivialTokens": 0}})}
    kinds: list[Json] = [{"memory": "off"}, {}, busy]
    sessions = [LocalSession(folder / str(at), FakeModel(), **options) for at, options in enumerate(kinds)]
    best = [float("inf")] * len(sessions)
    for _ in range(5):  # alternating, so that other load affects all of them
        for at, local in enumerate(sessions):
            started = time.process_time()
            for _ in range(turns):
                await local.ask("Something of no importance was said here.")
            best[at] = min(best[at], (time.process_time() - started) / turns * 1000)
    for local in sessions:
        await local.end()
    return best[0], best[1], best[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--facts", type=int, default=100)
    parser.add_argument("--turns", type=int, default=100, help="turns for the cost measurement")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        problems = asyncio.run(run(Path(folder), options.messages, options.facts, options.seed))
        for at in range(3):
            Path(folder, str(at)).mkdir()
        without, plain, busy = asyncio.run(cost(Path(folder), options.turns))
    write(f"a turn: {without:.2f} ms without memory, {plain:.2f} ms with memory, {busy:.2f} ms with consolidation")
    for problem in problems:
        write(f"FAILED: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
