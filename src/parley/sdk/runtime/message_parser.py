"""Messages of the wire as the client's own.

A table from the classes of the protocol to those of types/messages.py. Never raises: what has no
row is a `SystemMessage` with its line, a `Notice` or an `Unknown`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parley.protocol import base
from parley.protocol.base import UNSET, Json, plain
from parley.protocol.messages import conversation, notices, system
from parley.protocol.messages.result import Result
from parley.sdk.types import messages as ours
from parley.sdk.types.blocks import read_block, read_content


def read(message: base.Message) -> ours.Message:
    """The client's message for one of the wire."""
    reader = READERS.get(type(message), other)
    found: ours.Message = reader(message)
    found.__dict__["_wire"] = message
    return found


def given(value: Any) -> Any:
    """The official classes know no difference between absent and null."""
    return None if value is UNSET else value


def simple(value: Any) -> Any:
    return None if value is UNSET else plain(value)


def word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def whole(message: base.Message) -> Json:
    """The line of a message as an object."""
    found: Json = ours.object_of(base.encode(message))
    return found


def user(message: conversation.User) -> ours.Message:
    return ours.UserMessage(
        content=read_content(message.message.content),
        uuid=given(message.uuid),
        parent_tool_use_id=given(message.parent_tool_use_id),
        tool_use_result=given(message.tool_use_result),
        origin=given(message.origin),
    )


def assistant(message: conversation.Assistant) -> ours.Message:
    inner = message.message
    return ours.AssistantMessage(
        content=[read_block(block) for block in inner.content],
        model=word(inner.model),
        parent_tool_use_id=given(message.parent_tool_use_id),
        # Some engines put the error on the line, others into the message.
        error=given(message.error) or given(inner.error),
        usage=given(inner.usage),
        message_id=given(inner.id),
        stop_reason=given(inner.stop_reason),
        session_id=given(message.session_id),
        uuid=given(message.uuid),
    )


def result(message: Result) -> ours.Message:
    put_off = given(message.deferred_tool_use)
    usage = given(message.usage)
    if usage is None and message.input_tokens is not UNSET:
        usage = flat_usage(message)
    errors = given(message.errors)
    if errors is None and message.error is not UNSET:
        errors = [word(message.error.get("message")) or str(message.error)]
    return ours.ResultMessage(
        subtype=message.subtype,
        duration_ms=given(message.duration_ms) or 0,
        duration_api_ms=given(message.duration_api_ms) or 0,
        is_error=message.subtype != "success" if message.is_error is UNSET else message.is_error,
        num_turns=given(message.num_turns) or 0,
        session_id=word(message.session_id),
        stop_reason=given(message.stop_reason),
        total_cost_usd=given(message.total_cost_usd),
        usage=usage,
        result=given(message.result),
        structured_output=given(message.structured_output),
        model_usage=simple(message.modelUsage),
        permission_denials=simple(message.permission_denials),
        deferred_tool_use=deferred(put_off) if put_off else None,
        errors=errors,
        api_error_status=given(message.api_error_status),
        uuid=given(message.uuid),
        terminal_reason=given(message.terminal_reason),
        origin=given(message.origin),
    )


def flat_usage(message: Result) -> Json:
    """Dialect B has its counts on the line itself."""
    return {
        "input_tokens": message.input_tokens,
        "output_tokens": given(message.output_tokens) or 0,
        "cache_creation_input_tokens": given(message.cache_creation_tokens) or 0,
        "cache_read_input_tokens": given(message.cache_read_tokens) or 0,
    }


def deferred(call: Json) -> ours.DeferredToolUse:
    given_input = call.get("input")
    return ours.DeferredToolUse(
        id=word(call.get("id")),
        name=word(call.get("name")),
        input=given_input if isinstance(given_input, dict) else {},
    )


def stream_event(message: conversation.StreamEvent) -> ours.Message:
    event = ours.object_of(bytes(message.event))
    return ours.StreamEvent(
        uuid=word(message.uuid),
        session_id=word(message.session_id),
        event=event if isinstance(event, dict) else {"value": event},
        parent_tool_use_id=given(message.parent_tool_use_id),
    )


