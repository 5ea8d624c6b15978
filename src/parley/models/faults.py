"""Faults by name: what can go wrong between a model and the engine, for `--fault` and for scripts.

    reset=3          the connection breaks after three events of the first answer
    overloaded@1-30  the first thirty requests fail with status 529
    stall@2-         from the second request on, every answer stops after its start and stays silent

The syntax is `NAME[=VALUE][@FIRST[-LAST]]`. The table gives the meaning of VALUE. FIRST and LAST count requests from 1;
without them the fault applies to the first request only. In a script, a fault applies to its own turn.

A fault either rejects the request with an HTTP status, changes the events of the answer, or changes the bytes that
encode them. `wrapping.py` applies them in the engine, `testing/model_server.py` over HTTP.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Literal

import msgspec

from parley.errors import ModelError, UsageError
from parley.models.base import ModelEvent, read_event
from parley.protocol.base import Struct

FOREVER_SECONDS = 10 * 365 * 86_400.0
NOT_JSON = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_del'


class Reset(Exception):
    """The connection breaks, as after a TCP reset."""


Events = AsyncIterator[ModelEvent]
Bytes = AsyncIterator[bytes]


async def stall_first_byte(events: Events, seconds: float) -> AsyncGenerator[ModelEvent, None]:
    await asyncio.sleep(seconds)
    async for event in events:
        yield event


async def stall(events: Events, after: float) -> AsyncGenerator[ModelEvent, None]:
    async for event in _first(events, after):
        yield event
    await asyncio.sleep(FOREVER_SECONDS)


async def pings(events: Events, seconds: float) -> AsyncGenerator[ModelEvent, None]:
    async for event in _first(events, 1):
        yield event
    while True:
        await asyncio.sleep(seconds)
        yield read_event(b'{"type":"ping"}')


async def reset(events: Events, after: float) -> AsyncGenerator[ModelEvent, None]:
    async for event in _first(events, after):
        yield event
    raise Reset


async def wrong_order(events: Events, _: float) -> AsyncGenerator[ModelEvent, None]:
    """Each block starts after its first delta."""
    start: ModelEvent | None = None
    async for event in events:
        if event.type == "content_block_start":
            start = event
            continue
        yield event
        if start is not None:
            yield start
            start = None


async def duplicate_index(events: Events, _: float) -> AsyncGenerator[ModelEvent, None]:
    """Each block starts a second time after its first delta."""
    start: ModelEvent | None = None
    async for event in events:
        yield event
        if event.type == "content_block_start":
            start = event
        elif event.type == "content_block_delta" and start is not None:
            yield start
            start = None


async def half_tool_call(events: Events, _: float) -> AsyncGenerator[ModelEvent, None]:
    """The connection breaks within the arguments of a tool call."""
    async for event in events:
        if event.delta is None or event.delta.type != "input_json_delta":
            yield event
            continue
        half = event.delta.partial_json[: max(1, len(event.delta.partial_json) // 2)]
        delta = {"type": "input_json_delta", "partial_json": half}
        yield read_event(msgspec.json.encode({"type": "content_block_delta", "index": event.index, "delta": delta}))
        raise Reset


async def _first(events: Events, most: float) -> AsyncGenerator[ModelEvent, None]:
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
    """The stream ends normally in the middle of an event."""
    count = 0
    async for chunk in chunks:
        if count >= after:
            yield chunk[: len(chunk) // 2]
            return
        yield chunk
        count += 1


async def malformed(chunks: Bytes, after: float) -> AsyncGenerator[bytes, None]:
    """One event is not valid JSON."""
    count = 0
    async for chunk in chunks:
        yield b"data: %b\n\n" % NOT_JSON if count == int(after) else chunk
        count += 1


class FaultKind(Struct, frozen=True):
    value: float
    """The default of VALUE."""
    unit: Literal["", "seconds", "events", "bytes", "times"]
    description: str
    refuse: Callable[[float], ModelError] | None = None
    events: Callable[[Events, float], AsyncGenerator[ModelEvent, None]] | None = None
    chunks: Callable[[Bytes, float], AsyncGenerator[bytes, None]] | None = None


def _refusal(status: int, kind: str, text: str, *, waits: bool = False) -> Callable[[float], ModelError]:
    def refuse(value: float) -> ModelError:
        retry_after = value if waits else None
        return ModelError(text, status=status, kind=kind, retryable=True, retry_after_seconds=retry_after)

    return refuse


FAULT_KINDS = {
    "stall-first-byte": FaultKind(
        FOREVER_SECONDS, "seconds", "a delay before the answer starts", events=stall_first_byte
    ),
    "stall": FaultKind(2, "events", "no more data after this many events", events=stall),
    "pings": FaultKind(5, "seconds", "only pings after the first event, one per interval", events=pings),
    "reset": FaultKind(2, "events", "the connection breaks after this many events", events=reset),
    "reset-bytes": FaultKind(100, "bytes", "the connection breaks after this many bytes", chunks=reset_bytes),
    "truncated": FaultKind(
        2, "events", "after this many events, the stream ends in the middle of the next event", chunks=truncated
    ),
    "malformed": FaultKind(2, "events", "after this many events, the next event is not valid JSON", chunks=malformed),
    "rate-limit": FaultKind(0, "", "429 without retry-after", refuse=_refusal(429, "rate_limit_error", "slow down")),
    "rate-limit-wait": FaultKind(
        1, "seconds", "429 with retry-after", refuse=_refusal(429, "rate_limit_error", "slow down", waits=True)
    ),
    "overloaded": FaultKind(0, "", "529", refuse=_refusal(529, "overloaded_error", "Overloaded")),
    "server-error": FaultKind(0, "", "500", refuse=_refusal(500, "api_error", "Internal server error")),
    "wrong-order": FaultKind(0, "", "blocks start after their first delta", events=wrong_order),
    "duplicate-index": FaultKind(0, "", "blocks start a second time after their first delta", events=duplicate_index),
    "half-tool-call": FaultKind(
        0, "", "the connection breaks within the arguments of the first tool call", events=half_tool_call
    ),
}


NOTHING = FaultKind(0, "", "no fault")


class Fault(Struct, frozen=True):
    name: str
    value: float
    first: int = 1
    last: float = 1

    @property
    def _kind(self) -> FaultKind:
        return FAULT_KINDS.get(self.name, NOTHING)

    def applies_to(self, number: int) -> bool:
        return self.first <= number <= self.last

    def refusal(self) -> ModelError | None:
        refuse = self._kind.refuse
        return None if refuse is None else refuse(self.value)

    def on_events(self, events: Events) -> Events:
        change = self._kind.events
        return events if change is None else change(events, self.value)

    def on_chunks(self, chunks: Bytes) -> Bytes:
        """Each chunk is one event."""
        change = self._kind.chunks
        return chunks if change is None else change(chunks, self.value)


NO_FAULT = Fault("", 0)


def read_fault(text: str) -> Fault:
    """Parse a fault. Raises ValueError."""
    found = re.fullmatch(r"([a-z-]+)(?:=(\d+(?:\.\d+)?))?(?:@(\d+)(-)?(\d+)?)?", text.strip())
    if found is None:
        raise ValueError(f"invalid fault {text!r}: expected NAME, NAME=3, NAME@2 or NAME=3@2-5")
    name, value, first, dash, last = found.groups()
    if name not in FAULT_KINDS:
        raise ValueError(f"unknown fault {name!r} (choose from {', '.join(FAULT_KINDS)})")
    row = FAULT_KINDS[name]
    if value is not None and not row.unit:
        raise ValueError(f"fault {name!r} takes no value")
    begin = int(first or 1)
    if begin < 1 or (last is not None and int(last) < begin):
        raise ValueError(
            f"fault {text!r} applies to no request: requests are counted from 1, and a range goes upwards, such as @2-5"
        )
    end = float("inf") if dash and last is None else int(last or begin)
    return Fault(name, row.value if value is None else float(value), begin, end)


class FaultPlan:
    """Decides which fault applies to which request. Counts the requests."""

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self._faults = tuple(faults)
        self._requests = 0

    @classmethod
    def read(cls, texts: Sequence[str], where: str) -> FaultPlan:
        """Raises UsageError."""
        try:
            return cls([read_fault(text) for text in texts])
        except ValueError as exc:
            raise UsageError(f"{where}: {exc}") from None

    def next(self) -> Fault | None:
        """The fault of the next request."""
        self._requests += 1
        return next((fault for fault in self._faults if fault.applies_to(self._requests)), None)
