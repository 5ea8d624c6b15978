"""Faults by name: what can go wrong between a model and us.

    reset=3          the line breaks after three events of the first answer
    overloaded@1-30  the first thirty requests are answered with 529
    stall@2-         every answer from the second on stops after its beginning and stays silent

`NAME[=VALUE][@FIRST[-LAST]]`: VALUE is what the row of the name says, FIRST and LAST count requests from 1; without
them it is the first request alone that is struck. In a script a fault stands at the turn that it strikes.

A fault strikes at one of three places: it refuses the request (an HTTP status), or it spoils the events of the
answer, or the bytes that they are sent as. Adapters that read spoiled bytes and servers that send them
(testing/model_server.py) share what is here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Literal

import msgspec

from parley.errors import ModelError, UsageError
from parley.models.base import Event, read_event
from parley.protocol.base import Struct

FOR_EVER = 10 * 365 * 86_400.0
NOT_JSON = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_del'


class Reset(Exception):
    """The line breaks, as a TCP reset breaks it."""


Events = AsyncIterator[Event]
Bytes = AsyncIterator[bytes]


async def stall_first_byte(events: Events, seconds: float) -> AsyncGenerator[Event, None]:
    await asyncio.sleep(seconds)
    async for event in events:
        yield event


async def stall(events: Events, after: float) -> AsyncGenerator[Event, None]:
    async for event in _first(events, after):
        yield event
    await asyncio.sleep(FOR_EVER)


async def pings(events: Events, seconds: float) -> AsyncGenerator[Event, None]:
    async for event in _first(events, 1):
        yield event
    while True:
        await asyncio.sleep(seconds)
        yield read_event(b'{"type":"ping"}')


async def reset(events: Events, after: float) -> AsyncGenerator[Event, None]:
    async for event in _first(events, after):
        yield event
    raise Reset


async def wrong_order(events: Events, _: float) -> AsyncGenerator[Event, None]:
    """Each block begins behind its first delta."""
    start: Event | None = None
    async for event in events:
        if event.type == "content_block_start":
            start = event
            continue
        yield event
        if start is not None:
            yield start
            start = None


async def duplicate_index(events: Events, _: float) -> AsyncGenerator[Event, None]:
    """Each block begins a second time, in its midst."""
    start: Event | None = None
    async for event in events:
        yield event
        if event.type == "content_block_start":
            start = event
        elif event.type == "content_block_delta" and start is not None:
            yield start
            start = None


async def half_tool_call(events: Events, _: float) -> AsyncGenerator[Event, None]:
    """The line breaks when some of the arguments of a call are here."""
    async for event in events:
        if event.delta is None or event.delta.type != "input_json_delta":
            yield event
            continue
        half = event.delta.partial_json[: max(1, len(event.delta.partial_json) // 2)]
        delta = {"type": "input_json_delta", "partial_json": half}
        yield read_event(msgspec.json.encode({"type": "content_block_delta", "index": event.index, "delta": delta}))
        raise Reset


async def _first(events: Events, most: float) -> AsyncGenerator[Event, None]:
    count = 0
    if most < 1:
        return
    async for event in events:
        yield event
        count += 1
        if count >= most:
            return


async def reset_bytes(chunks: Bytes, after: float) -> AsyncGenerator[bytes, None]:
    left = int(after)
    async for chunk in chunks:
        if len(chunk) > left:
            yield chunk[:left]
            break
        left -= len(chunk)
        yield chunk
    raise Reset


async def truncated(chunks: Bytes, after: float) -> AsyncGenerator[bytes, None]:
    """The stream ends well, in the midst of an event."""
    count = 0
    async for chunk in chunks:
        if count >= after:
            yield chunk[: len(chunk) // 2]
            return
        yield chunk
        count += 1


async def malformed(chunks: Bytes, after: float) -> AsyncGenerator[bytes, None]:
    """One event is no JSON."""
    count = 0
    async for chunk in chunks:
        yield b"data: %b\n\n" % NOT_JSON if count == int(after) else chunk
        count += 1


class Row(Struct, frozen=True):
    """A kind of fault."""

    value: float
    """What VALUE is where none is given."""
    unit: Literal["", "seconds", "events", "bytes", "times"]
    tells: str
    refuse: Callable[[float], ModelError] | None = None
    events: Callable[[Events, float], AsyncGenerator[Event, None]] | None = None
    chunks: Callable[[Bytes, float], AsyncGenerator[bytes, None]] | None = None


def _refusal(status: int, kind: str, text: str, *, waits: bool = False) -> Callable[[float], ModelError]:
    def refuse(value: float) -> ModelError:
        wish = value if waits else None
        return ModelError(text, status=status, kind=kind, retryable=True, retry_after_seconds=wish)

    return refuse


ROWS = {
    "stall-first-byte": Row(FOR_EVER, "seconds", "silence before the answer begins", events=stall_first_byte),
    "stall": Row(2, "events", "silence for ever after so many events", events=stall),
    "pings": Row(5, "seconds", "after the beginning nothing but pings, one every so often", events=pings),
    "reset": Row(2, "events", "the line breaks after so many events", events=reset),
    "reset-bytes": Row(100, "bytes", "the line breaks after so many bytes", chunks=reset_bytes),
    "truncated": Row(2, "events", "the stream ends in the midst of the event after so many", chunks=truncated),
    "malformed": Row(2, "events", "the event after so many is no JSON", chunks=malformed),
    "rate-limit": Row(0, "", "429 without retry-after", refuse=_refusal(429, "rate_limit_error", "slow down")),
    "rate-limit-wait": Row(
        1, "seconds", "429 with retry-after", refuse=_refusal(429, "rate_limit_error", "slow down", waits=True)
    ),
    "overloaded": Row(0, "", "529", refuse=_refusal(529, "overloaded_error", "Overloaded")),
    "server-error": Row(0, "", "500", refuse=_refusal(500, "api_error", "Internal server error")),
    "wrong-order": Row(0, "", "blocks begin behind their first delta", events=wrong_order),
    "duplicate-index": Row(0, "", "blocks begin a second time in their midst", events=duplicate_index),
    "half-tool-call": Row(0, "", "the line breaks within the arguments of the first tool call", events=half_tool_call),
}


NOTHING = Row(0, "", "nothing goes wrong")


class Fault(Struct, frozen=True):
    name: str
    value: float
    first: int = 1
    last: float = 1

    @property
    def _row(self) -> Row:
        return ROWS.get(self.name, NOTHING)

    def strikes(self, number: int) -> bool:
        return self.first <= number <= self.last

    def refusal(self) -> ModelError | None:
        refuse = self._row.refuse
        return None if refuse is None else refuse(self.value)

    def on_events(self, events: Events) -> Events:
        spoil = self._row.events
        return events if spoil is None else spoil(events, self.value)

    def on_chunks(self, chunks: Bytes) -> Bytes:
        """Each chunk is one event."""
        spoil = self._row.chunks
        return chunks if spoil is None else spoil(chunks, self.value)


SOUND = Fault("", 0)
"""No fault at all."""


def read_fault(text: str) -> Fault:
    """Raises ValueError."""
    found = re.fullmatch(r"([a-z-]+)(?:=(\d+(?:\.\d+)?))?(?:@(\d+)(-)?(\d+)?)?", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no fault: it must look like NAME, NAME=3, NAME@2 or NAME=3@2-5")
    name, value, first, dash, last = found.groups()
    if name not in ROWS:
        raise ValueError(f"there is no fault {name!r}; there are {', '.join(ROWS)}")
    row = ROWS[name]
    if value is not None and not row.unit:
        raise ValueError(f"the fault {name!r} takes no value")
    begin = int(first or 1)
    if begin < 1 or (last is not None and int(last) < begin):
        raise ValueError(f"{text!r} strikes no request: they are counted from 1")
    end = float("inf") if dash and last is None else int(last or begin)
    return Fault(name, row.value if value is None else float(value), begin, end)


class Plan:
    """Which request is struck by what. Requests are counted as they come."""

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self._faults = tuple(faults)
        self._requests = 0

    @classmethod
    def read(cls, texts: Sequence[str], where: str) -> Plan:
        """Raises UsageError."""
        try:
            return cls([read_fault(text) for text in texts])
        except ValueError as flaw:
            raise UsageError(f"{where}: {flaw}") from None

    def next(self) -> Fault | None:
        """What strikes the request that comes now."""
        self._requests += 1
        return next((fault for fault in self._faults if fault.strikes(self._requests)), None)
