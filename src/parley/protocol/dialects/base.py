"""What a dialect is: how the canonical messages are written on the lines of one connection; and how it is detected.

    line -> decode() -> messages for the engine          message of the engine -> encode() -> lines

A dialect may keep state: there is one object per connection, it sees every line in both directions, and a line is
decoded only after the engine has taken the ones before it. What it can answer by itself it returns as a `Reply`
instead of a message. Time and ids come from a `DialectContext`. In the canonical dialect, `StreamJson`, a message is
its line.

A dialect may also have `encode_events(events) -> bytes`: the lines of several new stream events, each with its line
feed. They must be those of `encode`, only made faster.

Events that only some dialects report are sent to all of them (`DIALECT_EVENTS` in messages/dialects.py); the
canonical dialect writes no line for those.

See also: the table of dialects in `compose/registry.py`; `profile` says what else a dialect changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Protocol

import msgspec

from parley.protocol.base import (
    Json,
    Message,
    Struct,
    decode,
    encode,
    encode_lines,
    is_too_deep,
    replace_lone_surrogates,
)
from parley.protocol.messages.conversation import Assistant, StreamEvent
from parley.protocol.messages.dialects import DIALECT_EVENTS


class Reply(Message, frozen=True, kw_only=True, tag="reply"):
    """Lines that answer a line of the peer at once. The engine does not receive it."""

    lines: list[bytes]


class DialectContext(Struct, frozen=True):
    """The time and ids that a dialect needs. It must not fetch them by itself."""

    now: Callable[[], str]
    """UTC with milliseconds, as every line has it."""
    new_uuid: Callable[[], str]


class DialectProfile(Struct, frozen=True, kw_only=True):
    """What a dialect changes in a session besides the lines."""

    over_stdio: bool = False
    """Whether it serves `--stdio`: prompts are lines, a database holds one session, and permission is never asked."""
    partial_messages: bool = False
    """Whether `--output-format stream-json` includes the events of the model's stream by default."""
    hook_events: bool = False
    """Whether runs of hooks are reported by default."""
    include_tool_schemas: bool = False
    """Whether the `init` message has the schemas of the tools."""
    layouts: tuple[str, ...] = ("claude", "folder")
    """The stores in which a session is looked for if none is named; a new one goes into the first."""
    prompt_separator: str = "\n"
    """What stands between prompts that enter the conversation together."""
    merge_prompts: bool = True
    """Whether prompts that waited for the end of a turn form the next one together."""
    client_tools: Literal["streaming", "always", "never"] = "streaming"
    """When the client can run tools: if it streams its input, always, or never."""
    interrupts_early: bool = False
    """Whether an interrupt is answered while the prompt is still being read from stdin."""


class Dialect(Protocol):
    """A codec at the edge. The engine knows the canonical messages only."""

    name: str
    can_request: bool
    """Whether the peer answers `control_request` lines."""
    profile: ClassVar[DialectProfile]

    def decode(self, line: bytes) -> list[Message]:
        """The messages of a line: Unknown or Refused if it has none, Reply if we answer. Never raises."""

    def encode(self, message: Message) -> list[bytes]:
        """The lines for a message: often one, sometimes none or several."""


class HeldAnswer:
    """The blocks of an answer of the model that is not complete yet, for dialects that write an answer as one line."""

    def __init__(self, first: Assistant, content: list[Json]) -> None:
        self.first = first
        self.content = content

    def includes(self, message: Assistant) -> bool:
        first = self.first
        return first.parent_tool_use_id == message.parent_tool_use_id and first.message.id == message.message.id


def system(subtype: str, **fields: Any) -> Json:
    """A system line of a dialect."""
    return {"type": "system", "subtype": subtype, **fields}


BROUGHT = frozenset({"system_prompt", "mcp_servers", "environment"})
"""Fields that only a miriad prompt has."""
OURS = frozenset({"control_request", "control_response", "control_cancel_request"})
OPENING = rb'[\[\s]*\{\s*"jsonrpc"\s*:'
"""How a line starts whose sender expects JSON-RPC errors, even if it is too long or not valid JSON."""


def detect(line: bytes, otherwise: str) -> str:
    """The name of the dialect; `otherwise` if the line is valid in several."""
    match first_value(line):
        case {"jsonrpc": _} | [{"jsonrpc": _}, *_]:  # a batch is refused, with a JSON-RPC error
            return "jsonrpc"
        case {"type": "control"}:
            return "miriad"
        case {"type": str() as kind} if kind in OURS:
            return "stream-json"
        case {"type": "user", **fields} if BROUGHT & fields.keys():
            return "miriad"
        case {"type": "user", **fields} if is_spec001(fields):
            return "spec001"
        case None if re.match(OPENING, line):
            return "jsonrpc"
    return otherwise


def is_spec001(fields: dict[Any, Any]) -> bool:
    """Whether a prompt has a timestamp and no ids, or its content where only spec001 has it."""
    if "message" not in fields:
        return "content" in fields
    return "timestamp" in fields and not {"uuid", "parent_tool_use_id"} & fields.keys()


def first_value(line: bytes) -> Any:
    if is_too_deep(line):
        return None
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        mended = replace_lone_surrogates(line)
        return None if mended is None else first_value(mended)


class StreamJson:
    name = "stream-json"
    can_request = True
    profile: ClassVar[DialectProfile] = DialectProfile()

    def __init__(self, context: DialectContext | None = None) -> None:
        """The canonical dialect needs neither time nor ids."""

    def decode(self, line: bytes) -> list[Message]:
        return [decode(line)]

    def encode(self, message: Message) -> list[bytes]:
        return [] if type(message) in DIALECT_EVENTS else [encode(message)]

    def encode_events(self, events: Sequence[StreamEvent]) -> bytes:
        return encode_lines(events)
