"""The knowledge tree: entries that are created, changed and archived. Each change is a new version.

    tree = KnowledgeTree(database, now)
    entry = tree.create(EntryDraft(slug="coffee", title="Coffee", body="Black, no sugar."))
    entry = tree.update("coffee", entry.version, body="With milk.")      # refused if the version is not current
    entry = tree.undo("coffee")                                          # the first text again, as version 3

Each call is one transaction. An invalid change raises EditRefused with a text for the model or the user.

The tables are in the SQLite file of a memory: in the database of the sessions or in a separate one.

    with MemoryDatabase(path).writing() as run:     one transaction
    with MemoryDatabase(path).reading() as run:     queries of an empty memory have no rows

The file and the tables are created with the first write. Every use has its own connection, so that an abandoned
thread leaves nothing open, and a killed process no partial change.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from parley.errors import EditRefused
from parley.memory.base import CURATOR, EntrySource, KnowledgeEntry
from parley.protocol.base import Struct
from parley.stores.search_text import build_queries, significant_words
from parley.workspace.private_database import (
    IN_MEMORY,
    Schema,
    create_tables,
    has_tables,
    open_database,
    transaction,
    translate_errors,
)

TOKENIZER = 'tokenize="unicode61 remove_diacritics 0"'
SCRIPT = f"""
CREATE TABLE memory_entries (
    id INTEGER PRIMARY KEY, slug TEXT NOT NULL UNIQUE, version INTEGER NOT NULL, parent TEXT, title TEXT NOT NULL,
    body TEXT NOT NULL, links TEXT NOT NULL, sources TEXT NOT NULL, archived INTEGER NOT NULL, at TEXT NOT NULL,
    author TEXT NOT NULL
);
CREATE INDEX memory_entries_by_parent ON memory_entries (parent);
CREATE TABLE memory_versions (
    slug TEXT NOT NULL, version INTEGER NOT NULL, parent TEXT, title TEXT NOT NULL, body TEXT NOT NULL,
    links TEXT NOT NULL, sources TEXT NOT NULL, archived INTEGER NOT NULL, at TEXT NOT NULL, author TEXT NOT NULL,
    PRIMARY KEY (slug, version)
);
CREATE TABLE memory_progress (session TEXT PRIMARY KEY, seq INTEGER NOT NULL);
CREATE VIRTUAL TABLE memory_entry_words USING fts5(
    slug, title, body, content='memory_entries', content_rowid='id', {TOKENIZER}
);
CREATE TRIGGER memory_entry_new AFTER INSERT ON memory_entries BEGIN
    INSERT INTO memory_entry_words (rowid, slug, title, body) VALUES (new.id, new.slug, new.title, new.body);
END;
CREATE TRIGGER memory_entry_changed AFTER UPDATE ON memory_entries BEGIN
    INSERT INTO memory_entry_words (memory_entry_words, rowid, slug, title, body)
        VALUES ('delete', old.id, old.slug, old.title, old.body);
    INSERT INTO memory_entry_words (rowid, slug, title, body) VALUES (new.id, new.slug, new.title, new.body);
