"""The long-term memory: its records, and the interfaces that the engine and the tools use.

A knowledge entry has a place in a tree (its slug and its parent's slug). Every change makes a new version; old
versions can be read and restored. A summary covers a range of messages, or several summaries; it and what it covers
stay in the log.

    MemoryWorker     what a session calls: after a turn, when the window is nearly full, at the end
    Recall           search and lookup, for tools

    outline()        an overview of the tree: slugs and titles, each below its parent

See also: `worker.py` and `summarizer.py` for a running session, `knowledge_tree.py` and `session_memory.py` for
storage, `curator.py` for consolidation. The engine imports only this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from parley.models.catalog import ModelRef
from parley.protocol.base import Json, Struct
from parley.stores.base import SearchHit

T = TypeVar("T")
CURATOR, PERSON = "curator", "person"
"""The authors of versions."""
OUTLINE_CHARS = 6_000

AskModel = Callable[[str, list[Json], list[Json]], Awaitable[list[Json]]]
"""A model call: instructions, messages and tools to the blocks of the answer. Raises ModelError."""
DecideCall = Callable[[str, str, Json], None]
"""Records that a call (its id, tool and input) is allowed. Raises SessionError."""


class MemoryPolicy(Struct, frozen=True, kw_only=True):
    """The user's settings for the memory."""

    model: str | None = None
    """The curator; None is the small model, or the session's own on other backends."""
    summary_model: str | None = None
    """The model that writes summaries; None is the session's own."""
    view_tokens: int | None = None
    """How much of a conversation the model reads at most; None is its window."""
    consolidates: bool = True
    trivial_tokens: int = 400
    """Fewer new tokens than this wait for more before they are consolidated."""
    piece_tokens: int = 24_000
    """How much is consolidated at a time."""
    max_calls: int = 20
    """Model calls per piece."""
    max_seconds: float = 300.0
    """Limit for a whole consolidation."""

    def choose_curator(self, own: ModelRef, small: str, resolve: Callable[[str], ModelRef]) -> ModelRef | None:
        """The model that consolidates. A fake model does so only if the settings name it."""
        if self.model is not None:
            return resolve(self.model)
        if own.is_messages_api:
            return resolve(small)
        return None if own.is_fake else own


class ConsolidationReport(Struct, frozen=True, kw_only=True):
    """The result of a consolidation."""

    created: int = 0
    updated: int = 0
    archived: int = 0
    words: str = ""
    """The curator's comment, or what went wrong."""


class EntrySource(Struct, frozen=True, kw_only=True):
    """A message that an entry came from."""

    session: str
    seq: int
    uuid: str


class KnowledgeEntry(Struct, frozen=True, kw_only=True):
    """A version of a piece of knowledge."""

    slug: str
    version: int
    parent: str | None
    title: str
    body: str
    """Markdown."""
    links: tuple[str, ...] = ()
    """Slugs of related entries."""
    sources: tuple[EntrySource, ...] = ()
    archived: bool = False
    """Removed from searches; its versions stay."""
    at: str
    author: str


class Summary(Struct, frozen=True, kw_only=True):
    """A summary of a range of a session's messages."""

    order: int
    """1 covers messages, 2 covers summaries of order 1, and so on."""
    first: int
    last: int
    """The first and the last record of the log that it covers."""
    text: str


class LogMessage(Struct, frozen=True, kw_only=True):
    """A message of the log."""

    seq: int
    kind: str
    at: str
    uuid: str
    text: str


class RecallResults(Struct, frozen=True, kw_only=True):
    """The results of a search, best first."""

    entries: tuple[KnowledgeEntry, ...] = ()
    messages: tuple[SearchHit, ...] = ()


class Recall(Protocol):
    """Search and lookup. All methods can block on the disk: call them in a thread. They raise SessionError."""

    def search(self, text: str, limit: int, *, everywhere: bool = False) -> RecallResults:
        """Search the tree and the messages: those of this session unless `everywhere` is set."""

    def entry(self, slug: str) -> KnowledgeEntry | None: ...

    def below(self, slug: str) -> list[KnowledgeEntry]:
        """The children of an entry."""

    def messages(self, first: int, last: int, session_id: str | None = None) -> list[LogMessage]:
        """The messages of a range of records, of this session or another. Raises UnknownSession."""


class MemoryWorker(Protocol):
    """What a session calls to keep its memory up to date. Nothing here delays a turn."""

    awaited: asyncio.Event
    """Set when the session waits for nothing but its memory."""

    def turn_ended(self) -> None:
        """Start a consolidation after a turn, if there is enough new text."""

    def start(self) -> None:
        """Start a consolidation; returns at once."""

    def make_compactor(self, conversation: Any) -> Any:
        """The `Compactor` (engine/context/compactor.py) for a conversation whose window is nearly full."""

    def stop(self) -> None:
        """Cancel the running consolidation; its report is still sent."""

    async def wait_idle(self, ceiling_seconds: float | None) -> None:
        """Wait for the running consolidation, up to a limit."""

    async def close(self) -> None: ...


def split_pieces(items: Iterable[T], measure: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Split into pieces of limited size; an item that is too large is a piece of its own."""
    piece: list[T] = []
    size = 0
    for item in items:
        added = measure(item)
        if piece and size + added > most:
            yield piece
            piece, size = [], 0
        piece.append(item)
        size += added
    if piece:
        yield piece


def curator_decision(id: str, tool: str, input_sha256: str, mode: str) -> Json:
    """The permission record of a curator's call. It needs no approval: its tools change only the memory."""
    return {
        "tool_use_id": id,
        "tool": tool,
        "decision": "allow",
        "source": "memory",
        "reason": "The curator can change only the memory",
        "mode": mode,
        "asked": False,
        "input_sha256": input_sha256,
    }


def outline(entries: Sequence[KnowledgeEntry], most_chars: int = OUTLINE_CHARS) -> str:
    """As many entries as fit, those near the root first, and the number of the others."""
    rows = order_entries(entries)
    shown, room = set[str](), most_chars
    for depth, entry in sorted(rows, key=lambda row: row[0]):
        room -= len(format_row(depth, entry)) + 1
        if room < 0:
            break
        shown.add(entry.slug)
    lines = [format_row(depth, entry) for depth, entry in rows if entry.slug in shown]
    left = len(rows) - len(lines)
    return "\n".join([*lines, *([f"… and {left} more"] if left else [])])


def order_entries(entries: Sequence[KnowledgeEntry]) -> list[tuple[int, KnowledgeEntry]]:
    """Entries with their depth, each below its parent; those without a known parent come last."""
    rows = list(walk_children(entries, None, 0))
    placed = {entry.slug for _, entry in rows}
    return rows + [(0, entry) for entry in entries if entry.slug not in placed]


def walk_children(
    entries: Sequence[KnowledgeEntry], parent: str | None, depth: int
) -> Iterator[tuple[int, KnowledgeEntry]]:
    for entry in entries:
        if entry.parent == parent:
            yield depth, entry
            yield from walk_children(entries, entry.slug, depth + 1)


def format_row(depth: int, entry: KnowledgeEntry) -> str:
    return f"{'  ' * depth}- {entry.slug}: {entry.title}"
