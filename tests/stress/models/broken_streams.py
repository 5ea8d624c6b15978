"""Break recorded streams at every event: the turn ends in time, once, and nothing is said, run or paid for twice.

    python -m tests.stress.models.broken_streams --streams 50 --seed 1

Each stream is an answer of random blocks, recorded on a real tape and read from it again. Each case is a session of its
own on a stage where time is played (stage.py): its first answer is the stream, reset or stalled behind so many events
(models/faults.py, with the deadlines of a real backend); whatever is asked after that is answered shortly.
Then a second prompt must work as if nothing had been. The exit code is 0 if the laws below held in every case.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from itertools import count, pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from parley.models.base import ModelEvent, ModelRequest
from parley.models.event_synthesis import message_json, synthesize_events
from parley.models.faults import Fault
from parley.models.http.call import Deadlines
from parley.models.recording import Recorder, RecordingHeader, RecordingWriter
from parley.models.redaction import Redactor
from parley.models.replay import Replay
from parley.models.wrapping import apply_fault
from parley.tools.base import Context, ToolOutput
from parley.workspace.base import Scope
from tests.helpers.simulation import Json, SimulatedSession, Work, WorkInput

KINDS = ("reset", "stall")
DEADLINES = Deadlines()
TROUBLE_SECONDS = 10
"""At most: the wait before the next try, and the work of the tools."""
WORDS = ("alder", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "rowan", "willow")
SHORT = {"input_tokens": 11, "output_tokens": 3}


class Broken(AssertionError):
    """A law did not hold."""


class Stream(msgspec.Struct):
    """A recorded answer."""

    events: list[ModelEvent]
    blocks: list[Json]


def recorded(folder: Path, number: int, dice: Random) -> Stream:
    """An answer with texts no one else says, on a recording and back."""
    blocks = [block(dice, f"s{number}b{at}") for at in range(dice.randint(3, 6))]
    usage = {"input_tokens": dice.randint(100, 999), "output_tokens": dice.randint(100, 999)}
    message = message_json(blocks, id=f"msg_{number}", model="recorded", usage=usage)
    path = folder / f"stream-{number}.jsonl"
    writer = RecordingWriter(path, RecordingHeader(), Redactor(), lambda: 0.0)
    request = ModelRequest(model="m", system=[], messages=[], max_tokens=1)

    async def there_and_back() -> list[ModelEvent]:
        recorder = Recorder(Said(list(synthesize_events(message, chunk_chars=dice.randint(2, 4)))), writer)
        live = [event async for event in recorder.stream(request)]
        await recorder.close()
        played = [event async for event in Replay(path).stream(request)]
        assert played == live
        return played

    return Stream(asyncio.run(there_and_back()), blocks)


def block(dice: Random, name: str) -> Json:
    words = " ".join(dice.choice(WORDS) for _ in range(dice.randint(10, 40)))
    match dice.choice(["text", "text", "thinking", "tool_use", "tool_use"]):
        case "thinking":
            return {"type": "thinking", "thinking": f"{name} {words}", "signature": name}
        case "tool_use":
            return {"type": "tool_use", "id": f"call_{name}", "name": "Work", "input": {"seconds": 0.5, "why": words}}
    return {"type": "text", "text": f"{name} {words}"}


class Said:
    """A model with one answer."""

    def __init__(self, events: list[ModelEvent]) -> None:
        self._events = events

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        for event in self._events:
            yield event

    async def close(self) -> None:
        pass


class Breaking:
    """The stream first, broken; short answers after that."""

    open = 0

    def __init__(self, stream: Stream, fault: Fault) -> None:
        self._first: Stream | None = stream
        self._fault = fault
        self.requests: list[list[Json]] = []
        self.short_answers = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request.messages)
        first, self._first = self._first, None
        if first is not None:
            async for event in apply_fault(Said(first.events).stream(request), self._fault, DEADLINES):
                yield event
            return
        self.short_answers += 1
        said = [{"type": "text", "text": f"short {self.short_answers}"}]
        for event in synthesize_events(
            message_json(said, id=f"msg_short_{self.short_answers}", model="m", usage=SHORT)
        ):
            yield event

    async def close(self) -> None:
        pass


class CountedInput(WorkInput, frozen=True):
    why: str


class Counted(Work):
    """A tool that notes what it was run with."""

    input = CountedInput

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []

    async def run(self, call: Any, context: Context, reach: Scope) -> ToolOutput:
        self.ran.append(call.why)
        return await super().run(call, context, reach)


class Case(SimulatedSession):
    """One stream, broken in one way at one place."""

    def __init__(self, folder: Path, stream: Stream, kind: str, after: int) -> None:
        super().__init__(
            folder,
            Random(after),
            allowed_tools=("Work",),
            include_partial_messages=kind == "reset",
        )
        self.name = f"{kind}={after} of {len(stream.events)}"
        self.stream = stream
        self.after = after
        self.breaking = Breaking(stream, Fault(kind, after))
        self.counted = Counted()
        self.model = self.breaking  # type: ignore[assignment]  # any model will do for the stage
        self.work = self.counted
        self.result_times: list[float] = []

    async def act(self, simulated: SimulatedSession) -> None:
        for turn in (1, 2):
            self.say({"type": "user", "message": {"role": "user", "content": f"prompt {turn}"}})
            while self.results < turn:  # noqa: ASYNC110  # played time costs nothing
                await asyncio.sleep(0.5)
            self.result_times.append(self.loop.time())

    def told(self, kind: str) -> list[Json]:
        """The blocks of all assistant lines, of one type."""
        said = [line["message"]["content"] for line in self.lines if line["type"] == "assistant"]
        return [block for content in said for block in content if block["type"] == kind]

    def heard_events(self) -> list[ModelEvent]:
        return self.stream.events[: self.after]


# The laws.


def every_prompt_has_one_result(case: Case) -> Iterator[str]:
    results = [line for line in case.lines if line["type"] == "result"]
    if [line["is_error"] for line in results] != [False, False]:
        yield f"results: {[(line['subtype'], line['is_error'], line.get('result')) for line in results]}"
    if results and not str(results[-1].get("result")).startswith("short"):
        yield f"the second turn said {results[-1].get('result')!r}"


def nothing_takes_longer_than_the_deadlines(case: Case) -> Iterator[str]:
    longest = DEADLINES.silence_seconds if case.after else DEADLINES.first_byte_seconds
    if case.result_times[0] > longest + TROUBLE_SECONDS:
        yield f"the first result came after {case.result_times[0]} s"


def what_finished_is_told_once_and_nothing_else_is(case: Case) -> Iterator[str]:
    ended = {event.index for event in case.heard_events() if event.type == "content_block_stop"}
    finished = [block for at, block in enumerate(case.stream.blocks) if at in ended]
    for kind, key in (("text", "text"), ("thinking", "thinking"), ("tool_use", "id")):
        told = [block[key] for block in case.told(kind) if not str(block[key]).startswith("short")]
        expected = [block[key] for block in finished if block["type"] == kind]
        if told != expected:
            yield f"{kind}: told {told}, expected {expected}"


def finished_calls_run_once_and_half_ones_never(case: Case) -> Iterator[str]:
    expected = [block["input"]["why"] for block in case.told("tool_use")]
    if case.counted.ran != expected:
        yield f"ran {case.counted.ran}, told {expected}"


def the_history_is_whole_and_has_nothing_twice(case: Case) -> Iterator[str]:
    for messages in (*case.breaking.requests, case.session.journal.history.render()):
        blocks = [block for message in messages for block in message["content"]]
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if calls != results or len(set(calls)) != len(calls):
            yield f"calls {calls}, results {results}"
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        if len(set(texts)) != len(texts):
            yield f"a text is there twice: {texts}"
        roles = [message["role"] for message in messages]
        if any(one == other for one, other in pairwise(roles)):
            yield f"roles do not alternate: {roles}"


def each_call_is_paid_for_once(case: Case) -> Iterator[str]:
    """The output of a call that was cut off is estimated: it is at least what the server had said."""
    usages = [event.message["usage"] for event in case.heard_events() if event.message is not None]
    final = [event.usage for event in case.heard_events() if event.usage is not None]
    is_cut = bool(usages) and not final
    usages += final
    paid = [*usages[-1:], *[SHORT] * case.breaking.short_answers]
    results = [line for line in case.lines if line["type"] == "result"]
    for field, name in (("input_tokens", "inputTokens"), ("output_tokens", "outputTokens")):
        expected = sum(usage[field] for usage in paid)
        by_turn = sum(line["usage"][field] for line in results)
        by_model = sum(used[name] for used in results[-1]["modelUsage"].values())
        is_right = by_turn >= expected if is_cut and field == "output_tokens" else by_turn == expected
        if not is_right or by_turn != by_model:
            yield f"{field}: {expected} were used, {by_turn} by turn, {by_model} by model"


def partial_messages_open_and_close(case: Case) -> Iterator[str]:
    """Those who follow the events see every block and every message end."""
    events = [line["event"] for line in case.lines if line["type"] == "stream_event"]
    kinds = Counter(event["type"] for event in events)
    if kinds["message_start"] != kinds["message_stop"]:
        yield f"messages: {kinds}"
    if kinds["content_block_start"] != kinds["content_block_stop"]:
        yield f"blocks: {kinds}"


LAWS = (
    every_prompt_has_one_result,
    nothing_takes_longer_than_the_deadlines,
    what_finished_is_told_once_and_nothing_else_is,
    finished_calls_run_once_and_half_ones_never,
    the_history_is_whole_and_has_nothing_twice,
    each_call_is_paid_for_once,
    partial_messages_open_and_close,
)


def run(folder: Path, *, streams: int, seed: int, step: int = 1) -> int:
    """How many cases were played. Raises Broken at the first that breaks a law."""
    numbers = count(1)
    cases = 0
    for number in range(streams):
        stream = recorded(folder, next(numbers), Random(f"{seed}/{number}"))
        for after in range(number % step, len(stream.events) + 1, step):
            for kind in KINDS:
                check(folder, stream, kind, after)
                cases += 1
    return cases


def check(folder: Path, stream: Stream, kind: str, after: int) -> None:
    with Case(folder, stream, kind, after) as case:
        try:
            case.play(case.act)
        except (TimeoutError, BaseExceptionGroup) as exc:
            raise Broken(f"{case.name}: {exc!r}") from exc
        broken = [f"{law.__name__}: {what}" for law in LAWS for what in law(case)]
    if broken:
        raise Broken(f"{case.name}: {broken}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--step", type=int, default=1, help="every so manieth event")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cases = run(Path(folder), streams=given.streams, seed=given.seed, step=given.step)
    sys.stdout.write(f"{cases} cases of {given.streams} streams, no law was broken\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
