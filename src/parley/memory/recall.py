"""Looking things up: in the tree, in summaries, and in the log, which has everything."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from parley.memory.base import Entry, Findings, Line, Summary
from parley.memory.database import Database
from parley.memory.knowledge_tree import Tree
from parley.memory.summaries import Summaries
from parley.stores.base import Entry as LogEntry
from parley.stores.base import Hit, Ranking, Store
from parley.stores.search_text import passage, said, telling, words


class LocalRecall:
    """Of one session, whose log may be kept elsewhere than the memory."""

    def __init__(self, database: Database, open_store: Callable[[], Store], session_id: str) -> None:
        self._tree = Tree(database, str)
        self._summaries = Summaries(database, str)
        self._open_store = open_store
        self._session_id = session_id

    @cached_property
    def _store(self) -> Store:
        return self._open_store()

    def search(self, text: str, limit: int, *, everywhere: bool = False) -> Findings:
        where = None if everywhere else self._session_id
        return Findings(
            entries=tuple(self._tree.search(text, limit)),
            summaries=tuple(self._summaries.search(text, limit, where)),
            messages=tuple(self._heard(text, limit, where)),
        )

    def _heard(self, text: str, limit: int, session_id: str | None) -> list[Hit]:
        if isinstance(self._store, Ranking):
            return self._store.ranked(text, limit, session_id)
        return self._store.search(text, limit) if session_id is None else self._scanned(text, limit)

    def _scanned(self, text: str, limit: int) -> list[Hit]:
        """Without an index, by reading all of it: those with most of the words first, and of these the latest."""
        wanted, scored = telling(text), list[tuple[int, int, Hit]]()
        for entry in self._store.read(self._session_id):
            heard = "" if is_repetition(entry) else said(entry.kind, entry.message)
            score = len(set(wanted) & set(words(heard)))
            if score:
                told = passage(heard, wanted)
                hit = Hit(id=self._session_id, seq=entry.seq, kind=entry.kind, at=entry.at, excerpt=told)
                scored.append((score, entry.seq, hit))
        return [hit for _, _, hit in sorted(scored, key=lambda each: each[:2], reverse=True)[:limit]]

    def entry(self, slug: str) -> Entry | None:
        return self._tree.get(slug)

    def below(self, slug: str) -> list[Entry]:
        return self._tree.below(slug)

    def summary(self, id: int) -> tuple[Summary, list[Summary]] | None:
        found = self._summaries.get(id)
        return None if found is None else (found, self._summaries.within(found))

    def messages(self, first: int, last: int, session_id: str | None = None) -> list[Line]:
        lines: list[Line] = []
        for entry in self._store.read(session_id or self._session_id, after=first - 1):
            if entry.seq > last:
                break
            if text := said(entry.kind, entry.message):
                uuid = str(entry.message.get("uuid"))
                lines.append(Line(seq=entry.seq, kind=entry.kind, at=entry.at, uuid=uuid, text=text))
        return lines


def is_repetition(entry: LogEntry) -> bool:
    """Whether it is a summary, or the result of a call that looked something up."""
    detail = entry.message.get("tool_use_result")
    return bool(entry.context.get("isCompactSummary") or (isinstance(detail, dict) and detail.get("recalled")))
