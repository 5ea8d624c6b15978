"""What is remembered beyond a conversation: entries of a tree, summaries of what was said, and where to look it up.

An entry is knowledge. It has a place in a tree (its slug, and the slug of its parent), and every
change makes another version of it, so that each can be looked at again and gone back to. A
summary stands for a stretch of messages, or for several summaries; it names what it covers, and
what it covers is still in the log.

Not here: where they are kept (database.py, knowledge_tree.py, summaries.py), who writes them (curator.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from parley.protocol.base import Json, Struct
from parley.stores.base import Hit

CURATOR, PERSON = "curator", "person"
"""Who makes versions."""


Ask = Callable[[str, list[Json], list[Json]], Awaitable[list[Json]]]
"""A model call: instructions, messages and tools; the blocks of the answer. Raises ModelError."""
Decide = Callable[[str, str, Json], None]
"""Puts on record that a call (its id, its tool, its input) is allowed. Raises SessionError."""


class Policy(Struct, frozen=True, kw_only=True):
    """What the person wants of a memory."""

    model: str | None = None
    """Who tidies up; None is the small model, or the session's own where that is not on the API."""
    summary_model: str | None = None
    """Who writes summaries; None is the session's own model."""
    view_tokens: int | None = None
    """How much of a conversation its model reads at most; None is what its window bears."""
    consolidates: bool = True
    trivial_tokens: int = 400
    """What is said in fewer tokens waits for more before it is looked through for knowledge."""
    piece_tokens: int = 24_000
    """How much is looked through at a time."""
    max_calls: int = 20
    """Of the model, for each piece."""
    max_seconds: float = 300.0
    """For all of a consolidation."""


class Tally(Struct, frozen=True, kw_only=True):
    """What a consolidation came to."""

    created: int = 0
    updated: int = 0
    archived: int = 0
    words: str = ""
    """What the curator says of it, or what went wrong."""


class Source(Struct, frozen=True, kw_only=True):
    """A message that an entry came from."""

    session: str
    seq: int
    uuid: str


class Entry(Struct, frozen=True, kw_only=True):
    """A version of a piece of knowledge."""

    slug: str
    version: int
    parent: str | None
    title: str
    body: str
    """Markdown."""
    links: tuple[str, ...] = ()
    """The slugs of entries it speaks of."""
    sources: tuple[Source, ...] = ()
    archived: bool = False
    """Whether it is deleted, as far as anybody looks for it: its versions stay."""
    at: str
    author: str


class Summary(Struct, frozen=True, kw_only=True):
    """What stands for a stretch of a session's messages."""

    id: int = 0
    """Its number in the memory; 0 for one that is not kept yet."""
    session: str
    order: int
    """1 stands for messages, 2 for summaries of order 1, and so on."""
    first: int
    last: int
    """The first and the last record of the log that it covers."""
    text: str
    at: str = ""


class Line(Struct, frozen=True, kw_only=True):
    """A message of the log."""

    seq: int
    kind: str
    at: str
    uuid: str
    text: str


class Findings(Struct, frozen=True, kw_only=True):
    """What a search came to, the best first."""

    entries: tuple[Entry, ...] = ()
    summaries: tuple[Summary, ...] = ()
    messages: tuple[Hit, ...] = ()


class Recall(Protocol):
    """Where an agent looks things up. Each may wait for a disk: call it beside the event loop. Raise SessionError."""

    def search(self, text: str, limit: int, *, everywhere: bool = False) -> Findings:
        """What has to do with a text: in the tree, in summaries and in all that was said.

        Messages and summaries are those of this session, or `everywhere` of all that are kept in the same place.
        """

    def entry(self, slug: str) -> Entry | None: ...

    def below(self, slug: str) -> list[Entry]:
        """The entries whose parent it is."""

    def summary(self, id: int) -> tuple[Summary, list[Summary]] | None:
        """A summary, and the summaries it stands for."""

    def messages(self, first: int, last: int, session_id: str | None = None) -> list[Line]:
        """What was said from one record to another, in this session or another. Raises UnknownSession."""


class Keeper(Protocol):
    """What an engine needs of the memory of a session. What may wait for a disk is awaited."""

    policy: Policy
    recall: Recall

    def outline(self) -> str:
        """What is known, as a model is told it at the beginning; empty if nothing is. Raises SessionError."""

    def progress(self) -> int:
        """The last record that was looked through; -1 if none was. Raises SessionError."""

    async def keep(self, summaries: Sequence[Summary]) -> None:
        """Raises SessionError."""

    async def consolidate(self, ask: Ask, decide: Decide, note: Callable[[Tally], None]) -> None:
        """Look through all that was said since the last time. `note` hears what it has come to so far.

        Raises ModelError, SessionError. May be cancelled: what was done by then is done.
        """
