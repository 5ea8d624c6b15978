"""What is found in stored lines: the texts that a search looks through, and what turns used.

`StoredLine` has the fields of a line that are looked at. `Search` is SQLite FTS5 over the texts of prompts and answers.
`Turns` has what was used by turn, session, model and day, also of sessions that were deleted: the money is spent.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from sqlite3 import Row
from typing import Any

import msgspec

from parley.gateway.database import Database
from parley.gateway.security.access import Principal, Scope
from parley.gateway.security.quotas import growth
from parley.gateway.session_log.records import KeptTurn
from parley.protocol.base import UNSET, Json, Struct
from parley.stores.search_text import first_prompt, make_excerpt, split_words

LONGEST_TEXT = 100_000
"""How many characters of a message are searched."""
LONGEST_PREVIEW = 200
SYNTHETIC = "<synthetic>"
"""The model of messages that no model wrote."""


class StoredLine(Struct):
    """The fields of a line that are looked at."""

    type: Any = UNSET
    subtype: Any = UNSET
    uuid: Any = UNSET
    message: Any = UNSET
    parent_tool_use_id: Any = None
    model: Any = UNSET
    permissionMode: Any = UNSET
    is_replay: Any = msgspec.field(name="isReplay", default=False)
    is_synthetic: Any = msgspec.field(name="isSynthetic", default=False)
    is_error: Any = False
    errors: Any = UNSET
    result: Any = UNSET
    terminal_reason: Any = UNSET
    duration_ms: Any = None
    duration_api_ms: Any = None
    model_usage: Any = msgspec.field(name="modelUsage", default=UNSET)
    model_usage_since_last_result: Any = UNSET

    @property
    def blocks(self) -> list[Json]:
        """The content of a message."""
        content = self.message.get("content") if isinstance(self.message, dict) else None
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


decode_line = msgspec.json.Decoder(StoredLine).decode


def read_prompt(line: StoredLine) -> str | None:
    """The start of a prompt; None if the line is not one. A prompt of images alone has no text."""
    if line.type != "user" or line.parent_tool_use_id is not None or line.is_replay or line.is_synthetic:
        return None
    text = first_prompt("user", {"message": line.message})
    if text is None and any(block.get("type") in ("image", "document") for block in line.blocks):
        return ""
    return text


def read_said(line: StoredLine) -> str:
    """The text of a message, without tool calls and their results."""
    if line.type not in ("user", "assistant") or line.is_replay or line.is_synthetic:
        return ""
    texts = [block["text"] for block in line.blocks if isinstance(block.get("text"), str)]
    return "\n".join(texts)[:LONGEST_TEXT]


def read_model(line: StoredLine) -> str | None:
    """The model that a line names as that of the session."""
    found = line.model if line.subtype == "init" else None
    if line.type == "assistant" and line.parent_tool_use_id is None and isinstance(line.message, dict):
        found = line.message.get("model")
    return found if isinstance(found, str) and found != SYNTHETIC else None


def read_error(line: StoredLine) -> str | None:
    """Why a turn failed; None if it did not, or if a person stopped it."""
    if not line.is_error or str(line.terminal_reason).startswith("aborted_"):
        return None
    errors = [str(error) for error in line.errors] if isinstance(line.errors, list) else []
    return "; ".join(errors) or (line.result if isinstance(line.result, str) and line.result else str(line.subtype))


def shorten(text: str, most: int = LONGEST_PREVIEW) -> str:
    flat = " ".join(text[: most * 4].split())
    return flat if len(flat) <= most else flat[:most].rstrip() + "…"


MOST_WORDS = 32


class Search:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, session: str, number: int, uuid: str | None, at: float, text: str, *, is_prompt: bool) -> None:
        """Add a message."""
        self._database.change(
            "INSERT INTO messages (session, number, uuid, time, is_prompt, text) VALUES (?, ?, ?, ?, ?, ?)",
            *(session, number, uuid, at, is_prompt, text),
        )

    def find(self, principal: Principal, text: str) -> dict[str, str]:
        """The sessions in which all words were said in one message, with an excerpt. The last word may be a part."""
        words = split_words(text)[:MOST_WORDS]
        if not words:
            return {}
        tenant = None if Scope.ADMIN in principal.scopes else principal.tenant
        rows = self._database.rows(
            "SELECT session, messages.text, max(number) FROM message_words"
            " JOIN messages ON messages.id = message_words.rowid JOIN sessions ON sessions.id = session"
            " WHERE message_words MATCH ? AND (? IS NULL OR tenant = ?) GROUP BY session",
            *(" ".join(f'"{word}"' for word in words) + "*", tenant, tenant),
        )
        return {row["session"]: make_excerpt(row["text"], words) for row in rows}

    def prompts(self, session: str) -> list[Json]:
        """The prompts of a session, oldest first."""
        rows = self._database.rows(
            "SELECT number, uuid, time, substr(text, 1, 200) AS text FROM messages"
            " WHERE session=? AND is_prompt ORDER BY number",
            session,
        )
        return [{**dict(row), "text": " ".join(row["text"].split())} for row in rows]


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


class Turns:
    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, row: Row, number: int, at: float, result: StoredLine, uses: Sequence[ModelUse]) -> None:
        """Add the turn that a result ends: a line of the session with a row."""
        self._database.change(
            "INSERT OR REPLACE INTO turns"
            " (session, number, tenant, time, model, duration_ms, duration_api_ms, is_error)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(row["id"], number, row["tenant"], at),
            max(uses, key=lambda use: use.output_tokens).model if uses else None,
            *(read_number(result.duration_ms), read_number(result.duration_api_ms), bool(result.is_error)),
        )
        for use in uses:
            self._database.change(
                "INSERT INTO usage (session, number, model, usd, input_tokens, output_tokens, cache_read_tokens)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                *(row["id"], number, *msgspec.structs.astuple(use)),
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

    def figures(self, session: str) -> tuple[str, list[KeptTurn]]:
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
                KeptTurn(
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
