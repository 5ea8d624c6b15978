"""A tape: the model's side of a run, written down. One JSON object a line.

    {"type":"tape","version":1,"by":"parley 0.1.0","places":{"cwd":"/home/me/project"}}
    {"type":"request","number":1,"at_ms":12.1,"model":"claude-opus-5-5","system":[…],"tools":[…],"messages":[…]}
    {"type":"event","number":1,"at_ms":840.9,"data":{"type":"message_start",…}}
    {"type":"end","number":1,"at_ms":2210.0}

`number` says to which request a line belongs: calls may run side by side. A request carries only what is new:
`kept` is how many messages it has in common with the request before it, and a field that it lacks is as it was
there. `data` is the event as it came. An end may have an `error`, or say that it was `closed` by our own side.

Not here: who writes it (recorder.py), who plays it (replay.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from parley.errors import ModelError, UsageError
from parley.models.base import Event, read_event
from parley.protocol.base import Json, Struct

VERSION = 1


class Head(Struct, frozen=True, kw_only=True, tag="tape", tag_field="type"):
    """The first line."""

    version: int = VERSION
    by: str = ""
    at: str = ""
    places: dict[str, str] = {}
    """Folders whose names differ from run to run."""


class Asked(Struct, frozen=True, kw_only=True, tag="request", tag_field="type", omit_defaults=True):
    """A request. Headers are not on a tape, and so no key is."""

    number: int
    at_ms: float = 0
    model: str = ""
    max_tokens: int = 0
    thinking: Json | None = None
    effort: str | None = None
    betas: tuple[str, ...] = ()
    system: list[Json] | None = None
    tools: list[Json] | None = None
    kept: int = 0
    messages: list[Json] = []


class Told(Struct, frozen=True, kw_only=True, tag="event", tag_field="type", omit_defaults=True):
    """An event of the answer."""

    number: int
    at_ms: float = 0
    data: msgspec.Raw
    request_id: str | None = None


class Flaw(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a call failed."""

    message: str
    status: int | None = None
    kind: str | None = None
    retryable: bool = False
    retry_after_seconds: float | None = None
    request_id: str | None = None

    @classmethod
    def of(cls, flaw: ModelError) -> Flaw:
        return cls(**{field: getattr(flaw, field) for field in cls.__struct_fields__})

    def raised(self) -> ModelError:
        return ModelError(self.message, **{k: v for k, v in msgspec.structs.asdict(self).items() if k != "message"})


class Ended(Struct, frozen=True, kw_only=True, tag="end", tag_field="type", omit_defaults=True):
    """The end of an answer."""

    number: int
    at_ms: float = 0
    error: Flaw | None = None
    closed: bool = False
    """Whether our own side hung up: the turn was interrupted."""


class Exchange(Struct, kw_only=True):
    """A request and its whole answer."""

    request: Asked
    """With all its messages."""
    events: list[tuple[float, Event]] = []
    """Each with its time, in milliseconds."""
    end: Ended | None = None
    """None where the recording stopped before."""


class Tape(Struct, frozen=True):
    name: str
    head: Head
    exchanges: list[Exchange]


_line = msgspec.json.Decoder(Head | Asked | Told | Ended)


def read_tape(path: Path) -> Tape:
    """Raises UsageError, in one sentence, for what is no tape or a broken one."""
    try:
        data = path.read_bytes()
    except OSError as flaw:
        raise UsageError(f"the tape {path} cannot be read: {flaw.strerror}") from None
    # A line without its end is what a crash leaves behind: everything before it counts.
    lines = data.split(b"\n")[:-1]
    if not lines:
        raise UsageError(f"{path} is no tape: it is empty")
    head = _read(lines[0], path, 1)
    if not isinstance(head, Head):
        raise UsageError(f"{path} is no tape: its first line does not say so")
    if head.version != VERSION:
        raise UsageError(f"the tape {path} has version {head.version}, and only version {VERSION} can be played")
    exchanges: dict[int, Exchange] = {}
    for at, line in enumerate(lines[1:], 2):
        try:
            _add(_read(line, path, at), exchanges)
        except (ValueError, msgspec.DecodeError) as flaw:
            raise UsageError(f"the tape {path} is broken: line {at}: {flaw}") from None
    if not exchanges:
        raise UsageError(f"the tape {path} has no request on it")
    return Tape(str(path), head, list(exchanges.values()))


def _read(line: bytes, path: Path, at: int) -> Any:
    try:
        return _line.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as flaw:
        what = f"{path} is no tape" if at == 1 else f"the tape {path} is broken"
        raise UsageError(f"{what}: line {at}: {flaw}") from None


def _add(line: Any, exchanges: dict[int, Exchange]) -> None:
    """Put a line where it belongs. Raises ValueError or msgspec.DecodeError."""
    if isinstance(line, Head):
        raise ValueError("a second first line")
    if isinstance(line, Asked):
        if line.number in exchanges:
            raise ValueError(f"request {line.number} is there twice")
        exchanges[line.number] = Exchange(request=_whole(line, exchanges))
        return
    exchange = exchanges.get(line.number)
    if exchange is None:
        raise ValueError(f"there is no request {line.number}")
    if exchange.end is not None:
        raise ValueError(f"request {line.number} has ended already")
    if isinstance(line, Told):
        event = read_event(bytes(line.data))
        event.request_id = line.request_id
        exchange.events.append((line.at_ms, event))
    else:
        exchange.end = line


def _whole(asked: Asked, exchanges: dict[int, Exchange]) -> Asked:
    """The request with what it has in common with the one before it."""
    before = list(exchanges.values())[-1].request if exchanges else Asked(number=0, system=[], tools=[])
    if asked.kept > len(before.messages):
        raise ValueError(f"request {asked.number} keeps {asked.kept} messages of {len(before.messages)}")
    return msgspec.structs.replace(
        asked,
        messages=[*before.messages[: asked.kept], *asked.messages],
        system=before.system if asked.system is None else asked.system,
        tools=before.tools if asked.tools is None else asked.tools,
    )
