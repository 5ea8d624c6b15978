"""The dialect spec001: five kinds of lines, each with a timestamp.

    system      init with the schemas of the tools, permission_request, hook_execution, error
    assistant   one line per answer: its blocks are held until it is complete, before its tools run
    user        the results of tools
    result      with subtypes and flat tokens of its own, and one error object
    stream_event

A client writes as in the canonical dialect; `content` may be a field of the line itself. The dialect does not
define control requests: they are sent as in the canonical dialect, with a timestamp. Other messages are not sent.

    the end of a turn here                      there
    success                                     success
    error_max_turns                             max_turns_reached
    a budget that is spent                      budget_exceeded
    terminal_reason aborted_*                   user_cancelled
    anything else that is an error              error, with error{type, message, details}

Our other fields of a result stay: a reader of this dialect ignores unknown fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from parley.protocol.base import UNSET, Json, Message, Refused, UnsetType, decode, encode_json, to_builtins
from parley.protocol.blocks import Text, ToolUse
from parley.protocol.dialects.base import DialectContext, DialectProfile, HeldAnswer, system
from parley.protocol.messages.control import ControlCancelRequest, ControlRequest, ControlResponse
from parley.protocol.messages.conversation import Assistant, StreamEvent, User
from parley.protocol.messages.dialects import AnswerComplete, PermissionRequest, SystemFault
from parley.protocol.messages.notices import KeepAlive, TranscriptMirror
from parley.protocol.messages.occasional import HookResponse
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import ApiRetry, Informational, Init, SessionStateChanged

SHOWN_BLOCKS = (Text, ToolUse)
TOOL_EVENTS = frozenset({"PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest"})
"""Events whose hooks are reported with the name of the tool."""


class Spec001:
    name = "spec001"
    can_request = True
    profile: ClassVar[DialectProfile] = DialectProfile(
        partial_messages=True,
        hook_events=True,
        include_tool_schemas=True,
        layouts=("folder", "claude"),
        interrupts_early=True,
    )

    def __init__(self, world: DialectContext) -> None:
        self._world = world
        self._held: HeldAnswer | None = None
        """The blocks of an answer that is not complete yet."""

    # In.

    def decode(self, line: bytes) -> list[Message]:
        message = decode(line)
        if isinstance(message, Refused) and message.kind == "user":
            unwrapped = wrap(line)
            message = message if unwrapped is None else decode(unwrapped)
        return [message]

    # Out.

    def encode(self, message: Message) -> list[bytes]:
        say = FRAMES.get(type(message))
        return [] if say is None else [encode_json(self.stamp(frame)) for frame in say(self, message)]

    def stamp(self, frame: Json) -> Json:
        """Every line ends with a timestamp."""
        at = frame.pop("timestamp", UNSET)
        said = {name: value for name, value in frame.items() if value is not UNSET}
        return {**said, "timestamp": self._world.now() if at is UNSET else at}

    def encode_init(self, init: Init) -> list[Json]:
        facts = {"session_id": init.session_id, "model": init.model, "tools": init.tools}
        return [*self.complete(), system("init", **facts)]

    def encode_event(self, event: StreamEvent) -> list[Json]:
        place = lineage(event.parent_tool_use_id)
        return [{"type": "stream_event", "event": event.event, "session_id": event.session_id, **place}]

    def encode_assistant(self, message: Assistant) -> list[Json]:
        content = message.message.content
        if message.is_api_error_message is True:
            told = [fault("api_error", block.text, message.session_id) for block in content if isinstance(block, Text)]
            return [*self.complete(), *told]
        said = [block.json for block in content if isinstance(block, SHOWN_BLOCKS)]
        held = self._held
        if held is not None and held.includes(message):
            held.content += said
            return []
        before = self.complete()
        self._held = HeldAnswer(message, said)
        # The answer of a subagent has no completion event; its calls and texts are lines of their own.
        return [*before, *self.complete()] if message.parent_tool_use_id else before

    def complete(self, message: Message | None = None) -> list[Json]:
        """The held answer, as one line."""
        held, self._held = self._held, None
        if held is None or not held.content:
            return []
        inner = {"role": "assistant", "content": held.content}
        place = lineage(held.first.parent_tool_use_id)
        return [{"type": "assistant", "message": inner, "session_id": held.first.session_id, **place}]

    def encode_user(self, message: User) -> list[Json]:
        if message.isSynthetic is True:
            return []
        frame: Json = {
            "type": "user",
            "message": to_builtins(message.message),
            "session_id": message.session_id,
            **lineage(message.parent_tool_use_id),
            "timestamp": message.timestamp,
        }
        return [*self.complete(), frame]

    def encode_result(self, result: Result) -> list[Json]:
        return [*self.complete(), flatten(result)]

    def encode_unchanged(self, message: Message) -> list[Json]:
        """The canonical line with a timestamp."""
        return [*self.complete(), to_builtins(message)]

    def encode_permission(self, asked: PermissionRequest) -> list[Json]:
        told = system("permission_request", tool=asked.tool, params=asked.params, session_id=asked.session_id)
        return [*self.complete(), told]

    def encode_hook(self, hook: HookResponse) -> list[Json]:
        _, _, subject = hook.hook_name.partition(":")
        about = {"tool": subject} if subject and hook.hook_event in TOOL_EVENTS else {}
        told = {"hook_event": hook.hook_event, "hook_name": hook.hook_name, **about, "outcome": hook.outcome}
        return [*self.complete(), system("hook_execution", **told, session_id=hook.session_id)]

    def encode_fault(self, told: SystemFault) -> list[Json]:
        error: Json = told.error if isinstance(told.error, dict) else {}
        kind, words = error.get("type") or "system_error", error.get("message") or told.message
        return [*self.complete(), fault(str(kind), str(words or ""), told.session_id)]

    def encode_retry(self, retry: ApiRetry) -> list[Json]:
        seconds = retry.retry_delay_ms / 1000
        words = f"The model call failed ({retry.error}); attempt {retry.attempt} of {retry.max_retries} follows in "
        return [*self.complete(), fault("api_error", f"{words}{seconds:.1f} s", retry.session_id)]

    def encode_warning(self, told: Informational) -> list[Json]:
        return [*self.complete(), fault("system_error", told.content, told.session_id)] if is_error(told) else []


def fault(kind: str, words: str, session_id: str | UnsetType) -> Json:
    return system("error", error={"type": kind, "message": words}, session_id=session_id)


def lineage(parent: str | None | UnsetType) -> Json:
    """Only lines of subagents are attributed."""
    return {"parent_tool_use_id": parent} if parent else {}


FLAT = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_creation_tokens": "cache_creation_input_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
}
"""The flat names, and their names in `usage`."""
UNFORMED = "error_max_structured_output_retries"
LIMITS = {"error_max_turns": "max_turns_reached", "error_max_budget_usd": "budget_exceeded"}
API, INVALID = "api_error", "validation_error"


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
        return "permission_denied"
    # A turn without a reason for its end had an invalid request.
    return INVALID if result.terminal_reason is UNSET and not result.num_turns else "system_error"


def is_error(told: Informational) -> bool:
    return told.level in ("warning", "error")


def wrap(line: bytes) -> bytes | None:
    """A user line with `content` on the line itself, as a canonical one; None for other lines."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found, dict) or "message" in found or "content" not in found:
        return None
    return encode_json({**found, "message": {"role": "user", "content": found["content"]}})


FRAMES: dict[type[Message], Callable[[Spec001, Any], list[Json]]] = {
    StreamEvent: Spec001.encode_event,
    Assistant: Spec001.encode_assistant,
    AnswerComplete: Spec001.complete,
    User: Spec001.encode_user,
    Result: Spec001.encode_result,
    Init: Spec001.encode_init,
    PermissionRequest: Spec001.encode_permission,
    HookResponse: Spec001.encode_hook,
    SystemFault: Spec001.encode_fault,
    ApiRetry: Spec001.encode_retry,
    Informational: Spec001.encode_warning,
    ControlRequest: Spec001.encode_unchanged,
    ControlResponse: Spec001.encode_unchanged,
    ControlCancelRequest: Spec001.encode_unchanged,
    KeepAlive: Spec001.encode_unchanged,
    TranscriptMirror: Spec001.encode_unchanged,
    SessionStateChanged: Spec001.encode_unchanged,
}
"""The encoder of each message. Messages without a row are not sent."""
