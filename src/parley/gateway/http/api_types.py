"""The bodies of requests and replies. The documents of the API are made from them.

See also: `session_options.py` for new sessions, `console/types.py`, `questions.py`, `security/tokens.py`.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from parley.gateway.security.tokens import TokenInfo
from parley.protocol.base import Json, Struct


class ErrorInfo(Struct, frozen=True, kw_only=True):
    code: str
    """One of the table of codes, or a code of the engine."""
    message: str


class ErrorReply(Struct, frozen=True, kw_only=True):
    """Why a request was refused."""

    error: ErrorInfo


class CreatedSession(Struct, frozen=True, kw_only=True):
    """A new session, in the words of the official clients."""

    session_id: str
    ws_url: str
    work_dir: str


class ForkRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A copy of a session."""

    uuid: str | None = None
    """The last message of the copy; None for the whole conversation."""
    title: str | None = None


class PromptRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prompt."""

    content: str | list[Json]
    """A text, or content blocks."""
    uuid: str | None = None
    """The id of the prompt. A prompt that is sent again is not run again."""


class AcceptedPrompt(Struct, frozen=True, kw_only=True):
    uuid: str
    after: int
    """The number of the last line before the prompt: the lines after it are what the prompt leads to."""


class ControlRequestBody(Struct, frozen=True, kw_only=True):
    """A control request of the wire protocol; its other fields depend on the subtype."""

    subtype: str


class ControlReply(Struct, frozen=True, kw_only=True):
    response: Any


class ClientEvent(Struct, frozen=True, kw_only=True):
    payload: Json
    """A line of the wire protocol."""


class ClientEvents(Struct, frozen=True, kw_only=True):
    """What the official browser client posts."""

    events: list[ClientEvent]


class Nothing(Struct, frozen=True, kw_only=True):
    """An empty object."""


class Delegation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: Annotated[str, Meta(min_length=1)]
    """The name of a token."""


class TokenList(Struct, frozen=True, kw_only=True):
    tokens: list[TokenInfo]


class CreatedToken(Struct, frozen=True, kw_only=True):
    """A new token, which is shown once."""

    name: str
    token: str


class ServerStatus(Struct, frozen=True, kw_only=True):
    status: str
    """`ok`, `ready` or `draining`."""
