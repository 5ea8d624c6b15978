"""Convert protocol messages to the SDK's message classes.

`PARSERS` maps the classes of the protocol to parsers. `parse_message` never raises: a message without
a parser becomes a `SystemMessage`, a `Notice` or an `Unknown`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import Any

from parley.protocol import base
from parley.protocol.base import UNSET, Json, to_builtins
from parley.protocol.messages import conversation, notices, occasional, system
from parley.protocol.messages.result import Result
from parley.sdk.permissions import or_none
from parley.sdk.runtime.background import log
from parley.sdk.types import messages as ours
from parley.sdk.types.messages import read_block, read_content

Reader = Callable[[Any], Any]
EMPTY = {"str": "", "int": 0}
"""What a required field has if the message lacks it, by its type."""
PLAIN = frozenset({str, int, float, bool})


def parse_message(message: base.Message) -> ours.Message:
    """Convert a protocol message to the SDK's class for it."""
    reader = PARSERS.get(type(message), parse_other)
    found: ours.Message = reader(message)
    found.__dict__["_wire"] = message
    return found


def parser(wire: type[base.Struct], cls: type[Any], **made: Reader) -> Reader:
    """Build the parser of a class, whose fields have the names of the protocol's, perhaps in another spelling.

    `made` has the fields that are made of others. Absent fields become None: the official classes do not distinguish
    absent from null.
    """
    copied = [
        (field.name, spell(field.name, wire), EMPTY.get(str(field.type)) if field.default is MISSING else None)
        for field in fields(cls)
        if field.name not in made
    ]

    def parse(message: Any) -> Any:
        values = {name: make(message) for name, make in made.items()}
        for name, source, empty in copied:
            value = getattr(message, source)
            if value is UNSET or value is None:
                values[name] = empty
            else:
                values[name] = value if type(value) in PLAIN else to_builtins(value)
        return cls(**values)

    return parse


def spell(name: str, wire: type[base.Struct]) -> str:
    """The protocol's name of a field: `resets_at` or `resetsAt`."""
    first, *others = name.split("_")
    return name if name in wire.__struct_fields__ else first + "".join(word.capitalize() for word in others)


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def as_dict(message: base.Message) -> Json:
    """Return the JSON object of a message."""
    found: Json = ours.object_of(base.encode(message))
    return found


def system_parser(wire: type[base.Message], cls: type[ours.SystemMessage], **made: Reader) -> Reader:
    return parser(wire, cls, data=as_dict, **made)


def parse_usage(message: Result) -> Json | None:
    """Build `usage`; the result of dialect B has the token counts as top-level fields."""
    usage: Json | None = or_none(message.usage)
    if usage is not None or message.input_tokens is UNSET:
        return usage
    return {
        "input_tokens": message.input_tokens,
        "output_tokens": or_none(message.output_tokens) or 0,
        "cache_creation_input_tokens": or_none(message.cache_creation_tokens) or 0,
        "cache_read_input_tokens": or_none(message.cache_read_tokens) or 0,
    }


def parse_cost(message: Result) -> float | None:
    """The cost. One that is not known is 0, because programs for the official SDK compare it; the log says so."""
    if message.total_cost_usd is None:
        models = message.modelUsage if isinstance(message.modelUsage, dict) else {}
        log_unknown_price(", ".join(name for name, usage in models.items() if usage.costUSD is None))
        return 0.0
    return message.total_cost_usd if message.total_cost_usd is not UNSET else None


@functools.lru_cache(maxsize=64)
def log_unknown_price(names: str) -> None:
    """Once, not for each turn."""
    log.warning("total_cost_usd is 0 because the price of %s is not known", names or "a model")


def parse_model_usage(message: Result) -> dict[str, Any] | None:
    usage: dict[str, Any] | None = or_none(message.modelUsage)
    return usage and {name: {**one, "costUSD": one["costUSD"] or 0.0} for name, one in to_builtins(usage).items()}


def parse_errors(message: Result) -> list[str] | None:
    errors: list[str] | None = or_none(message.errors)
    if errors is not None or message.error is UNSET:
        return errors
    return [as_text(message.error.get("message")) or str(message.error)]


def parse_deferred(message: Result) -> ours.DeferredToolUse | None:
    call = or_none(message.deferred_tool_use)
    if not call:
        return None
    given_input = call.get("input")
    return ours.DeferredToolUse(
        id=as_text(call.get("id")),
        name=as_text(call.get("name")),
        input=given_input if isinstance(given_input, dict) else {},
    )


def parse_stream_event(message: conversation.StreamEvent) -> ours.Message:
    """By hand, because there are many."""
    event = ours.object_of(bytes(message.event))
    return ours.StreamEvent(
        uuid=as_text(message.uuid),
        session_id=as_text(message.session_id),
        event=event if isinstance(event, dict) else {"value": event},
        parent_tool_use_id=or_none(message.parent_tool_use_id),
        user_message_uuid=or_none(message.user_message_uuid),
        user_message_uuids=or_none(message.user_message_uuids),
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


parse_quota = parser(notices.RateLimitInfo, ours.RateLimitInfo, raw=lambda info: None)
PARSERS: dict[type[base.Message], Reader] = {
    conversation.User: parser(
        conversation.User, ours.UserMessage, content=lambda message: read_content(message.message.content)
    ),
    conversation.Assistant: parser(
        conversation.Assistant,
        ours.AssistantMessage,
        content=lambda message: [read_block(block) for block in message.message.content],
        model=lambda message: as_text(message.message.model),
        # Some engines put the error next to the message, others into it.
        error=lambda message: or_none(message.error) or or_none(message.message.error),
        usage=lambda message: or_none(message.message.usage),
        message_id=lambda message: or_none(message.message.id),
        stop_reason=lambda message: or_none(message.message.stop_reason),
    ),
    conversation.StreamEvent: parse_stream_event,
    Result: parser(
        Result,
        ours.ResultMessage,
        total_cost_usd=parse_cost,
        model_usage=parse_model_usage,
        is_error=lambda message: message.subtype != "success" if message.is_error is UNSET else message.is_error,
        usage=parse_usage,
        errors=parse_errors,
        deferred_tool_use=parse_deferred,
    ),
    notices.RateLimitEvent: parser(
        notices.RateLimitEvent,
        ours.RateLimitEvent,
        rate_limit_info=lambda message: replace(
            parse_quota(message.rate_limit_info), raw=as_dict(message)["rate_limit_info"]
        ),
    ),
    notices.ConversationReset: parser(notices.ConversationReset, ours.ConversationResetMessage),
    system.TaskStarted: system_parser(system.TaskStarted, ours.TaskStartedMessage),
    system.TaskProgress: system_parser(system.TaskProgress, ours.TaskProgressMessage),
    system.TaskNotification: system_parser(system.TaskNotification, ours.TaskNotificationMessage),
    system.TaskUpdated: system_parser(
        system.TaskUpdated, ours.TaskUpdatedMessage, status=lambda message: message.patch.get("status")
    ),
    **{
        wire: system_parser(wire, ours.HookEventMessage, hook_event_name=lambda message: message.hook_event)
        for wire in (occasional.HookStarted, occasional.HookProgress, occasional.HookResponse)
    },
    occasional.MirrorError: system_parser(occasional.MirrorError, ours.MirrorErrorMessage),
    base.Unknown: parse_unknown,
    base.Refused: parse_refused,
}
