"""What the dialects miriad, jsonrpc and spec001 share: reading their lines, prompts, names of tools, results.

    read_miriad(b'{"type":"system","subtype":"tool_result",...}', new_uuid)     -> User
    read_jsonrpc(b'{"jsonrpc":"2.0","id":1,"result":{...}}', new_uuid)          -> the same, out of its envelope

Fields that the dialects omit are filled in. Older engines used other names for some jsonrpc events; these are read
but never written.

The state of prompts follows from the messages of the engine: `command_lifecycle` reports the state of each prompt with
an id, `Queued` which of them wait, `init` and `result` the start and the end of a turn.

Tools have lower-case names and camelCase parameters there:

    to_dialect({"name": "Read", "input": {"file_path": "a", "offset": 3}})
        -> {"name": "read", "input": {"filePath": "a", "offset": 2}}
    from_dialect(...)
        -> the same back

MCP and memory tools keep their names and inputs. A new tool needs no entry here: only parameters that differ by more
than their spelling have one.

The result of a turn in spec001 has other subtypes, flat token counts and one error object:

    ours                                        there
    success                                     success
    error_max_turns                             max_turns_reached
    a budget that is spent                      budget_exceeded
    terminal_reason aborted_*                   user_cancelled
    anything else that is an error              error, with error{type, message, details}

Our other fields stay: a reader of that dialect ignores unknown fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from parley.protocol.base import UNSET, Json, Message, Refused, decode, encode_json, to_builtins
from parley.protocol.blocks import Block, ToolUse
from parley.protocol.messages.conversation import Assistant
from parley.protocol.messages.dialects import JsonRpc, Queued, SessionOpened, SystemToolResult
from parley.protocol.messages.notices import CommandLifecycle
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


class PromptTracker:
    def __init__(self) -> None:
        self.session_id = ""
        """The id of the session."""
        self.queued: list[str] = []
        """Prompts that wait for a turn to end."""
        self._open: dict[str, str | None] = {}
        """The session id that the client gave with each open prompt; None if it gave none."""
        self._accepted: set[str] = set()
        self._in_turn = False
        self.have_run = False
        """Whether a turn has ended."""

    def add(self, uuid: str, session_id: str | None) -> None:
        self._open[uuid] = session_id

    @property
    def is_running(self) -> bool:
        """Whether a turn runs or is about to."""
        return self._in_turn or bool(self._accepted)

    def is_accepted(self, uuid: str) -> bool:
        """Whether the engine accepted a prompt that has no result yet."""
        return uuid in self._accepted

    def session_of(self, uuid: object) -> str:
        """The session id that the client gave with a prompt, else the id of the session."""
        return (self._open.get(uuid) if isinstance(uuid, str) else None) or self.session_id

    def update(self, message: Message) -> None:
        """Update the state from a message of the engine."""
        match message:
            case SessionOpened(session_id=str() as own):
                self.session_id = own
            case Init():
                self._in_turn = True
            case Queued(user_message_uuid=str() as uuid):
                self.queued.append(uuid)
            case CommandLifecycle(command_uuid=uuid, state="queued"):
                self._accepted.add(uuid)
            case CommandLifecycle(command_uuid=uuid, state="started"):
                self._in_turn = True
                self._leave_queue(uuid)
            case CommandLifecycle(command_uuid=uuid):
                self._leave_queue(uuid)
                self._forget(uuid)
            case Result(user_message_uuids=answered):
                self._in_turn, self.have_run = False, True
                # They end with the result; the lifecycle message of each comes a little later.
                for uuid in answered or ():
                    if uuid not in self._accepted:
                        self._open.pop(uuid, None)  # it was refused: nothing follows
                self._accepted -= set(answered or ())

    def _leave_queue(self, uuid: str) -> None:
        if uuid in self.queued:
            self.queued.remove(uuid)

    def _forget(self, uuid: str) -> None:
        self._open.pop(uuid, None)
        self._accepted.discard(uuid)


AS_THEY_ARE = ("mcp__", "memory_", "ltm_")
SAME_KEYS = frozenset({"dangerouslyDisableSandbox"})
"""Parameters that have the same spelling in both."""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BAR = re.compile(r"(?<=[a-z0-9])_([a-z0-9])")


def is_ours(name: str) -> bool:
    return not name.startswith(AS_THEY_ARE)


def lower(name: str) -> str:
    """`WebFetch` -> `web_fetch`."""
    return _HUMP.sub("_", name).lower() if is_ours(name) else name


def upper(name: str) -> str:
    """`web_fetch` -> `WebFetch`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) if is_ours(name) else name


def camel(key: str) -> str:
    return _BAR.sub(lambda found: found[1].upper(), key)


def snake(key: str) -> str:
    return key if key in SAME_KEYS else _HUMP.sub("_", key).lower()


def shift(value: Any, by: int) -> Any:
    """A line number with another origin. Other values are left for the tool to refuse."""
    return value + by if isinstance(value, int) and not isinstance(value, bool) else value


