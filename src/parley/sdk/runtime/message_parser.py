"""Convert protocol messages to the SDK's message classes.

`PARSERS` maps the classes of the protocol to parsers. `parse_message` never raises: a message without
a parser becomes a `SystemMessage`, a `Notice` or an `Unknown`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parley.protocol import base
from parley.protocol.base import UNSET, Json, to_builtins
from parley.protocol.messages import conversation, notices, occasional, system
from parley.protocol.messages.result import Result
from parley.sdk.types import messages as ours
from parley.sdk.types.blocks import read_block, read_content


def parse_message(message: base.Message) -> ours.Message:
    """Convert a protocol message to the SDK's class for it."""
    reader = PARSERS.get(type(message), parse_other)
    found: ours.Message = reader(message)
    found.__dict__["_wire"] = message
    return found


def or_none(value: Any) -> Any:
    """Map absent fields to None: the official classes do not distinguish absent from null."""
    return None if value is UNSET else value


def to_plain(value: Any) -> Any:
    return None if value is UNSET else to_builtins(value)


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def as_dict(message: base.Message) -> Json:
    """Return the JSON object of a message."""
    found: Json = ours.object_of(base.encode(message))
    return found


def parse_user(message: conversation.User) -> ours.Message:
    return ours.UserMessage(
        content=read_content(message.message.content),
        uuid=or_none(message.uuid),
        parent_tool_use_id=or_none(message.parent_tool_use_id),
        tool_use_result=or_none(message.tool_use_result),
        origin=or_none(message.origin),
    )


def parse_assistant(message: conversation.Assistant) -> ours.Message:
    inner = message.message
    return ours.AssistantMessage(
        content=[read_block(block) for block in inner.content],
        model=as_text(inner.model),
        parent_tool_use_id=or_none(message.parent_tool_use_id),
        # Some engines put the error next to the message, others into it.
        error=or_none(message.error) or or_none(inner.error),
        usage=or_none(inner.usage),
        message_id=or_none(inner.id),
        stop_reason=or_none(inner.stop_reason),
        session_id=or_none(message.session_id),
        uuid=or_none(message.uuid),
        user_message_uuid=or_none(message.user_message_uuid),
        user_message_uuids=or_none(message.user_message_uuids),
    )


def parse_result(message: Result) -> ours.Message:
    deferred = or_none(message.deferred_tool_use)
    usage = or_none(message.usage)
    if usage is None and message.input_tokens is not UNSET:
        usage = parse_usage(message)
    errors = or_none(message.errors)
    if errors is None and message.error is not UNSET:
        errors = [as_text(message.error.get("message")) or str(message.error)]
    return ours.ResultMessage(
        subtype=message.subtype,
        duration_ms=or_none(message.duration_ms) or 0,
        duration_api_ms=or_none(message.duration_api_ms) or 0,
        is_error=message.subtype != "success" if message.is_error is UNSET else message.is_error,
        num_turns=or_none(message.num_turns) or 0,
        session_id=as_text(message.session_id),
        stop_reason=or_none(message.stop_reason),
        total_cost_usd=or_none(message.total_cost_usd),
        usage=usage,
        result=or_none(message.result),
        structured_output=or_none(message.structured_output),
        model_usage=to_plain(message.modelUsage),
        permission_denials=to_plain(message.permission_denials),
        deferred_tool_use=parse_deferred(deferred) if deferred else None,
        errors=errors,
        api_error_status=or_none(message.api_error_status),
        uuid=or_none(message.uuid),
        terminal_reason=or_none(message.terminal_reason),
        origin=or_none(message.origin),
        user_message_uuid=or_none(message.user_message_uuid),
        user_message_uuids=or_none(message.user_message_uuids),
    )


def parse_usage(message: Result) -> Json:
    """Build `usage` for dialect B, whose result has the token counts as top-level fields."""
    return {
        "input_tokens": message.input_tokens,
        "output_tokens": or_none(message.output_tokens) or 0,
        "cache_creation_input_tokens": or_none(message.cache_creation_tokens) or 0,
        "cache_read_input_tokens": or_none(message.cache_read_tokens) or 0,
    }


def parse_deferred(call: Json) -> ours.DeferredToolUse:
    given_input = call.get("input")
    return ours.DeferredToolUse(
        id=as_text(call.get("id")),
        name=as_text(call.get("name")),
        input=given_input if isinstance(given_input, dict) else {},
    )


