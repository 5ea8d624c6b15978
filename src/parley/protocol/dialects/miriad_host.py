"""The other end of dialects C and D: what their engines say, in our words, and what we say to them.

    system/tool_result  ->  user with the result          result error       ->  error_during_execution
    read, filePath      ->  Read, file_path               result cancelled   ->  the same, aborted

What these dialects leave out is put in as nothing: no API time, an id made here.
Earlier engines of dialect D had other frames (`text`, `tool_call`, …): they are understood, and never written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from parley.protocol.base import Json, Message, Refused, convert, decode, spell
from parley.protocol.dialects.base import World
from parley.protocol.dialects.jsonrpc import Flaw, parse
from parley.protocol.dialects.tool_names import here
from parley.protocol.messages.control import ControlRequest
from parley.protocol.messages.conversation import Assistant, User
from parley.protocol.messages.dialects import SystemFault
from parley.protocol.messages.requests import Interrupt
from parley.protocol.messages.result import Result

BROKEN = (msgspec.ValidationError, KeyError, TypeError, AttributeError)
"""How a frame fails that is not what it says it is."""
SUBTYPES: dict[str, Json] = {
    "success": {"subtype": "success"},
    "error": {"subtype": "error_during_execution"},
    "cancelled": {"subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_streaming"},
}


class MiriadHost:
    name = "miriad"
    asks = False

    def __init__(self, world: World) -> None:
        self._world = world

    def decode(self, line: bytes) -> list[Message]:
        message, frame = decode(line), object_of(line)
        return [message if isinstance(message, Refused) else self.canonical(frame, message)]

    def canonical(self, frame: Json, message: Message) -> Message:
        """A frame in our words; as it is where it has no other."""
        kind = frame.get("type")
        read = READERS.get((kind, None)) or READERS.get((kind, frame.get("subtype")))
        try:
            return message if read is None else read(self, frame)
        except BROKEN as flaw:
            return Refused(reason=f"{kind}: {flaw!r}", kind=str(kind))

    def assistant(self, frame: Json) -> Message:
        inner = frame["message"]
        content = [here(block) if block.get("type") == "tool_use" else block for block in inner["content"]]
        line = {**frame, "message": {**inner, "content": content}, "uuid": self._world.new_uuid()}
        return known(line, Assistant)

    def tool_result(self, frame: Json) -> Message:
        message = {"role": "user", "content": [frame["tool_result"]]}
        return known({"type": "user", "message": message, "uuid": self._world.new_uuid()}, User)

    def result(self, frame: Json) -> Message:
        how = SUBTYPES.get(frame["subtype"], {"subtype": frame["subtype"]})
        line = {**frame, "duration_api_ms": 0, "uuid": self._world.new_uuid(), **how}
        if how["subtype"] != "success":
            line["errors"] = [line.pop("result")] if "result" in line else []
        return known(line, Result)

    def encode(self, message: Message) -> list[bytes]:
        match message:
            case ControlRequest(request=Interrupt()):
                return [spell({"type": "control", "action": "interrupt"})]
            case User():
                return [spell(message)]
        return []


class JsonRpcHost:
    """Runs are numbered here; what the engine says of them comes out of its envelopes."""

    name = "jsonrpc"
    asks = False

    def __init__(self, world: World) -> None:
        self._frames = MiriadHost(world)
        self._calls = 0

    def decode(self, line: bytes) -> list[Message]:
        match object_of(line):
            case {"error": {"message": str() as text} as error}:
                return [SystemFault(message=text, error=error)]
            case {"result": {"type": str()} as frame}:
                return self._frames.decode(spell(today(frame)))
        return [Refused(reason="the line is no response of JSON-RPC")]

    def encode(self, message: Message) -> list[bytes]:
        match message:
            case ControlRequest(request=Interrupt()):
                return [self._call("cancel", {})]
            case User():
                session = {"session_id": message.session_id} if isinstance(message.session_id, str) else {}
                return [self._call("run", {"prompt": message.message.content, **session})]
        return []

    def _call(self, method: str, params: Json) -> bytes:
        self._calls += 1
        return spell({"jsonrpc": "2.0", "id": self._calls, "method": method, "params": params})


def object_of(line: bytes) -> Any:
    try:
        return parse(line)
    except Flaw:
        return None


def today(frame: Json) -> Json:
    """A frame as engines of today say it."""
    earlier = EARLIER.get(frame["type"])
    try:
        return frame if earlier is None else earlier(frame)
    except BROKEN:
        return frame


def known(line: Json, cls: type[Message]) -> Message:
    """Raises msgspec.ValidationError."""
    made: Message = convert(line, cls)
    return made


def earlier_text(frame: Json) -> Json:
    return said({"type": "text", "text": frame.get("chunk", "")})


def earlier_call(frame: Json) -> Json:
    return said({"type": "tool_use", "id": frame["callId"], "name": frame["name"], "input": frame.get("args") or {}})


def earlier_result(frame: Json) -> Json:
    block = {"type": "tool_result", "tool_use_id": frame["callId"], "content": frame["result"]}
    return {"type": "system", "subtype": "tool_result", "tool_result": block}


def earlier_end(frame: Json) -> Json:
    counted = frame.get("usage") or {}
    usage = {"input_tokens": counted.get("inputTokens", 0), "output_tokens": counted.get("outputTokens", 0)}
    return {"type": "result", "subtype": "success", "is_error": False, "result": frame["response"], "usage": usage}


def said(block: Json) -> Json:
    return {"type": "assistant", "message": {"role": "assistant", "content": [block]}}


EARLIER: dict[str, Callable[[Json], Json]] = {
    "text": earlier_text,
    "tool_call": earlier_call,
    "tool_result": earlier_result,
    "complete": earlier_end,
}
READERS: dict[tuple[Any, Any], Callable[[MiriadHost, Json], Message]] = {
    ("assistant", None): MiriadHost.assistant,
    ("result", None): MiriadHost.result,
    ("system", "tool_result"): MiriadHost.tool_result,
}