def rate_limit(message: notices.RateLimitEvent) -> ours.Message:
    info = message.rate_limit_info
    return ours.RateLimitEvent(
        rate_limit_info=ours.RateLimitInfo(
            status=info.status,  # type: ignore[arg-type]  # an engine may know more words than the type
            resets_at=given(info.resetsAt),
            rate_limit_type=given(info.rateLimitType),
            utilization=given(info.utilization),
            overage_status=given(info.overageStatus),
            overage_resets_at=given(info.overageResetsAt),
            overage_disabled_reason=given(info.overageDisabledReason),
            raw=whole(message)["rate_limit_info"],
        ),
        uuid=word(message.uuid),
        session_id=word(message.session_id),
    )


def reset(message: notices.ConversationReset) -> ours.Message:
    return ours.ConversationResetMessage(
        new_conversation_id=message.new_conversation_id,
        uuid=word(message.uuid),
        session_id=word(message.session_id),
    )


def of_system(cls: type[ours.SystemMessage], *fields: str) -> Callable[[Any], ours.Message]:
    """A reader for a system message whose fields have the names of the wire."""

    def read(message: Any) -> ours.Message:
        values = {field: simple(getattr(message, field)) for field in fields}
        return cls(subtype=message.subtype, data=whole(message), **values)

    return read


def task_updated(message: system.TaskUpdated) -> ours.Message:
    patch = plain(message.patch)
    return ours.TaskUpdatedMessage(
        subtype=message.subtype,
        data=whole(message),
        task_id=message.task_id,
        patch=patch,
        status=patch.get("status"),
        session_id=given(message.session_id),
        uuid=given(message.uuid),
    )


def hook(message: system.HookStarted | system.HookProgress | system.HookResponse) -> ours.Message:
    return ours.HookEventMessage(
        subtype=message.subtype,
        data=whole(message),
        hook_event_name=word(message.hook_event),
        session_id=given(message.session_id),
        uuid=given(message.uuid),
    )


def mirror_error(message: system.MirrorError) -> ours.Message:
    data = whole(message)
    return ours.MirrorErrorMessage(
        subtype=message.subtype, data=data, key=data.get("key"), error=word(data.get("error"))
    )


def unknown(message: base.Unknown) -> ours.Message:
    data = whole(message)
    if message.kind == "system":
        return ours.SystemMessage(subtype=message.subkind or "", data=data)
    return ours.Unknown(type=message.kind, subtype=message.subkind, data=data)


def refused(message: base.Refused) -> ours.Message:
    return ours.Unreadable(reason=message.reason, type=message.kind)


def other(message: base.Message) -> ours.Message:
    data = whole(message)
    kind = word(data.get("type")) or "jsonrpc"
    if kind == "system":
        return ours.SystemMessage(subtype=word(data.get("subtype")), data=data)
    return ours.Notice(type=kind, data=data)


TASK = ("task_id", "uuid", "session_id", "tool_use_id")
READERS: dict[type[base.Message], Callable[[Any], ours.Message]] = {
    conversation.User: user,
    conversation.Assistant: assistant,
    conversation.StreamEvent: stream_event,
    Result: result,
    notices.RateLimitEvent: rate_limit,
    notices.ConversationReset: reset,
    system.TaskStarted: of_system(ours.TaskStartedMessage, *TASK, "description", "task_type"),
    system.TaskProgress: of_system(ours.TaskProgressMessage, *TASK, "description", "usage", "last_tool_name"),
    system.TaskNotification: of_system(
        ours.TaskNotificationMessage, *TASK, "status", "output_file", "summary", "usage"
    ),
    system.TaskUpdated: task_updated,
    system.HookStarted: hook,
    system.HookProgress: hook,
    system.HookResponse: hook,
    system.MirrorError: mirror_error,
    base.Unknown: unknown,
    base.Refused: refused,
}
