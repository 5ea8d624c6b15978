"""Search over what was said: SQLite FTS5 over the texts of prompts and answers."""

from __future__ import annotations

from parley.gateway.database import Database
from parley.gateway.security.access import Principal, Scope
from parley.protocol.base import Json
from parley.stores.search_text import make_excerpt, split_words

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
