"""The tree of what is known: entries that are created, changed and archived, each change as a version.

    tree = Tree(database, now)
    entry = tree.create(Draft(slug="coffee", title="Coffee", body="Black, no sugar."))
    entry = tree.update("coffee", entry.version, body="With milk.")      # refused if somebody was quicker
    entry = tree.undo("coffee")                                          # black again, as version 3

Each is one transaction. What cannot be is refused with words for whoever asked, a model or a person.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from parley.errors import Refusal
from parley.memory.base import CURATOR, Entry, Source
from parley.memory.database import Database
from parley.protocol.base import Struct
from parley.stores.search_text import queries, telling

SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
LONGEST_SLUG, LONGEST_TITLE, LONGEST_BODY, MOST_LINKS = 80, 200, 20_000, 50
COLUMNS = "slug, version, parent, title, body, links, sources, archived, at, author"
CHANGEABLE = ("parent", "title", "body", "links")


class Draft(Struct, frozen=True, kw_only=True):
    """What an entry is to say."""

    slug: str
    title: str
    body: str
    parent: str | None = None
    links: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()


class Tree:
    def __init__(
        self,
        database: Database,
        now: Callable[[], str],
        author: str = CURATOR,
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._database = database
        self._now = now
        self._author = author
        self._redact = redact
        """What must not be remembered is taken out of every text."""

    # Looking.

    def get(self, slug: str) -> Entry | None:
        """Also one that is archived. Raises SessionError."""
        with self._database.reading() as run:
            return None if run is None else found(run, slug)

    def entries(self, *, archived: bool = False) -> list[Entry]:
        """All of them, by their slugs; those that are archived only if they are wanted. Raises SessionError."""
        where = "" if archived else "WHERE NOT archived "
        with self._database.reading() as run:
            rows = [] if run is None else run.execute(f"SELECT {COLUMNS} FROM memory_entries {where}ORDER BY slug")
            return [as_entry(row) for row in rows]

    def below(self, slug: str) -> list[Entry]:
        """Raises SessionError."""
        with self._database.reading() as run:
            return [] if run is None else children(run, slug)

    def search(self, text: str, limit: int) -> list[Entry]:
        """Those that have all the words, then those that have some, each the best first. Raises SessionError."""
        names = ", ".join(f"memory_entries.{name}" for name in COLUMNS.split(", "))
        wanted = (
            f"SELECT {names} FROM memory_entry_words JOIN memory_entries ON id = memory_entry_words.rowid "
            "WHERE memory_entry_words MATCH ? AND NOT archived ORDER BY bm25(memory_entry_words, 4, 4, 1) LIMIT ?"
        )
        hits: dict[str, Entry] = {}
        with self._database.reading() as run:
            for query in queries(telling(text)) if run is not None else ():
                for row in run.execute(wanted, (query, limit)) if run is not None else ():
                    hits.setdefault(row[0], as_entry(row))
        return list(hits.values())[:limit]

    def history(self, slug: str) -> list[Entry]:
        """Its versions, the first first. Raises SessionError, Refusal if there never was such an entry."""
        with self._database.reading() as run:
            rows = [] if run is None else versions(run, slug)
        if not rows:
            raise unknown(slug)
        return rows

    # Changing.

    def create(self, draft: Draft) -> Entry:
        """Raises Refusal, SessionError."""
        entry = Entry(
            slug=draft.slug,
            version=1,
            parent=draft.parent or None,
            title=self._redact(one_line(draft.title)),
            body=self._redact(draft.body.strip()),
            links=tuple(dict.fromkeys(draft.links)),
            sources=draft.sources,
            at=self._now(),
            author=self._author,
        )
        with self._database.writing() as run:
            there = found(run, entry.slug)
            if there is not None and not there.archived:
                raise Refusal(f"there is an entry {entry.slug!r} already, at version {there.version}: update that one")
            if there is not None:  # a slug that was archived lives again, with its history
                entry = replace(entry, version=there.version + 1)
            check(run, entry)
            put(run, entry, there)
        return entry

    def update(self, slug: str, version: int, *, sources: tuple[Source, ...] = (), **changes: Any) -> Entry:
        """`changes`: any of parent, title, body and links. Raises Refusal, SessionError."""
        assert set(changes) <= set(CHANGEABLE)
        if "title" in changes:
            changes["title"] = self._redact(one_line(changes["title"]))
        if "body" in changes:
            changes["body"] = self._redact(changes["body"].strip())
        if "links" in changes:
            changes["links"] = tuple(dict.fromkeys(changes["links"]))
        if "parent" in changes:
            changes["parent"] = changes["parent"] or None
        with self._database.writing() as run:
            before = current(run, slug, version)
            more = tuple(source for source in sources if source not in before.sources)
            after = self._next(before, sources=(*before.sources, *more), **changes)
            if all(getattr(after, name) == getattr(before, name) for name in CHANGEABLE):
                raise Refusal(f"nothing of {slug!r} would be different")
            check(run, after)
            put(run, after, before)
        return after

    def archive(self, slug: str, version: int) -> Entry:
        """Raises Refusal, SessionError."""
        with self._database.writing() as run:
            before = current(run, slug, version)
            check_alone(run, slug)
            after = self._next(before, archived=True)
            put(run, after, before)
        return after

    def undo(self, slug: str, to: int | None = None) -> Entry:
        """Make it what it was at a version, or before the last; what was created last is archived.

        Raises Refusal, SessionError.
        """
        with self._database.writing() as run:
            before = found(run, slug)
            if before is None:
                raise unknown(slug)
            after = self._gone_back(before, versions(run, slug), to)
            if after.archived:
                check_alone(run, slug)
            else:
                check(run, after)
            put(run, after, before)
        return after

    def _gone_back(self, before: Entry, all: list[Entry], to: int | None) -> Entry:
        wanted = before.version - 1 if to is None else to
        if wanted == 0 and to is None:
            return self._next(before, archived=True)
        old = next((entry for entry in all if entry.version == wanted), None)
        if old is None or wanted == before.version:
            known = ", ".join(str(entry.version) for entry in all)
            raise Refusal(f"{before.slug!r} is at version {before.version} and has the versions {known}, not {wanted}")
        return self._next(old, version=before.version + 1)

    def _next(self, before: Entry, **changes: Any) -> Entry:
        made: Entry = replace(
            before, **{"version": before.version + 1, "at": self._now(), "author": self._author, **changes}
        )
        return made


# What may be.


def check(run: sqlite3.Connection, entry: Entry) -> None:
    """Raises Refusal if an entry cannot be so."""
    if not SLUG.fullmatch(entry.slug) or len(entry.slug) > LONGEST_SLUG:
        raise Refusal(
            f"{entry.slug!r} cannot be a slug: it has lower-case letters, digits and single hyphens between them, "
            f"{LONGEST_SLUG} at most"
        )
    for name, text, most in (("title", entry.title, LONGEST_TITLE), ("body", entry.body, LONGEST_BODY)):
        if not text or len(text) > most:
            raise Refusal(f"the {name} has {len(text)} characters; it must have 1 to {most}")
    if len(entry.links) > MOST_LINKS:
        raise Refusal(f"an entry has {MOST_LINKS} links at most, not {len(entry.links)}")
    for slug in filter(None, (entry.parent, *entry.links)):
        there = found(run, slug)
        if there is None or there.archived:
            raise Refusal(f"{entry.slug!r} refers to {slug!r}, which is {'archived' if there else 'no entry'}")
    if entry.parent is not None and entry.slug in ancestors(run, entry.parent):
        raise Refusal(f"{entry.slug!r} cannot be below {entry.parent!r}, which is below it")


def check_alone(run: sqlite3.Connection, slug: str) -> None:
    """Raises Refusal if entries would hang in the air."""
    if left := [child.slug for child in children(run, slug)]:
        raise Refusal(f"{slug!r} has entries below it: move or archive {', '.join(left)} first")


def current(run: sqlite3.Connection, slug: str, version: int) -> Entry:
    """Raises Refusal if it is not there, or not the one that somebody saw."""
    there = found(run, slug)
    if there is None or there.archived:
        raise unknown(slug)
    if there.version != version:
        raise Refusal(
            f"{slug!r} is at version {there.version} by now, not {version}: read it again, then change what it says"
        )
    return there


def one_line(text: str) -> str:
    """Titles stand in lists, one in a line."""
    return " ".join(text.split())


def unknown(slug: str) -> Refusal:
    return Refusal(f"there is no entry {slug!r}")


# Rows.


def found(run: sqlite3.Connection, slug: str) -> Entry | None:
    row = run.execute(f"SELECT {COLUMNS} FROM memory_entries WHERE slug = ?", (slug,)).fetchone()
    return None if row is None else as_entry(row)


def versions(run: sqlite3.Connection, slug: str) -> list[Entry]:
    rows = run.execute(f"SELECT {COLUMNS} FROM memory_versions WHERE slug = ? ORDER BY version", (slug,))
    return [as_entry(row) for row in rows]


def children(run: sqlite3.Connection, slug: str) -> list[Entry]:
    wanted = f"SELECT {COLUMNS} FROM memory_entries WHERE parent = ? AND NOT archived ORDER BY slug"
    return [as_entry(row) for row in run.execute(wanted, (slug,))]


def ancestors(run: sqlite3.Connection, slug: str | None) -> list[str]:
    """An entry and what is above it."""
    above: list[str] = []
    while slug is not None and slug not in above:
        above.append(slug)
        there = found(run, slug)
        slug = None if there is None else there.parent
    return above


def put(run: sqlite3.Connection, entry: Entry, before: Entry | None) -> None:
    """Keep a version, in the place of the one before."""
    row = as_row(entry)
    run.execute(f"INSERT INTO memory_versions ({COLUMNS}) VALUES ({', '.join('?' * len(row))})", row)
    if before is None:
        run.execute(f"INSERT INTO memory_entries ({COLUMNS}) VALUES ({', '.join('?' * len(row))})", row)
    else:
        names = ", ".join(f"{name} = ?" for name in COLUMNS.split(", "))
        run.execute(f"UPDATE memory_entries SET {names} WHERE slug = ?", (*row, entry.slug))


def as_row(entry: Entry) -> tuple[Any, ...]:
    links, sources = (msgspec.json.encode(each).decode() for each in (entry.links, entry.sources))
    fields = (entry.slug, entry.version, entry.parent, entry.title, entry.body, links, sources)
    return (*fields, int(entry.archived), entry.at, entry.author)


def as_entry(row: tuple[Any, ...]) -> Entry:
    """The entry of a row. A cell that something else has spoilt is read as far as it can be, and so is the rest."""
    named = dict(zip(COLUMNS.split(", "), row, strict=True))
    named["links"] = listed(named["links"], tuple[str, ...])
    named["sources"] = listed(named["sources"], tuple[Source, ...])
    for name in ("title", "body"):
        if isinstance(named[name], bytes):
            named[name] = named[name].decode(errors="replace")
    return Entry(**{**named, "archived": bool(named["archived"])})


def listed(cell: Any, kind: Any) -> Any:
    """What a cell lists; nothing if it is no list of that kind."""
    try:
        return msgspec.json.decode(cell, type=kind)
    except (msgspec.DecodeError, UnicodeError, TypeError, RecursionError):
        return ()
