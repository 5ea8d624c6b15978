"""Who may say what: the rules of the conversation, as a table.

A line the other end may not say is refused with a complaint; it changes nothing.
Not here: matching answers to questions (connection.py).
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
    """The two ends."""

    ENGINE = "engine"
    HOST = "host"

    @property
    def peer(self) -> Role:
        return Role.HOST if self is Role.ENGINE else Role.ENGINE


BOTH = frozenset(Role)

# Whatever is not listed is the engine's to say: assistant, result, system, stream_event, notices.
SPEAKERS: dict[type[Message], frozenset[Role]] = {
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

# Whatever is not listed is the host's to ask: initialize, interrupt, set_model and the rest.
ASKERS: dict[type[Request], frozenset[Role]] = {
    CanUseTool: frozenset({Role.ENGINE}),
    HookCallback: frozenset({Role.ENGINE}),
    Elicitation: frozenset({Role.ENGINE}),
    RequestUserDialog: frozenset({Role.ENGINE}),
    SdkControlInterrupt: frozenset({Role.ENGINE}),
    McpMessage: BOTH,
}


def may_say(role: Role, message: Message) -> bool:
    """Whether this end may say this message."""
    if role not in SPEAKERS.get(type(message), frozenset({Role.ENGINE})):
        return False
    if isinstance(message, ControlRequest) and isinstance(message.request, Request):
        return role in ASKERS.get(type(message.request), frozenset({Role.HOST}))
    return True
