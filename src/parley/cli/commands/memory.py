"""`parley memory`: what is known, how it came about, and how a person takes it back.

    parley memory list --db agent.db
    parley memory undo coffee --dry-run
    parley memory consolidate SESSION --dry-run

Whatever gives a session its memory gives it here (`--db`, `--memory FILE`); without one, it is the memory of the
project in this folder.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from parley.cli.commands.memory_consolidate import Curation
from parley.cli.commands.sessions import number
from parley.cli.commands.subcommand import Commands, chosen, handed_out, wants_help
from parley.cli.stdio import complain
from parley.compose import memory
from parley.compose.launch_context import Basis, working_directory
from parley.compose.models import Models
from parley.compose.stores import Sessions
from parley.errors import Refusal, SessionError, UsageError
from parley.memory.base import PERSON, Entry
from parley.memory.outline import ordered
from parley.protocol.base import Json, Struct, plain, spell
from parley.protocol.options import Options
from parley.settings.base import shown

USAGE = """\
usage: parley memory list [--archived]                       the tree, with what was archived if it is wanted
       parley memory show SLUG [VERSION]                     an entry, as it is or was
       parley memory search TEXT [--limit N]                 in the tree, in summaries and in all that was said
       parley memory history SLUG                            its versions: when, by whom, from which messages
       parley memory diff SLUG [FROM [TO]]                   what changed between two versions, the last two by itself
       parley memory undo SLUG [VERSION] [--dry-run]         make it what it was before the last change, or at a version
       parley memory consolidate SESSION [--dry-run]         have a session looked through for what is worth knowing

