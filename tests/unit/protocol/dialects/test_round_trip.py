"""From our messages to a dialect and back: what the dialect has words for is not lost on the way.

A projection says what that is: `kept(message)` is the part of a message that must come back, or
None for what the dialect leaves out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.protocol.base import UNSET, Message, decode, encode_json, to_builtins
from parley.protocol.blocks import Text, ToolResult, ToolUse
from parley.protocol.dialects.base import Dialect, DialectContext
from parley.protocol.dialects.jsonrpc import JsonRpcDialect
from parley.protocol.dialects.miriad import Miriad
from parley.protocol.dialects.spec001 import Spec001
from parley.protocol.messages import control
from parley.protocol.messages.conversation import Assistant, StreamEvent, User
from parley.protocol.messages.dialects import AnswerComplete
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import Init
from tests.helpers.dialect_reading import Spec001Reader, from_dialect, read_jsonrpc, read_miriad
from tests.helpers.golden import LINES, Sample, canonical

Json = dict[str, Any]
COMPLETE = AnswerComplete(message_id="")
CONTROL = (control.ControlRequest, control.ControlResponse, control.ControlCancelRequest)
SHOWN = (Text, ToolUse)


def world() -> DialectContext:
    numbers = count(1)
    return DialectContext(now=lambda: "2026-02-02T10:30:00.000Z", new_uuid=lambda: f"u{next(numbers)}")


def some(message: Message, *names: str) -> Json:
    """The fields of these names that a message has."""
    return {name: value for name, value in json.loads(encode_json(message)).items() if name in names}


def blocks(message: Assistant | User, kinds: tuple[type, ...]) -> list[Json]:
    content = message.message.content
    return [] if isinstance(content, str) else [block.json for block in content if isinstance(block, kinds)]


# Dialect B.


def kept_in_spec001(message: Message) -> Any:
    match message:
        case Assistant(is_api_error_message=True):
            return None
        case Assistant():
            return [blocks(message, SHOWN), some(message, "session_id")] if blocks(message, SHOWN) else None
        case User(isSynthetic=True):
            return None
        case User() | StreamEvent():
            return some(message, "message", "event", "session_id")
        case Result():
            return everything_but(message, "timestamp", "error", "fault_type", "terminal_reason", *FLAT)
        case Init():
            return some(message, "session_id", "model", "tools")
        case _ if isinstance(message, CONTROL):
            return to_builtins(message)
    return None


FLAT = ("input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens")


def everything_but(message: Message, *names: str) -> Json:
    return {name: value for name, value in to_builtins(message).items() if name not in names}


# Dialects C and D.


def kept_in_miriad(message: Message) -> Any:
    match message:
        case Assistant(is_api_error_message=True):
            return None
        case Assistant() if not message.parent_tool_use_id:
            inner = blocks(message, SHOWN)
            return [inner, to_builtins(message.message).get("model")] if inner else None
        case User() if not message.parent_tool_use_id:
            results = [as_told(block) for block in blocks(message, (ToolResult,))]
            return results or None
        case Result():
            usage = message.usage if isinstance(message.usage, dict) else {}
            return [end(message), words(message), {name: usage.get(name) or 0 for name in FLAT[:2]}]
    return None


def as_told(block: Json) -> Json:
    found = {name: block.get(name) for name in ("type", "tool_use_id", "content")}
    return {**found, "is_error": block.get("is_error") is True}


def words(message: Result) -> str:
    """What is said at the end; of a turn that was cancelled nothing is."""
    if end(message) == "cancelled":
        return ""
    return message.result if isinstance(message.result, str) else "\n".join(message.errors or [])


def end(message: Result) -> str:
    """How a turn ended, as far as these dialects tell it."""
    if isinstance(message.terminal_reason, str) and message.terminal_reason.startswith("aborted_"):
        return "cancelled"
    return "success" if message.subtype == "success" and message.is_error is not True else "error"


def in_spec001(line: bytes) -> Message:
    [message] = Spec001Reader(world()).decode(line)
    return message


class Way(NamedTuple):
    make: Callable[[DialectContext], Dialect]
    read: Callable[[bytes], Message]
    kept: Callable[[Message], Any]


WAYS = {
    "spec001": Way(Spec001, in_spec001, kept_in_spec001),
    "miriad": Way(Miriad, lambda line: read_miriad(line, world().new_uuid), kept_in_miriad),
    "jsonrpc": Way(JsonRpcDialect, lambda line: read_jsonrpc(line, world().new_uuid), kept_in_miriad),
}


def there_and_back(way: Way, message: Message) -> list[Any]:
    spoken = way.make(world())
    lines = [*spoken.encode(message), *spoken.encode(COMPLETE)]
    return [kept for kept in map(way.kept, map(way.read, lines)) if kept is not None]


def is_ours(message: Message) -> bool:
    """Whether a golden line is in our words: the documents have results and answers in those of others."""
    if isinstance(message, Result):
        return message.subtype == "success" or message.subtype.startswith("error_")
    if isinstance(message, Assistant):
        return all(from_dialect(call) == call for call in blocks(message, (ToolUse,)))
    return not (isinstance(message, Init) and any(isinstance(tool, dict) for tool in message.tools or ()))


CASES = [
    (name, sample)
    for name, way in WAYS.items()
    for sample in LINES
    if way.kept(decode(sample.line)) is not None and is_ours(decode(sample.line))
]


@pytest.mark.parametrize(("name", "sample"), CASES, ids=[f"{name}: {sample.name}" for name, sample in CASES])
def test_what_a_dialect_has_words_for_comes_back(name: str, sample: Sample) -> None:
    way, message = WAYS[name], decode(sample.line)
    kept = way.kept(message)

    [back] = there_and_back(way, message)
    assert canonical(filled(message, back, kept)) == canonical(kept)


def test_there_is_something_to_bring_back_in_every_dialect() -> None:
    assert {name for name, _ in CASES} == set(WAYS)


def filled(message: Message, back: Any, kept: Any) -> Any:
    """Without what is filled in where it was missing."""
    return (
        {name: back[name] for name in kept if name in back}
        if isinstance(message, Result | Init) and isinstance(back, dict)
        else back
    )


WORDS = st.text(max_size=20)
TOKENS = st.integers(0, 10**9)
USAGE = st.fixed_dictionaries(
    {
        "input_tokens": TOKENS,
        "output_tokens": TOKENS,
        "cache_creation_input_tokens": TOKENS,
        "cache_read_input_tokens": TOKENS,
    }
)
GOOD = st.fixed_dictionaries({"subtype": st.just("success"), "is_error": st.booleans(), "result": WORDS})
BAD = st.fixed_dictionaries(
    {
        "subtype": st.sampled_from(
            ["error_during_execution", "error_max_turns", "error_max_budget_usd", "error_max_structured_output_retries"]
        ),
        "is_error": st.just(True),
        "errors": st.lists(WORDS.filter(bool), min_size=1, max_size=3),
    },
    optional={"terminal_reason": st.sampled_from(["aborted_tools", "aborted_streaming", "max_turns", "api_error"])},
).filter(
    # A turn that was interrupted ends as such; it has no other name for its end.
    lambda end: end["subtype"] != "error_max_structured_output_retries" or "terminal_reason" not in end
)


@given(end=GOOD | BAD, usage=USAGE, turns=st.integers(0, 99), cost=st.floats(0, 99) | st.none())
def test_every_end_of_a_turn_survives_dialect_b(end: Json, usage: Json, turns: int, cost: float | None) -> None:
    line = {"type": "result", "session_id": "s", "num_turns": turns, "total_cost_usd": cost, "usage": usage, **end}
    message = decode(json.dumps(line).encode())

    [back] = [in_spec001(line) for line in Spec001(world()).encode(message)]
    assert {name: value for name, value in to_builtins(back).items() if name in line} == line


BLOCK = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": WORDS}),
    st.fixed_dictionaries(
        {
            "type": st.just("tool_use"),
            "id": st.text("abc", min_size=1, max_size=3),
            "name": st.sampled_from(["Read", "Edit", "Bash", "Grep", "mcp__a__b"]),
            "input": st.dictionaries(
                st.sampled_from(["file_path", "old_string", "replace_all", "glob", "offset", "path"]),
                st.integers(1, 9) | WORDS,
                max_size=3,
            ),
        }
    ),
)


@given(content=st.lists(BLOCK, min_size=1, max_size=4))
def test_every_answer_survives_every_dialect(content: list[Json]) -> None:
    line = {"type": "assistant", "message": {"role": "assistant", "model": "m", "content": content}, "session_id": "s"}
    message = decode(json.dumps(line).encode())
    for way in WAYS.values():
        [back] = there_and_back(way, message)

        assert canonical(back) == canonical(way.kept(message))


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ({"type": "text", "chunk": "Hi"}, {"type": "assistant"}),
        ({"type": "tool_call", "callId": "c", "name": "read", "args": {"filePath": "a"}}, {"type": "assistant"}),
        ({"type": "tool_result", "callId": "c", "result": "text"}, {"type": "user"}),
        ({"type": "complete", "response": "Hi", "usage": {"inputTokens": 1, "outputTokens": 2}}, {"type": "result"}),
        ({"type": "cancelled"}, {"type": "result", "terminal_reason": "aborted_streaming"}),
        ({"type": "error", "message": "no"}, {"type": "system", "subtype": "error"}),
        ({"type": "status", "running": True}, {"type": "system", "subtype": "status"}),
    ],
)
def test_the_words_of_the_first_builds_are_read(first: Json, later: Json) -> None:
    message = read_jsonrpc(json.dumps({"jsonrpc": "2.0", "id": 1, "result": first}).encode(), world().new_uuid)

    assert later.items() <= to_builtins(message).items()


def test_a_call_of_the_first_builds_is_one_of_our_tools() -> None:
    call = {"type": "tool_call", "callId": "c", "name": "read", "args": {"filePath": "a", "offset": 0}}
    message = read_jsonrpc(json.dumps({"jsonrpc": "2.0", "id": 1, "result": call}).encode(), world().new_uuid)

    assert isinstance(message, Assistant)
    assert blocks(message, SHOWN) == [
        {"type": "tool_use", "id": "c", "name": "Read", "input": {"file_path": "a", "offset": 1}}
    ]


def test_half_an_event_of_the_first_builds_is_refused() -> None:
    message = read_jsonrpc(b'{"jsonrpc":"2.0","id":1,"result":{"type":"text"}}', world().new_uuid)

    assert to_builtins(message)["type"] == "refused"


def test_an_error_stays_in_its_envelope() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"busy"}}'

    assert read_jsonrpc(line, world().new_uuid) == decode(line)
    assert UNSET not in to_builtins(decode(line)).values()
