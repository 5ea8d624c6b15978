"""Lines of the dialects miriad and jsonrpc as canonical messages, for clients of such an engine.

    read_miriad(b'{"type":"system","subtype":"tool_result",...}', new_uuid)     -> User
    read_jsonrpc(b'{"jsonrpc":"2.0","id":1,"result":{...}}', new_uuid)          -> the same, out of its envelope

Fields that the dialects omit are filled in. Older engines used other names for some jsonrpc events; these are read
but never written.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from parley.protocol.base import UNSET, Json, Message, Refused, decode, encode_json
from parley.protocol.blocks import Block, ToolUse
from parley.protocol.dialects.tool_names import from_dialect
from parley.protocol.messages.conversation import Assistant
from parley.protocol.messages.dialects import JsonRpc, SystemToolResult
from parley.protocol.messages.result import Result

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
