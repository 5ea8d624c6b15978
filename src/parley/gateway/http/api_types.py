"""The bodies of requests and replies. The documents of the API are made from them.

See also: `session_options.py` for new sessions, `questions.py`, `security/tokens.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from parley.gateway.index.session_list import SessionInfo
from parley.gateway.security.access import Scope
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


class TokenHolder(Struct, frozen=True, kw_only=True):
    """Who a token belongs to, and what it may do."""

    name: str
    tenant: str
    scopes: list[Scope]


class FoundSessions(Struct, frozen=True, kw_only=True):
    sessions: list[SessionInfo]
    total: int
    """How many there are without the limit."""


class LinePage(Struct, frozen=True, kw_only=True):
    """Stored lines, oldest first."""

    lines: list[tuple[int, float | None, Json]]
    """Number, time and line. Lines of an earlier version have no time."""
    first: int
    last: int


class SentPrompt(Struct, frozen=True, kw_only=True):
    number: int
    uuid: str | None
    time: float | None
    text: str


class Figures(Struct, frozen=True, kw_only=True):
    usd: float | None
    """None if no price is known."""
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int


class TurnFigures(Figures, frozen=True, kw_only=True):
    number: int
    """The number of the line with the result."""
    time: float
    duration_ms: float | None
    duration_api_ms: float | None
    model: str | None
    is_error: bool


class SessionCost(Figures, frozen=True, kw_only=True):
    id: str
    title: str
    turns: int


class ModelCost(Figures, frozen=True, kw_only=True):
    model: str
    turns: int


class DayCost(Figures, frozen=True, kw_only=True):
    day: str
    turns: int


class TokenBudget(Struct, frozen=True, kw_only=True):
    usd: float | None
    """The limit; None for no limit."""
    used: float


class CostReport(Struct, frozen=True, kw_only=True):
    by_session: list[SessionCost]
    by_model: list[ModelCost]
    by_day: list[DayCost]
    budget: TokenBudget


class WirePage(Struct, frozen=True, kw_only=True):
    lines: list[tuple[int, float, Literal["in", "out"], int, Any]]
    """Number, time, direction as the engine sees it, size in bytes, and line."""
    last: int


class FileNames(Struct, frozen=True, kw_only=True):
    files: list[str]


class RewoundFile(Struct, frozen=True, kw_only=True):
    path: str
    status: Literal["modified", "added", "deleted", "skipped"]
    diff: str
    reason: str
    """Why it is skipped."""


class RewindPreview(Struct, frozen=True, kw_only=True):
    files: list[RewoundFile]


class RuleRequest(Struct, frozen=True, kw_only=True):
    rule: str
    behavior: Literal["allow", "deny"] = "allow"


class DecidedCall(Struct, frozen=True, kw_only=True):
    session: str
    number: int
    time: float | None
    tool: str
    input_summary: str


class RuleReport(Struct, frozen=True, kw_only=True):
    """What a rule would have decided about past calls."""

    rule: str
    behavior: Literal["allow", "deny"]
    would_allow: list[DecidedCall]
    would_deny: list[DecidedCall]
    would_still_ask: int
    checked: int
