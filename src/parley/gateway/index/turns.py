"""What turns used: by turn, session, model and day.

Turns stay when their session is deleted: the money is spent.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from parley.gateway.database import Database
from parley.gateway.index.line_reading import StoredLine
from parley.gateway.security.access import Principal, Scope
from parley.gateway.security.quotas import growth
from parley.gateway.session_log.records import TurnFigures
from parley.protocol.base import Json, Struct

DAY_SECONDS = 86_400
FIGURES = ("costUSD", "inputTokens", "outputTokens", "cacheReadInputTokens")
SUMS = """
    sum(usd) AS usd, coalesce(sum(input_tokens), 0) AS input_tokens, coalesce(sum(output_tokens), 0) AS output_tokens,
    coalesce(sum(cache_read_tokens), 0) AS cache_read_tokens
"""
"""`usd` is NULL where no price is known."""


class ModelUse(Struct, frozen=True):
    """What one turn used of one model."""

    model: str
    usd: float | None
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int


class EndedTurn(Struct, frozen=True):
    session: str
    number: int
    """The number of the line with its result."""
    tenant: str
    time: float


class Turns:
    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, turn: EndedTurn, result: StoredLine, uses: Sequence[ModelUse]) -> None:
        """Add the turn that a result ends."""
        self._database.change(
            "INSERT OR REPLACE INTO turns"
            " (session, number, tenant, time, model, duration_ms, duration_api_ms, is_error)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *msgspec.structs.astuple(turn),
            max(uses, key=lambda use: use.output_tokens).model if uses else None,
            *(read_number(result.duration_ms), read_number(result.duration_api_ms), bool(result.is_error)),
        )
        for use in uses:
            self._database.change(
                "INSERT INTO usage (session, number, model, usd, input_tokens, output_tokens, cache_read_tokens)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                *(turn.session, turn.number, *msgspec.structs.astuple(use)),
            )

    def of_session(self, session: str) -> list[Json]:
        """Every turn of a session, oldest first."""
        rows = self._database.rows(
            f"SELECT turns.number, time, {SUMS}, duration_ms, duration_api_ms, turns.model, is_error"
            " FROM turns LEFT JOIN usage USING (session, number)"
            " WHERE session=? GROUP BY session, turns.number ORDER BY turns.number",
            session,
        )
        return [{**dict(row), "is_error": bool(row["is_error"])} for row in rows]

    def figures(self, session: str) -> tuple[str, list[TurnFigures]]:
        """The title of a session and its turns, which stay when it is deleted."""
        title = self._database.row("SELECT title FROM sessions WHERE id=?", session)
        turns = []
        for row in self._database.rows("SELECT * FROM turns WHERE session=? ORDER BY number", session):
            uses = self._database.rows(
                "SELECT model, usd, input_tokens, output_tokens, cache_read_tokens FROM usage"
                " WHERE session=? AND number=? ORDER BY model",
                *(session, row["number"]),
            )
            turns.append(
                TurnFigures(
                    *(row["number"], row["time"], row["model"], row["duration_ms"], row["duration_api_ms"]),
                    *(bool(row["is_error"]), [tuple(use) for use in uses]),
                )
            )
        return "" if title is None else str(title["title"]), turns

    def costs(self, principal: Principal, days: int) -> Json:
        """What the sessions that a principal may see used in the last days, today included. Days are of UTC."""
        today = time.time() // DAY_SECONDS * DAY_SECONDS
        since = today - (days - 1) * DAY_SECONDS
        return {
            "by_session": self._group(
                principal, since, "session AS id, max(coalesce(sessions.title, turns.title)) AS title", "session", "usd"
            ),
            "by_model": self._group(principal, since, "usage.model AS model", "usage.model", "usd"),
            "by_day": self._group(principal, since, "strftime('%Y-%m-%d', time, 'unixepoch') AS day", "day", "day"),
        }

    def _group(self, principal: Principal, since: float, named: str, group: str, order: str) -> list[Json]:
        tenant = None if Scope.ADMIN in principal.scopes else principal.tenant
        rows = self._database.rows(
            f"SELECT {named}, {SUMS}, count(DISTINCT session || ' ' || turns.number) AS turns"
            " FROM turns LEFT JOIN usage USING (session, number) LEFT JOIN sessions ON sessions.id = session"
            " WHERE time >= ? AND (? IS NULL OR turns.tenant = ?)"
            f" GROUP BY {group} HAVING {group} IS NOT NULL ORDER BY {order} {'' if order == 'day' else 'DESC'}",
            *(since, tenant, tenant),
        )
        return [dict(row) for row in rows]


def read_uses(result: StoredLine, totals_before: str) -> tuple[list[ModelUse], str]:
    """What a turn used of each model, and the new totals.

    The totals of a result are those of its engine. They also count what was used between turns, but begin again with
    another engine; what the result says of its own turn is the least.
    """
    totals, of_turn = as_object(result.model_usage), as_object(result.model_usage_since_last_result)
    before = msgspec.json.decode(totals_before)
    uses = []
    for model in {**totals, **of_turn}:
        found = [
            larger(grown(before.get(model), totals.get(model), name), figure(of_turn.get(model), name))
            for name in FIGURES
        ]
        if any(found):
            usd, *tokens = found
            uses.append(ModelUse(model, usd, *(int(count or 0) for count in tokens)))
    return uses, msgspec.json.encode(totals).decode() if totals else totals_before


def as_object(found: Any) -> Json:
    return found if isinstance(found, dict) else {}


def figure(use: Any, name: str) -> float | None:
    return read_number(as_object(use).get(name))


def grown(before: Any, after: Any, name: str) -> float | None:
    total = figure(after, name)
    return None if total is None else growth(figure(before, name) or 0, total)


def larger(one: float | None, other: float | None) -> float | None:
    return max((found for found in (one, other) if found is not None), default=None)


def read_number(found: Any) -> float | None:
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None