def parse_stream_event(message: conversation.StreamEvent) -> ours.Message:
    event = ours.object_of(bytes(message.event))
    return ours.StreamEvent(
        uuid=as_text(message.uuid),
        session_id=as_text(message.session_id),
        event=event if isinstance(event, dict) else {"value": event},
        parent_tool_use_id=or_none(message.parent_tool_use_id),
        user_message_uuid=or_none(message.user_message_uuid),
        user_message_uuids=or_none(message.user_message_uuids),
    )


def parse_rate_limit(message: notices.RateLimitEvent) -> ours.Message:
    info = message.rate_limit_info
    return ours.RateLimitEvent(
        rate_limit_info=ours.RateLimitInfo(
            status=info.status,  # type: ignore[arg-type]  # an engine may send other values
            resets_at=or_none(info.resetsAt),
            rate_limit_type=or_none(info.rateLimitType),
            utilization=or_none(info.utilization),
            overage_status=or_none(info.overageStatus),
            overage_resets_at=or_none(info.overageResetsAt),
            overage_disabled_reason=or_none(info.overageDisabledReason),
            raw=as_dict(message)["rate_limit_info"],
        ),
        uuid=as_text(message.uuid),
        session_id=as_text(message.session_id),
    )


def parse_reset(message: notices.ConversationReset) -> ours.Message:
    return ours.ConversationResetMessage(
        new_conversation_id=message.new_conversation_id,
        uuid=as_text(message.uuid),
        session_id=as_text(message.session_id),
    )


def system_parser(cls: type[ours.SystemMessage], *fields: str) -> Callable[[Any], ours.Message]:
    """Build a parser for a system message whose fields have the same names as on the wire."""

    def read(message: Any) -> ours.Message:
        values = {field: to_plain(getattr(message, field)) for field in fields}
        return cls(subtype=message.subtype, data=as_dict(message), **values)

    return read


def parse_task_updated(message: system.TaskUpdated) -> ours.Message:
    patch = to_builtins(message.patch)
    return ours.TaskUpdatedMessage(
        subtype=message.subtype,
        data=as_dict(message),
        task_id=message.task_id,
        patch=patch,
        status=patch.get("status"),
        session_id=or_none(message.session_id),
        uuid=or_none(message.uuid),
    )


def parse_hook(message: occasional.HookStarted | occasional.HookProgress | occasional.HookResponse) -> ours.Message:
    return ours.HookEventMessage(
        subtype=message.subtype,
        data=as_dict(message),
        hook_event_name=as_text(message.hook_event),
        session_id=or_none(message.session_id),
        uuid=or_none(message.uuid),
    )


def parse_mirror_error(message: occasional.MirrorError) -> ours.Message:
    data = as_dict(message)
    return ours.MirrorErrorMessage(
        subtype=message.subtype, data=data, key=data.get("key"), error=as_text(data.get("error"))
    )


def parse_unknown(message: base.Unknown) -> ours.Message:
    data = as_dict(message)
    if message.kind == "system":
        return ours.SystemMessage(subtype=message.subkind or "", data=data)
    return ours.Unknown(type=message.kind, subtype=message.subkind, data=data)


def parse_refused(message: base.Refused) -> ours.Message:
    return ours.Unreadable(reason=message.reason, type=message.kind)


def parse_other(message: base.Message) -> ours.Message:
    data = as_dict(message)
    kind = as_text(data.get("type")) or "jsonrpc"
    if kind == "system":
        return ours.SystemMessage(subtype=as_text(data.get("subtype")), data=data)
    return ours.Notice(type=kind, data=data)


TASK = ("task_id", "uuid", "session_id", "tool_use_id")
PARSERS: dict[type[base.Message], Callable[[Any], ours.Message]] = {
    conversation.User: parse_user,
    conversation.Assistant: parse_assistant,
    conversation.StreamEvent: parse_stream_event,
    Result: parse_result,
    notices.RateLimitEvent: parse_rate_limit,
    notices.ConversationReset: parse_reset,
    system.TaskStarted: system_parser(ours.TaskStartedMessage, *TASK, "description", "task_type"),
    system.TaskProgress: system_parser(ours.TaskProgressMessage, *TASK, "description", "usage", "last_tool_name"),
    system.TaskNotification: system_parser(
        ours.TaskNotificationMessage, *TASK, "status", "output_file", "summary", "usage"
    ),
    system.TaskUpdated: parse_task_updated,
    occasional.HookStarted: parse_hook,
    occasional.HookProgress: parse_hook,
    occasional.HookResponse: parse_hook,
    occasional.MirrorError: parse_mirror_error,
    base.Unknown: parse_unknown,
    base.Refused: parse_refused,
}
