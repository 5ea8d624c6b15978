"""`parley memory`: list, show, search and undo what is remembered.

    parley memory list --db agent.db
    parley memory undo coffee --dry-run
    parley memory consolidate SESSION --dry-run

The options of a session select the memory (`--db`, `--memory FILE`). The default is the memory of the project in the
current folder.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from parley.cli.commands import catalog
from parley.cli.commands.memory_consolidate import SessionConsolidator
from parley.cli.commands.subcommand import GivenArgs, parse_number, run_command, write_all
from parley.cli.stdio import warn
from parley.compose import memory
from parley.compose.launch_context import LaunchContext, working_directory
from parley.compose.models import ModelFactory
from parley.compose.stores import SessionStores
from parley.errors import Refusal, SessionError, UsageError
from parley.memory.base import PERSON, KnowledgeEntry, order_entries
from parley.protocol.base import Json, encode_json, to_builtins
from parley.settings.base import printable


class MemoryCommand:
    """The commands; each returns the lines to write. They raise UsageError, SessionError, Refusal."""

    def __init__(self, given: GivenArgs) -> None:
        options = given.options
        options = options if options.memory is not None else options.replace(memory="")
        self.given = given
        self.as_json, self.dry_run = given.has("json"), given.has("dry-run")
        self.launch = LaunchContext(options, dict(os.environ), working_directory())
        self.launch.warn = warn
        self.sessions = SessionStores(self.launch)
        path = memory.memory_path(self.launch)
        if path is None:
            raise UsageError(
                "the memory is turned off; remove the options `--memory off` and `--no-session-persistence`"
            )
        self.path: Path = path
        self.tree = memory.open_tree(self.launch, path, PERSON)

    def check(self) -> None:
        """Raises UsageError if a file was named that does not exist: a typo must not look like an empty memory."""
        if self.path.exists():
            return
        if self.given.options.memory or self.given.options.database:
            raise UsageError(f"there is no memory file {printable(str(self.path))}")

    def list(self) -> Iterator[bytes]:
        found = self.tree.entries(archived=self.given.has("archived"))
        if not found and not self.as_json:
            warn(f"The memory {printable(str(self.path))} is empty. Sessions with --memory add to it.")
        if self.as_json:
            return self.json_lines(map(to_builtins, found))
        marks = {True: " (archived)", False: ""}
        return self.text_lines(
            f"{'  ' * depth}{entry.slug}: {entry.title}{marks[entry.archived]}" for depth, entry in order_entries(found)
        )

    def show(self, slug: str, version: str | None = None) -> Iterator[bytes]:
        entry = self.find_version(self.tree.history(slug), version)
        return self.json_lines([to_builtins(entry)]) if self.as_json else self.text_lines(format_page(entry))

    def search(self, *words: str) -> Iterator[bytes]:
        recall = memory.open_recall(self.sessions.store, self.path)
        found = recall.search(" ".join(words), self.given.number("limit", 10), everywhere=True)
        if self.as_json:
            return self.json_lines(
                {"kind": kind, **to_builtins(each)}
                for kind, several in (
                    ("entry", found.entries),
                    ("summary", found.summaries),
                    ("message", found.messages),
                )
                for each in several
            )
        return self.text_lines(
            [
                *(f"entry    {each.slug}: {each.title}" for each in found.entries),
                *(f"summary  {each.session} #{each.first} to #{each.last}: {each.text}" for each in found.summaries),
                *(f"message  {each.id} #{each.seq} {each.kind}: {each.excerpt}" for each in found.messages),
            ]
        )

    def history(self, slug: str) -> Iterator[bytes]:
        versions = self.tree.history(slug)
        if self.as_json:
            return self.json_lines(map(to_builtins, versions))
        return self.text_lines(
            f"{each.version:>4}  {each.at[:19]}  {each.author:8} {'archived' if each.archived else each.title}"
            f"{format_sources(each)}"
            for each in versions
        )

    def diff(self, slug: str, old: str | None = None, new: str | None = None) -> Iterator[bytes]:
        versions = self.tree.history(slug)
        after = self.find_version(versions, new)
        if old is None and after.version == versions[0].version:
            return self.text_lines(format_change(None, after))
        before = self.find_version(versions, old or str(after.version - 1))
        return self.text_lines(format_change(before, after))

    def undo(self, slug: str, version: str | None = None) -> Iterator[bytes]:
        to = None if version is None else parse_number("VERSION", version)
        before = self.tree.get(slug)
        tree = memory.open_tree(self.launch, self.path, PERSON, dry_run=True) if self.dry_run else self.tree
        after = tree.undo(slug, to)
        if self.as_json:
            return self.json_lines([to_builtins(after)])
        done = "would be" if self.dry_run else "is"
        return self.text_lines([f"{slug} {done} at version {after.version}:", *format_change(before, after)])

    def consolidate(self, session: str) -> Iterator[bytes]:
        consolidation = SessionConsolidator(
            self.launch, self.sessions, ModelFactory(self.launch), self.path, dry_run=self.dry_run
        )
        found = asyncio.run(consolidation.run(self.sessions.find(session)))
        if self.as_json:
            return self.json_lines(
                [{**to_builtins(found.tally), "entries": [to_builtins(after) for _, after in found.changes]}]
            )
        tally, would = found.tally, "would be " if self.dry_run else ""
        head = f"{tally.created} entries {would}created, {tally.updated} updated, {tally.archived} archived"
        lines = [head, *([tally.words] if tally.words else [])]
        return self.text_lines(
            [*lines, *(line for before, after in found.changes for line in format_change(before, after))]
        )

    def find_version(self, versions: Sequence[KnowledgeEntry], version: str | None) -> KnowledgeEntry:
        """Raises UsageError."""
        if version is None:
            return versions[-1]
        at = parse_number("VERSION", version)
        for entry in versions:
            if entry.version == at:
                return entry
        raise UsageError(f"{versions[0].slug!r} has no version {at} (versions: 1 to {versions[-1].version})")

    def json_lines(self, rows: Iterable[Json]) -> Iterator[bytes]:
        return (encode_json(row) + b"\n" for row in rows)

    def text_lines(self, lines: Iterable[str]) -> Iterator[bytes]:
        return (f"{printable(part)}\n".encode(errors="replace") for line in lines for part in line.split("\n"))


ACTIONS: dict[str, Callable[..., Iterator[bytes]]] = {
    "list": MemoryCommand.list,
    "show": MemoryCommand.show,
    "search": MemoryCommand.search,
    "history": MemoryCommand.history,
    "diff": MemoryCommand.diff,
    "undo": MemoryCommand.undo,
    "consolidate": MemoryCommand.consolidate,
}


def main(argv: list[str]) -> int:
    """Raises UsageError or SessionError."""
    return run_command(catalog.COMMANDS["memory"], argv, dict.fromkeys(ACTIONS, run))


def run(given: GivenArgs) -> int:
    command = MemoryCommand(given)
    if given.action != "consolidate":
        command.check()
    try:
        return write_all(ACTIONS[given.action](command, *given.words))
    except Refusal as exc:
        raise SessionError(str(exc)) from None


# Formats.


def format_page(entry: KnowledgeEntry) -> list[str]:
    """The full text of an entry."""
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


def format_sources(entry: KnowledgeEntry) -> str:
    numbers = ", ".join(f"#{source.seq}" for source in entry.sources)
    return f"  from {numbers}" if numbers else ""


def format_change(before: KnowledgeEntry | None, after: KnowledgeEntry) -> list[str]:
    """A unified diff of two versions."""
    import difflib

    old, new = ([] if entry is None else format_content(entry) for entry in (before, after))
    one, other = (f"{after.slug} version {entry.version}" if entry else "nothing" for entry in (before, after))
    return list(difflib.unified_diff(old, new, one, other, lineterm="", n=1))


def format_content(entry: KnowledgeEntry) -> list[str]:
    if entry.archived:
        return []
    fields = [f"title: {entry.title}", f"parent: {entry.parent or ''}", f"links: {', '.join(entry.links)}"]
    return [*fields, *entry.body.split("\n")]
