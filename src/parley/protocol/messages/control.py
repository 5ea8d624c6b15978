"""The control protocol: requests with an id, their replies, and their cancellation.

Both ends send requests. `requests.py` has their payloads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parley.protocol.base import BOTH, HOST_ONLY, UNSET, Json, Message, Struct, UnsetType, message

if TYPE_CHECKING:
    from parley.protocol.messages.requests import Request, UnknownRequest

    Payload = Request | UnknownRequest
else:
    from parley.protocol.messages.requests import Payload

RequestId = str | int
"""Clients use strings. A number is returned as a number."""


@message
class ControlRequest(Message, frozen=True, kw_only=True, tag="control_request"):
    """A request with an id. The receiver answers with one `control_response`."""

    senders = BOTH
    request_id: RequestId
    request: Payload


class Success(Struct, frozen=True, kw_only=True, tag_field="subtype", tag="success"):
    """The reply to a request that succeeded."""

    request_id: RequestId | None | UnsetType = UNSET
    response: Any = UNSET
    pending_permission_requests: list[Json] | UnsetType = UNSET
    """Open requests of the engine, for a client that reconnects."""
    pending_user_dialog_requests: list[Json] | UnsetType = UNSET
    pending_elicitation_requests: list[Json] | UnsetType = UNSET


class Failure(Struct, frozen=True, kw_only=True, tag_field="subtype", tag="error"):
    """The reply to a request that failed."""

    request_id: RequestId | None | UnsetType = UNSET
    error: str = ""
    error_code: str | UnsetType = UNSET
    model: str | UnsetType = UNSET


@message
class ControlResponse(Message, frozen=True, kw_only=True, tag="control_response"):
    """The reply to a control request."""

    senders = BOTH
    response: Success | Failure


@message
class ControlCancelRequest(Message, frozen=True, kw_only=True, tag="control_cancel_request"):
    """The sender of a control request withdraws it. It gets no reply."""

    senders = BOTH
    request_id: RequestId


@message
class UpdateEnvironment(Message, frozen=True, kw_only=True, tag="update_environment_variables"):
    """Environment variables for later tool calls."""

    senders = HOST_ONLY
    variables: dict[str, str]
