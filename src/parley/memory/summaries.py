"""Stored summaries, for search.

The conversation does not need them: the summaries that it starts with are in its log. The table has all earlier
ones too, so that a reader can go from a summary to those it covers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from parley.memory.base import Summary
from parley.memory.database import MemoryDatabase
from parley.stores.search_text import build_queries, significant_words

COLUMNS = "memory_summaries.id, session, memory_summaries.rank, first, last, memory_summaries.text, at"


class Summaries:
    def __init__(self, database: MemoryDatabase, now: Callable[[], str]) -> None:
        self._database = database
        self._now = now

    def add(self, summaries: Iterable[Summary]) -> None:
        """Store summaries. One that covers the same records is replaced. Raises SessionError."""
        with self._database.writing() as run:
            for each in summaries:
                place = (each.session, each.order, each.first, each.last)
                run.execute(
                    "DELETE FROM memory_summaries WHERE session = ? AND rank = ? AND first = ? AND last = ?", place
                )
                run.execute(
                    "INSERT INTO memory_summaries (session, rank, first, last, text, at) VALUES (?, ?, ?, ?, ?, ?)",
                    (*place, each.text, self._now()),
                )

    def get(self, id: int) -> Summary | None:
        """Raises SessionError."""
        return next(iter(self._select("WHERE id = ?", id)), None)

    def within(self, above: Summary) -> list[Summary]:
        """The summaries that a summary covers. Raises SessionError."""
        where = "WHERE session = ? AND first >= ? AND last <= ? AND rank < ? ORDER BY first, rank DESC"
        inside = self._select(where, above.session, above.first, above.last, above.order)
        # Leave out those that another of these covers.
        return [each for each in inside if not any(covers(other, each) for other in inside)]

    def search(self, text: str, limit: int, session: str | None = None) -> list[Summary]:
        """Summaries with all the words, then those with some. Raises SessionError."""
        wanted = (
            f"SELECT {COLUMNS} FROM memory_summary_words JOIN memory_summaries ON id = memory_summary_words.rowid "
            "WHERE memory_summary_words MATCH ? AND (? IS NULL OR session = ?) "
            "ORDER BY memory_summary_words.rank LIMIT ?"
        )
        hits: dict[int, Summary] = {}
        with self._database.reading() as run:
            for query in build_queries(significant_words(text)) if run is not None else ():
                for row in run.execute(wanted, (query, session, session, limit)) if run is not None else ():
                    hits.setdefault(row[0], as_summary(row))
        return list(hits.values())[:limit]

    def inherit(self, fork: str, session: str) -> None:
        """Copy the summaries and the progress of a session to its fork. Raises SessionError."""
        with self._database.reading() as there:
            if there is None:
                return
        with self._database.writing() as run:
            run.execute(
                "INSERT OR IGNORE INTO memory_summaries (session, rank, first, last, text, at) "
                "SELECT ?, rank, first, last, text, at FROM memory_summaries WHERE session = ?",
                (fork, session),
            )
            run.execute(
                "INSERT OR IGNORE INTO memory_progress SELECT ?, seq FROM memory_progress WHERE session = ?",
                (fork, session),
            )

    def forget(self, session: str) -> None:
        """Delete everything about a session. Raises SessionError."""
        with self._database.reading() as there:
            if there is None:
                return
        with self._database.writing() as run:
            run.execute("DELETE FROM memory_summaries WHERE session = ?", (session,))
            run.execute("DELETE FROM memory_progress WHERE session = ?", (session,))

    def _select(self, where: str, *given: Any) -> list[Summary]:
        with self._database.reading() as run:
            rows = [] if run is None else run.execute(f"SELECT {COLUMNS} FROM memory_summaries {where}", given)
            return [as_summary(row) for row in rows]


def covers(one: Summary, other: Summary) -> bool:
    return one.order > other.order and one.first <= other.first and one.last >= other.last


def as_summary(row: tuple[Any, ...]) -> Summary:
    id, session, order, first, last, text, at = row
    return Summary(id=id, session=session, order=order, first=first, last=last, text=text, at=at)
