"""How a client reads the lines of the dialects: in the words of the canonical messages.

    read_miriad(b'{"type":"system","subtype":"tool_result",...}', new_uuid)     -> User
    read_jsonrpc(b'{"jsonrpc":"2.0","id":1,"result":{...}}', new_uuid)          -> the same, out of its envelope
    Spec001Reader(world()).decode(line)                                         -> [Result]

Fields that the dialects omit are filled in. The first builds used other names for some jsonrpc events.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from parley.protocol.base import UNSET, Json, Message, Refused, decode, encode_json
from parley.protocol.blocks import Block, ToolUse
from parley.protocol.dialects.base import DialectContext
from parley.protocol.dialects.miriad import AS_THEY_ARE
from parley.protocol.dialects.spec001 import API, FLAT, INVALID, LIMITS, Spec001
from parley.protocol.messages.conversation import Assistant
from parley.protocol.messages.dialects import JsonRpc, SystemToolResult
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import Init

NewUuid = Callable[[], str]
ENDS: dict[str, Json] = {
    "success": {"subtype": "success"},
    "error": {"subtype": "error_during_execution"},
    "cancelled": {"subtype": "error_during_execution", "terminal_reason": "aborted_streaming"},
}
"""The canonical subtypes of results."""


def read_miriad(line: bytes, new_uuid: NewUuid) -> Message:
    """The messages of a miriad line."""
    message = decode(line)
    match message:
        case Assistant():
            inner = msgspec.structs.replace(message.message, content=list(map(rename_block, message.message.content)))
            return msgspec.structs.replace(message, message=inner, uuid=new_uuid())
        case SystemToolResult(tool_result=result):
            return decode(
                encode_json({"type": "user", "message": {"role": "user", "content": [result]}, "uuid": new_uuid()})
            )
        case Result(subtype=str() as subtype) if subtype in ENDS:
            return build_result(message, new_uuid)
    return message


def rename_block(block: Block) -> Block:
    return ToolUse(from_dialect(block.json)) if isinstance(block, ToolUse) else block


def build_result(result: Result, new_uuid: NewUuid) -> Result:
    """The result of a turn; the text of a failure becomes its errors."""
    changes: Json = {**ENDS[result.subtype], "duration_api_ms": 0, "uuid": new_uuid()}
    if result.subtype != "success":
        changes["is_error"] = True
        changes["errors"] = [result.result] if isinstance(result.result, str) else []
        changes["result"] = UNSET
    return msgspec.structs.replace(result, **changes)


def read_jsonrpc(line: bytes, new_uuid: NewUuid) -> Message:
    """The messages of a jsonrpc response; an error stays in its envelope."""
    message = decode(line)
    if not isinstance(message, JsonRpc) or not isinstance(message.result, dict):
        return message
    frame = message.result
    first = FIRST.get(str(frame.get("type")))
    try:
        return read_miriad(encode_json(frame if first is None else first(frame)), new_uuid)
    except (KeyError, TypeError) as exc:
        return Refused(reason=f"the response has no field {exc}", kind="jsonrpc")


def read_block(block: Json) -> Json:
    return {"type": "assistant", "message": {"role": "assistant", "content": [block]}}


def read_usage(frame: Json) -> Json:
    usage = frame.get("usage") or {}
    return {"input_tokens": usage.get("inputTokens", 0), "output_tokens": usage.get("outputTokens", 0)}


FIRST: dict[str, Callable[[Json], Json]] = {
    "text": lambda frame: read_block({"type": "text", "text": frame["chunk"]}),
    "tool_call": lambda frame: read_block(
        {"type": "tool_use", "id": frame["callId"], "name": frame["name"], "input": frame["args"]}
    ),
    "tool_result": lambda frame: {
        "type": "system",
        "subtype": "tool_result",
        "tool_result": {"type": "tool_result", "tool_use_id": frame["callId"], "content": frame["result"]},
    },
    "complete": lambda frame: {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": frame["response"],
        "usage": read_usage(frame),
    },
    "cancelled": lambda frame: {"type": "result", "subtype": "cancelled"},
    "error": lambda frame: {"type": "system", "subtype": "error", "message": str(frame.get("message", ""))},
    "status": lambda frame: {"type": "system", "subtype": "status", "running": frame.get("running") is True},
}
"""The event names of older engines, and the current ones."""


SAME_KEYS = frozenset({"dangerouslyDisableSandbox"})
"""Parameters that have the same spelling in both."""
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def from_dialect(block: Json) -> Json:
    """A `tool_use` block of the dialects in our spelling."""
    if str(block["name"]).startswith(AS_THEY_ARE):
        return block
    name = "".join(part[:1].upper() + part[1:] for part in str(block["name"]).split("_"))
    given: Json = {}
    for key, value in block["input"].items():
        if (name, key) == ("Read", "offset"):
            given[key] = value + 1 if isinstance(value, int) and not isinstance(value, bool) else value
        elif (name, key) == ("Grep", "include"):
            given["glob"] = value
        else:
            given[key if key in SAME_KEYS else HUMP.sub("_", key).lower()] = value
    return {**block, "name": name, "input": given}


FOUND = {there: ours for ours, there in LIMITS.items()}
FAULTS = (INVALID, "tool_error", "system_error")


class Spec001Reader(Spec001):
    """The dialect, as a client reads it."""

    def __init__(self, world: DialectContext) -> None:
        super().__init__(world)
        self._model = ""
        """The model of the last `init` that was read."""

    def decode(self, line: bytes) -> list[Message]:
        [message] = super().decode(line)
        match message:
            case Init():
                return [self.read_init(message)]
            case Assistant():
                return [self.read_assistant(message)]
            case Result():
                return [self.read_result(message)]
        return [message]

    def read_init(self, init: Init) -> Message:
        """The canonical `init` has the names of the tools only."""
        self._model = init.model if isinstance(init.model, str) else ""
        if not isinstance(init.tools, list):
            return init
        names = [tool.get("name") if isinstance(tool, dict) else tool for tool in init.tools]
        return msgspec.structs.replace(init, tools=names, uuid=init.uuid or self._world.new_uuid())

    def read_assistant(self, message: Assistant) -> Message:
        inner = message.message
        if inner.model is UNSET:
            inner = msgspec.structs.replace(inner, model=self._model)
        return msgspec.structs.replace(message, message=inner, uuid=message.uuid or self._world.new_uuid())

    def read_result(self, result: Result) -> Message:
        known = canonical(result)
        return msgspec.structs.replace(known, uuid=known.uuid or self._world.new_uuid())


def canonical(result: Result) -> Result:
    """A result of the dialect as a canonical one."""
    changes: Json = {"is_error": result.subtype != "success"} if result.is_error is UNSET else {}
    for name in ("duration_ms", "duration_api_ms"):
        if getattr(result, name) is UNSET:
            changes[name] = 0
    counted = {name: getattr(result, flat) for flat, name in FLAT.items() if isinstance(getattr(result, flat), int)}
    if result.usage is UNSET and counted:
        changes["usage"] = counted
    if result.subtype == "user_cancelled":
        changes["subtype"] = "error_during_execution"
        changes["terminal_reason"] = result.terminal_reason or "aborted_streaming"
    elif result.subtype == "error":
        changes |= read_error_fields(result, result.error if isinstance(result.error, dict) else {})
    else:
        changes["subtype"] = FOUND.get(result.subtype, result.subtype)
    flat = dict.fromkeys((*FLAT, "error", "timestamp"), UNSET)
    return msgspec.structs.replace(result, **flat, **changes)


def read_error_fields(result: Result, told: Json) -> Json:
    """The fields of an error object in the canonical result."""
    kind, details = told.get("type"), told.get("details")
    details = details if isinstance(details, dict) else {}
    text_only = kind == API and isinstance(result.result, str)
    changes: Json = {"subtype": "success" if text_only else details.get("subtype") or "error_during_execution"}
    if not text_only and result.errors is UNSET:
        errors = details.get("errors")
        changes["errors"] = errors if isinstance(errors, list) else [str(told.get("message", ""))]
    if kind in ("permission_denied", API) and result.terminal_reason is UNSET and not text_only:
        changes["terminal_reason"] = kind
    elif kind in FAULTS and result.fault_type is UNSET:
        changes["fault_type"] = kind
    if isinstance(details.get("status"), int) and result.api_error_status is UNSET:
        changes["api_error_status"] = details["status"]
    return changes
