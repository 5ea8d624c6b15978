"""Which end may send which message.

A message that the peer may not send is refused and has no effect. `connection.py` matches replies to requests.
"""

from __future__ import annotations

from enum import Enum

from parley.protocol.base import Message, Refused, Unknown
from parley.protocol.messages.control import (
    ControlCancelRequest,
    ControlRequest,
    ControlResponse,
    UpdateEnvironment,
)
from parley.protocol.messages.conversation import User
from parley.protocol.messages.dialects import Control, HostThere, JsonRpc, Provisions, Withdrawal
from parley.protocol.messages.notices import KeepAlive
from parley.protocol.messages.requests import (
    CanUseTool,
    Elicitation,
    HookCallback,
    McpMessage,
    Request,
    RequestUserDialog,
    SdkControlInterrupt,
)


class Role(Enum):
    """The two ends of a connection."""

    ENGINE = "engine"
    HOST = "host"

    @property
    def peer(self) -> Role:
        return Role.HOST if self is Role.ENGINE else Role.ENGINE


BOTH = frozenset(Role)

# Messages that are not listed are sent by the engine only: assistant, result, system, stream_event and others.
SENDERS: dict[type[Message], frozenset[Role]] = {
    User: BOTH,
    ControlRequest: BOTH,
    ControlResponse: BOTH,
    ControlCancelRequest: BOTH,
    KeepAlive: BOTH,
    JsonRpc: BOTH,
    Unknown: BOTH,
    Refused: BOTH,
    Control: frozenset({Role.HOST}),
    Provisions: frozenset({Role.HOST}),
    Withdrawal: frozenset({Role.HOST}),
    HostThere: frozenset({Role.HOST}),
    UpdateEnvironment: frozenset({Role.HOST}),
}

# Requests that are not listed are sent by the host only: initialize, interrupt, set_model and others.
REQUESTERS: dict[type[Request], frozenset[Role]] = {
    CanUseTool: frozenset({Role.ENGINE}),
    HookCallback: frozenset({Role.ENGINE}),
    Elicitation: frozenset({Role.ENGINE}),
    RequestUserDialog: frozenset({Role.ENGINE}),
    SdkControlInterrupt: frozenset({Role.ENGINE}),
    McpMessage: BOTH,
}


def may_send(role: Role, message: Message) -> bool:
    """Whether this end may send this message."""
    if role not in SENDERS.get(type(message), frozenset({Role.ENGINE})):
        return False
    if isinstance(message, ControlRequest) and isinstance(message.request, Request):
        return role in REQUESTERS.get(type(message.request), frozenset({Role.HOST}))
    return True