def counted_from_0(value: Any) -> Any:
    return shift(value, -1)


def counted_from_1(value: Any) -> Any:
    return shift(value, 1)


Change = tuple[str, Callable[[Any], Any]]

THERE: dict[tuple[str, str], Change] = {
    ("Read", "offset"): ("offset", counted_from_0),
    ("Grep", "glob"): ("include", lambda value: value),
}
"""Parameters that differ by more than their spelling, by our tool and parameter name."""
HERE: dict[tuple[str, str], Change] = {
    ("Read", "offset"): ("offset", counted_from_1),
    ("Grep", "include"): ("glob", lambda value: value),
}


def to_dialect(block: Json) -> Json:
    """A `tool_use` block in the spelling of the dialects."""
    name = str(block["name"])
    if not is_ours(name):
        return block
    return {**block, "name": lower(name), "input": rename_call(name, block["input"], THERE, camel)}


def from_dialect(block: Json) -> Json:
    """A `tool_use` block of the dialects in our spelling."""
    name = upper(str(block["name"]))
    if not is_ours(name):
        return block
    return {**block, "name": name, "input": fold_workdir(rename_call(name, block["input"], HERE, snake))}


def fold_workdir(given: Json) -> Json:
    """A command with a folder to run in, as one command line."""
    command, folder = given.get("command"), given.get("workdir")
    if not isinstance(command, str) or not isinstance(folder, str):
        return given
    rest = {key: value for key, value in given.items() if key != "workdir"}
    return {**rest, "command": f"cd {quote(folder)} && {command}"}


def rename_call(tool: str, given: Json, changes: dict[tuple[str, str], Change], spell: Callable[[str], str]) -> Json:
    found: Json = {}
    for key, value in given.items():
        name, change = changes.get((tool, key), (spell(key), None))
        found[name] = value if change is None else change(value)
    return found


def quote(path: str) -> str:
    """One word of a shell command."""
    return "'" + path.replace("'", "'\"'\"'") + "'"


FLAT = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_creation_tokens": "cache_creation_input_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
}
"""The flat names, and their names in `usage`."""
FAILED, UNFORMED = "error_during_execution", "error_max_structured_output_retries"
LIMITS = {"error_max_turns": "max_turns_reached", "error_max_budget_usd": "budget_exceeded"}
FOUND = {there: ours for ours, there in LIMITS.items()}
API, DENIED, INVALID, SYSTEM = "api_error", "permission_denied", "validation_error", "system_error"
FAULTS = (INVALID, "tool_error", SYSTEM)


def flatten(result: Result) -> Json:
    """A result in the dialect."""
    frame: Json = to_builtins(result)
    frame["subtype"] = subtype(result)
    usage = result.usage if isinstance(result.usage, dict) else {}
    frame |= {flat: usage.get(name) or 0 for flat, name in FLAT.items()}
    if frame["subtype"] == "error":
        frame["error"] = error(result)
    return frame


def subtype(result: Result) -> str:
    if result.subtype in LIMITS:
        return LIMITS[result.subtype]
    if result.terminal_reason == "budget_exhausted":
        return "budget_exceeded"
    is_error = result.is_error is True
    if is_error and isinstance(result.terminal_reason, str) and result.terminal_reason.startswith("aborted_"):
        return "user_cancelled"
    return "error" if is_error or result.subtype != "success" else "success"


def error(result: Result) -> Json:
    errors = result.errors if isinstance(result.errors, list) else []
    words = "; ".join(errors) or (result.result if isinstance(result.result, str) else "") or result.subtype
    details: Json = {"errors": errors} if len(errors) > 1 else {}
    if isinstance(result.api_error_status, int):
        details["status"] = result.api_error_status
    if result.subtype == UNFORMED:
        details["subtype"] = result.subtype
    return {"type": error_type(result), "message": words, "details": details}


def error_type(result: Result) -> str:
    """The type of the error."""
    if isinstance(result.fault_type, str):
        return result.fault_type
    if result.subtype == "success" or result.terminal_reason == API:
        return API  # the backend failed
    if result.subtype == UNFORMED:
        return INVALID
    if result.terminal_reason == "permission_denied":
        return DENIED
    # A turn without a reason for its end had an invalid request.
    return INVALID if result.terminal_reason is UNSET and not result.num_turns else SYSTEM


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
        changes["subtype"] = FAILED
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
    changes: Json = {"subtype": "success" if text_only else details.get("subtype") or FAILED}
    if not text_only and result.errors is UNSET:
        errors = details.get("errors")
        changes["errors"] = errors if isinstance(errors, list) else [str(told.get("message", ""))]
    if kind in (DENIED, API) and result.terminal_reason is UNSET and not text_only:
        changes["terminal_reason"] = kind
    elif kind in FAULTS and result.fault_type is UNSET:
        changes["fault_type"] = kind
    if isinstance(details.get("status"), int) and result.api_error_status is UNSET:
        changes["api_error_status"] = details["status"]
    return changes
