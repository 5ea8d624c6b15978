"""The replies that the console reads. The documents of the API are made from them."""

from __future__ import annotations

from typing import Any, Literal

from parley.gateway.index.session_list import SessionInfo
from parley.gateway.security.access import Scope
from parley.protocol.base import Json, Struct


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