--dry-run only shows what would change. --json gives lines of JSON. --db FILE or --memory FILE say where."""
SWITCHES = {"--json": "as_json", "--archived": "archived", "--dry-run": "dry_run"}


class Wish(Struct, frozen=True, kw_only=True):
    """Our own flags."""

    as_json: bool = False
    archived: bool = False
    dry_run: bool = False
    limit: int = 10


class Desk:
    """The commands; each gives what is to be written. Raises UsageError, SessionError, Refusal."""

    def __init__(self, options: Options, wish: Wish) -> None:
        asked = options if options.memory is not None else options.but(memory="")
        self.wish = wish
        self.basis = Basis(asked, dict(os.environ), working_directory())
        self.basis.complain = complain
        self.sessions = Sessions(self.basis)
        path = memory.place(self.basis)
        if path is None:
            raise UsageError("there is no memory here: leave out --memory off and --no-session-persistence")
        self.path: Path = path
        self.tree = memory.tree(self.basis, path, PERSON)

    def check(self) -> None:
        """Raises UsageError where nothing can be: a file that is named wrong must not look like an empty memory."""
        if not self.path.exists():
            raise UsageError(f"there is no memory {shown(str(self.path))}")

    def list(self) -> Iterator[bytes]:
        found = self.tree.entries(archived=self.wish.archived)
        if self.wish.as_json:
            return self.json(map(plain, found))
        gone = {True: " (archived)", False: ""}
        return self.text(
            f"{'  ' * depth}{entry.slug}: {entry.title}{gone[entry.archived]}" for depth, entry in ordered(found)
        )

    def show(self, slug: str, version: str | None = None) -> Iterator[bytes]:
        entry = self.version(self.tree.history(slug), version)
        return self.json([plain(entry)]) if self.wish.as_json else self.text(page(entry))

    def search(self, *words: str) -> Iterator[bytes]:
        recall = memory.recall(self.sessions, self.path)
        found = recall.search(" ".join(words), self.wish.limit, everywhere=True)
        if self.wish.as_json:
            return self.json(
                {"kind": kind, **plain(each)}
                for kind, several in (
                    ("entry", found.entries),
                    ("summary", found.summaries),
                    ("message", found.messages),
                )
                for each in several
            )
        return self.text(
            [
                *(f"entry    {each.slug}: {each.title}" for each in found.entries),
                *(f"summary  {each.session} #{each.first} to #{each.last}: {each.text}" for each in found.summaries),
                *(f"message  {each.id} #{each.seq} {each.kind}: {each.excerpt}" for each in found.messages),
            ]
        )

    def history(self, slug: str) -> Iterator[bytes]:
        versions = self.tree.history(slug)
        if self.wish.as_json:
            return self.json(map(plain, versions))
        return self.text(
            f"{each.version:>4}  {each.at[:19]}  {each.author:8} {'archived' if each.archived else each.title}"
            f"{sources(each)}"
            for each in versions
        )

    def diff(self, slug: str, old: str | None = None, new: str | None = None) -> Iterator[bytes]:
        versions = self.tree.history(slug)
        after = self.version(versions, new)
        if old is None and after.version == versions[0].version:
            return self.text(changed(None, after))
        before = self.version(versions, old or str(after.version - 1))
        return self.text(changed(before, after))

    def undo(self, slug: str, version: str | None = None) -> Iterator[bytes]:
        to = None if version is None else number("VERSION", version)
        before = self.tree.get(slug)
        tree = memory.tree(self.basis, self.path, PERSON, rehearsed=True) if self.wish.dry_run else self.tree
        after = tree.undo(slug, to)
        if self.wish.as_json:
            return self.json([plain(after)])
        done = "would be" if self.wish.dry_run else "is"
        return self.text([f"{slug} {done} at version {after.version}:", *changed(before, after)])

    def consolidate(self, session_id: str) -> Iterator[bytes]:
        curation = Curation(self.basis, self.sessions, Models(self.basis), self.path, dry_run=self.wish.dry_run)
        found = asyncio.run(curation.run(session_id))
        if self.wish.as_json:
            return self.json([{**plain(found.tally), "entries": [plain(after) for _, after in found.changes]}])
        tally, would = found.tally, "would be " if self.wish.dry_run else ""
        head = f"{tally.created} entries {would}created, {tally.updated} updated, {tally.archived} archived"
        told = [head, *([tally.words] if tally.words else [])]
        return self.text([*told, *(line for before, after in found.changes for line in changed(before, after))])

    def version(self, versions: Sequence[Entry], wanted: str | None) -> Entry:
        """Raises UsageError."""
        if wanted is None:
            return versions[-1]
        at = number("VERSION", wanted)
        for entry in versions:
            if entry.version == at:
                return entry
        raise UsageError(f"{versions[0].slug!r} has the versions 1 to {versions[-1].version}, not {at}")

    def json(self, rows: Iterable[Json]) -> Iterator[bytes]:
        return (spell(row) + b"\n" for row in rows)

    def text(self, lines: Iterable[str]) -> Iterator[bytes]:
        return (f"{shown(part)}\n".encode(errors="replace") for line in lines for part in line.split("\n"))


COMMANDS: Commands = {
    "list": (Desk.list, 0, 0),
    "show": (Desk.show, 1, 2),
    "search": (Desk.search, 1, 100),
    "history": (Desk.history, 1, 1),
    "diff": (Desk.diff, 1, 3),
    "undo": (Desk.undo, 1, 2),
    "consolidate": (Desk.consolidate, 1, 1),
}
NEEDS_NO_FILE = ("consolidate",)


def main(argv: list[str]) -> int:
    """Raises UsageError or SessionError."""
    if wants_help(argv):
        return handed_out([f"{USAGE}\n".encode()])
    wish, rest = taken(argv)
    options, name, words = chosen(rest, "memory", USAGE, COMMANDS)
    desk = Desk(options, wish)
    if name not in NEEDS_NO_FILE:
        desk.check()
    try:
        return handed_out(COMMANDS[name][0](desk, *words))
    except Refusal as flaw:
        raise SessionError(str(flaw)) from None


def taken(argv: Sequence[str]) -> tuple[Wish, list[str]]:
    """Our own flags, off the command line: the rest is read as a session reads it. Raises UsageError."""
    rest: list[str] = []
    limit = Wish().limit
    words = iter(argv)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag == "--limit":
            limit = number(flag, value if equals else next(words, ""))
        elif word not in SWITCHES:
            rest.append(word)
    return Wish(limit=limit, **{name: flag in argv for flag, name in SWITCHES.items()}), rest


# How entries look.


def page(entry: Entry) -> list[str]:
    """An entry as a person reads it."""
    about = [
        f"# {entry.title}",
        f"slug     {entry.slug}",
        f"version  {entry.version}, {entry.at[:19]}, {entry.author}{', archived' if entry.archived else ''}",
    ]
    if entry.parent:
        about.append(f"parent   {entry.parent}")
    if entry.links:
        about.append(f"links    {', '.join(entry.links)}")
    about += [f"from     {source.session} #{source.seq} ({source.uuid})" for source in entry.sources]
    return [*about, "", entry.body]


def sources(entry: Entry) -> str:
    numbers = ", ".join(f"#{source.seq}" for source in entry.sources)
    return f"  from {numbers}" if numbers else ""


def changed(before: Entry | None, after: Entry) -> list[str]:
    """What is different, as patches show it."""
    import difflib

    old, new = ([] if entry is None else content(entry) for entry in (before, after))
    one, other = (f"{after.slug} version {entry.version}" if entry else "nothing" for entry in (before, after))
    return list(difflib.unified_diff(old, new, one, other, lineterm="", n=1))


def content(entry: Entry) -> list[str]:
    if entry.archived:
        return []
    fields = [f"title: {entry.title}", f"parent: {entry.parent or ''}", f"links: {', '.join(entry.links)}"]
    return [*fields, *entry.body.split("\n")]