END;
"""
SCHEMA = Schema("memory", 1, SCRIPT)
TABLES = ("memory_entries", "memory_versions", "memory_progress")


class NoTables:
    """A memory in which nothing was stored yet."""

    def execute(self, statement: str, given: Sequence[Any] = ()) -> NoTables:
        return self

    def fetchone(self) -> None:
        return None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(())


NO_TABLES = NoTables()
Reader = sqlite3.Connection | NoTables


class MemoryDatabase:
    def __init__(self, path: Path, below: int = 0) -> None:
        """`below` is how many of the folders above the file are private and must not be links."""
        self.path = path
        self._below = below

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction. Raises SessionError."""
        with translate_errors(f"the memory {self.path}"), self._open() as database, transaction(database):
            create_tables(database, SCHEMA)
            yield database

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Raises SessionError."""
        if not self._exists():
            yield NO_TABLES
            return
        with translate_errors(f"the memory {self.path}"), self._open() as database:
            yield database if has_tables(database, SCHEMA) else NO_TABLES

    @property
    def is_empty(self) -> bool:
        """Whether nothing was stored yet. Raises SessionError."""
        with self.reading() as run:
            return run is NO_TABLES

    def search(self, statement: str, text: str, limit: int, *given: Any) -> list[tuple[Any, ...]]:
        """The rows with all the words, then those with some, best first and each once. Raises SessionError.

        The statement takes a full-text query, what is given, and a limit. Its first column identifies a row.
        """
        hits: dict[Any, tuple[Any, ...]] = {}
        with self.reading() as run:
            for query in build_queries(significant_words(text)):
                for row in run.execute(statement, (query, *given, limit)):
                    hits.setdefault(row[0], row)
        return list(hits.values())[:limit]

    def dry_run(self) -> MemoryDatabase:
        """A copy in memory, to preview changes. Raises SessionError."""
        return DryRunDatabase(self)

    def _exists(self) -> bool:
        return self.path.exists()

    def _open(self) -> AbstractContextManager[sqlite3.Connection]:
        return closing(open_database(self.path, SCHEMA, below=self._below, create=False))


class DryRunDatabase(MemoryDatabase):
    """A copy of a memory. Changes are discarded."""

    def __init__(self, of: MemoryDatabase) -> None:
        super().__init__(of.path)
        self._database = open_database(IN_MEMORY, SCHEMA)
        with self.writing() as mine, of.reading() as theirs:
            for table in TABLES:
                for row in theirs.execute(f"SELECT * FROM {table}"):
                    mine.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    def _exists(self) -> bool:
        return True

    def _open(self) -> AbstractContextManager[sqlite3.Connection]:
        return nullcontext(self._database)


SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
LONGEST_SLUG, LONGEST_TITLE, LONGEST_BODY, MOST_LINKS = 80, 200, 20_000, 50
COLUMNS = "slug, version, parent, title, body, links, sources, archived, at, author"
CHANGEABLE = ("parent", "title", "body", "links")


class EntryDraft(Struct, frozen=True, kw_only=True):
    """The contents of a new entry."""

    slug: str
    title: str
    body: str
    parent: str | None = None
    links: tuple[str, ...] = ()
    sources: tuple[EntrySource, ...] = ()


class KnowledgeTree:
    def __init__(
        self,
        database: MemoryDatabase,
        now: Callable[[], str],
        author: str = CURATOR,
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._database = database
        self._now = now
        self._author = author
        self._redact = redact
        """Removes secrets from every text."""

    # Read.

    def get(self, slug: str) -> KnowledgeEntry | None:
        """An entry, also if it is archived. Raises SessionError."""
        with self._database.reading() as run:
            return find_entry(run, slug)

    def entries(self, *, archived: bool = False) -> list[KnowledgeEntry]:
        """All entries, ordered by slug. Raises SessionError."""
        where = "" if archived else "WHERE NOT archived "
        with self._database.reading() as run:
            return [as_entry(row) for row in run.execute(f"SELECT {COLUMNS} FROM memory_entries {where}ORDER BY slug")]

    def below(self, slug: str) -> list[KnowledgeEntry]:
        """Raises SessionError."""
        with self._database.reading() as run:
            return children(run, slug)

    def search(self, text: str, limit: int) -> list[KnowledgeEntry]:
        """Entries with all the words, then those with some, best first. Raises SessionError."""
        names = ", ".join(f"memory_entries.{name}" for name in COLUMNS.split(", "))
        wanted = (
            f"SELECT {names} FROM memory_entry_words JOIN memory_entries ON id = memory_entry_words.rowid "
            "WHERE memory_entry_words MATCH ? AND NOT archived ORDER BY bm25(memory_entry_words, 4, 4, 1) LIMIT ?"
        )
        return [as_entry(row) for row in self._database.search(wanted, text, limit)]

    def history(self, slug: str) -> list[KnowledgeEntry]:
        """All versions, oldest first. Raises SessionError, or EditRefused if there is no such entry."""
        with self._database.reading() as run:
            rows = versions(run, slug)
        if not rows:
            raise unknown_entry(slug)
        return rows

    # Change.

    def create(self, draft: EntryDraft) -> KnowledgeEntry:
        """Raises EditRefused, SessionError."""
        entry = KnowledgeEntry(
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
            there = find_entry(run, entry.slug)
            if there is not None and not there.archived:
                raise EditRefused(
                    f"the entry {entry.slug!r} already exists, at version {there.version}: update it "
                    "instead of creating it"
                )
            if there is not None:  # an archived slug is used again and keeps its history
                entry = replace(entry, version=there.version + 1)
            check_entry(run, entry)
            write_version(run, entry, there)
        return entry

    def update(
        self, slug: str, version: int, *, sources: tuple[EntrySource, ...] = (), **changes: Any
    ) -> KnowledgeEntry:
        """`changes`: any of parent, title, body and links. Raises EditRefused, SessionError."""
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
            before = current_version(run, slug, version)
            more = tuple(source for source in sources if source not in before.sources)
            after = self._next(before, sources=(*before.sources, *more), **changes)
            if all(getattr(after, name) == getattr(before, name) for name in CHANGEABLE):
                raise EditRefused(f"{slug!r} already has these values; nothing was changed")
            check_entry(run, after)
            write_version(run, after, before)
        return after

    def archive(self, slug: str, version: int) -> KnowledgeEntry:
        """Raises EditRefused, SessionError."""
        with self._database.writing() as run:
            before = current_version(run, slug, version)
            check_no_children(run, slug)
            after = self._next(before, archived=True)
            write_version(run, after, before)
        return after

    def undo(self, slug: str, to: int | None = None) -> KnowledgeEntry:
        """Restore a version, by default the one before the last. Undoing a creation archives the entry.

        Raises EditRefused, SessionError.
        """
        with self._database.writing() as run:
            before = find_entry(run, slug)
            if before is None:
                raise unknown_entry(slug)
            after = self._restore(before, versions(run, slug), to)
            if after.archived:
                check_no_children(run, slug)
            else:
                check_entry(run, after)
            write_version(run, after, before)
        return after

    def _restore(self, before: KnowledgeEntry, all: list[KnowledgeEntry], to: int | None) -> KnowledgeEntry:
        version = before.version - 1 if to is None else to
        if version == 0 and to is None:
            return self._next(before, archived=True)
        old = next((entry for entry in all if entry.version == version), None)
        if old is None or version == before.version:
            earlier = ", ".join(str(entry.version) for entry in all if entry.version != before.version) or "none"
            raise EditRefused(
                f"{before.slug!r} has no earlier version {version} to restore (earlier versions: {earlier})"
            )
        return self._next(old, version=before.version + 1)

    def _next(self, before: KnowledgeEntry, **changes: Any) -> KnowledgeEntry:
        made: KnowledgeEntry = replace(
            before, **{"version": before.version + 1, "at": self._now(), "author": self._author, **changes}
        )
        return made


# Validation.


def check_entry(run: sqlite3.Connection, entry: KnowledgeEntry) -> None:
    """Raises EditRefused if an entry is invalid."""
    if not SLUG.fullmatch(entry.slug) or len(entry.slug) > LONGEST_SLUG:
        raise EditRefused(
            f"{entry.slug!r} is not a valid slug: use lower-case letters and digits, with single hyphens between them, "
            f"at most {LONGEST_SLUG} characters"
        )
    for name, text, most in (("title", entry.title, LONGEST_TITLE), ("body", entry.body, LONGEST_BODY)):
        if not text or len(text) > most:
            raise EditRefused(f"the {name} has {len(text)} characters; it must have 1 to {most}")
    if len(entry.links) > MOST_LINKS:
        raise EditRefused(f"an entry can have at most {MOST_LINKS} links, not {len(entry.links)}")
    for slug in filter(None, (entry.parent, *entry.links)):
        there = find_entry(run, slug)
        if there is None or there.archived:
            raise EditRefused(f"{entry.slug!r} refers to {slug!r}, which is {'archived' if there else 'not an entry'}")
    if entry.parent is not None and entry.slug in ancestors(run, entry.parent):
        raise EditRefused(
            f"{entry.slug!r} cannot be moved below {entry.parent!r}: {entry.parent!r} is itself below {entry.slug!r}"
        )


def check_no_children(run: sqlite3.Connection, slug: str) -> None:
    """Raises EditRefused if an entry has children."""
    if left := [child.slug for child in children(run, slug)]:
        raise EditRefused(f"{slug!r} has entries below it: move or archive {', '.join(left)} first")


def current_version(run: sqlite3.Connection, slug: str, version: int) -> KnowledgeEntry:
    """Raises EditRefused if the entry does not exist or has another version."""
    there = find_entry(run, slug)
    if there is None or there.archived:
        raise unknown_entry(slug)
    if there.version != version:
        raise EditRefused(
            f"{slug!r} is now at version {there.version}, not {version}: read it again before you change it"
        )
    return there


def one_line(text: str) -> str:
    """Titles are shown in lists, one per line."""
    return " ".join(text.split())


def unknown_entry(slug: str) -> EditRefused:
    return EditRefused(f"there is no entry {slug!r}")


# Rows.


def find_entry(run: Reader, slug: str) -> KnowledgeEntry | None:
    row = run.execute(f"SELECT {COLUMNS} FROM memory_entries WHERE slug = ?", (slug,)).fetchone()
    return None if row is None else as_entry(row)


def versions(run: Reader, slug: str) -> list[KnowledgeEntry]:
    rows = run.execute(f"SELECT {COLUMNS} FROM memory_versions WHERE slug = ? ORDER BY version", (slug,))
    return [as_entry(row) for row in rows]


def children(run: Reader, slug: str) -> list[KnowledgeEntry]:
    wanted = f"SELECT {COLUMNS} FROM memory_entries WHERE parent = ? AND NOT archived ORDER BY slug"
    return [as_entry(row) for row in run.execute(wanted, (slug,))]


def ancestors(run: sqlite3.Connection, slug: str | None) -> list[str]:
    """An entry and its ancestors."""
    above: list[str] = []
    while slug is not None and slug not in above:
        above.append(slug)
        there = find_entry(run, slug)
        slug = None if there is None else there.parent
    return above


def write_version(run: sqlite3.Connection, entry: KnowledgeEntry, before: KnowledgeEntry | None) -> None:
    """Write a version and make it the current one."""
    links, sources = (msgspec.json.encode(each).decode() for each in (entry.links, entry.sources))
    fields = (entry.slug, entry.version, entry.parent, entry.title, entry.body, links, sources)
    row = (*fields, int(entry.archived), entry.at, entry.author)
    run.execute(f"INSERT INTO memory_versions ({COLUMNS}) VALUES ({', '.join('?' * len(row))})", row)
    if before is None:
        run.execute(f"INSERT INTO memory_entries ({COLUMNS}) VALUES ({', '.join('?' * len(row))})", row)
    else:
        names = ", ".join(f"{name} = ?" for name in COLUMNS.split(", "))
        run.execute(f"UPDATE memory_entries SET {names} WHERE slug = ?", (*row, entry.slug))


def as_entry(row: tuple[Any, ...]) -> KnowledgeEntry:
    """The entry of a row. A corrupt cell is read as far as possible."""
    named = dict(zip(COLUMNS.split(", "), row, strict=True))
    named["links"] = read_list_cell(named["links"], tuple[str, ...])
    named["sources"] = read_list_cell(named["sources"], tuple[EntrySource, ...])
    for name in ("title", "body"):
        if isinstance(named[name], bytes):
            named[name] = named[name].decode(errors="replace")
    return KnowledgeEntry(**{**named, "archived": bool(named["archived"])})


def read_list_cell(cell: Any, kind: Any) -> Any:
    """The list in a cell; empty if it is invalid."""
    try:
        return msgspec.json.decode(cell, type=kind)
    except (msgspec.DecodeError, UnicodeError, TypeError, RecursionError):
        return ()
