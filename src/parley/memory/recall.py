"""Search and lookup in the tree, the summaries and the log."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from parley.memory.base import KnowledgeEntry, LogMessage, RecallResults, Summary
from parley.memory.database import MemoryDatabase
from parley.memory.knowledge_tree import KnowledgeTree
from parley.memory.summaries import Summaries
from parley.stores.base import Store
from parley.stores.search_text import entry_text


class LocalRecall:
    """The recall of one session. Its log can be in another store than the memory."""

    def __init__(self, database: MemoryDatabase, open_store: Callable[[], Store], session_id: str) -> None:
        self._tree = KnowledgeTree(database, str)
        self._summaries = Summaries(database, str)
        self._open_store = open_store
        self._session_id = session_id

    @cached_property
    def _store(self) -> Store:
        return self._open_store()

    def search(self, text: str, limit: int, *, everywhere: bool = False) -> RecallResults:
        where = None if everywhere else self._session_id
        return RecallResults(
            entries=tuple(self._tree.search(text, limit)),
            summaries=tuple(self._summaries.search(text, limit, where)),
            messages=tuple(self._store.ranked(text, limit, where)),
        )

    def entry(self, slug: str) -> KnowledgeEntry | None:
        return self._tree.get(slug)

    def below(self, slug: str) -> list[KnowledgeEntry]:
        return self._tree.below(slug)

    def summary(self, id: int) -> tuple[Summary, list[Summary]] | None:
        found = self._summaries.get(id)
        return None if found is None else (found, self._summaries.within(found))

    def messages(self, first: int, last: int, session_id: str | None = None) -> list[LogMessage]:
        lines: list[LogMessage] = []
        for entry in self._store.read(session_id or self._session_id, after=first - 1):
            if entry.seq > last:
                break
            if text := entry_text(entry.kind, entry.message):
                uuid = str(entry.message.get("uuid"))
                lines.append(LogMessage(seq=entry.seq, kind=entry.kind, at=entry.at, uuid=uuid, text=text))
        return lines
