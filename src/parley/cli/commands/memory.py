"""`parley memory`: list, show, search and undo what is remembered.

    parley memory list --db agent.db
    parley memory undo coffee --dry-run
    parley memory consolidate SESSION --dry-run

The options of a session select the memory (`--db`, `--memory FILE`). The default is the memory of the project in the
current folder.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parley.cli.commands.subcommand import GivenArgs, Subcommand, open_launch, parse_number, show_lines
from parley.compose import memory
from parley.compose.composer import resolve_options
from parley.compose.launch_context import LaunchContext
from parley.compose.models import ModelFactory
from parley.compose.stores import SessionStores
from parley.engine.approval.request import input_digest
from parley.engine.clock import SessionIdentity
from parley.engine.context.models import ModelPool, ModelSelection, SideQuery
from parley.engine.ledger import Ledger, SpendingLimits
from parley.errors import EditRefused, ModelError, SessionError, UnknownSession, UsageError
from parley.memory.base import (
    CURATOR,
    PERSON,
    ConsolidationReport,
    DecideCall,
    KnowledgeEntry,
    curator_decision,
    order_entries,
)
from parley.models.catalog import ModelRef
from parley.protocol.base import Json, Struct, to_builtins
from parley.settings.base import printable
from parley.stores.base import Entry as LogEntry


class MemoryCommand(Subcommand):
    """The actions. They raise UsageError, SessionError."""

    def __init__(self, given: GivenArgs) -> None:
        super().__init__(given)
        options = given.options
        self.dry_run = given.has("dry-run")
        self.launch = open_launch(options if options.memory is not None else options.replace(memory=""))
        self.sessions = SessionStores(self.launch)
        path = memory.memory_path(self.launch)
        if path is None:
            raise UsageError(
                "the memory is turned off; remove the options `--memory off` and `--no-session-persistence`"
            )
        self.path: Path = path
        self.tree = memory.open_tree(self.launch, path, PERSON)

    def run(self) -> int:
        is_named = self.given.options.memory or self.given.options.database
        if is_named and self.given.action != "consolidate" and not self.path.exists():
            # A typo must not look like an empty memory.
            raise UsageError(f"there is no memory file {printable(str(self.path))}")
        try:
            return super().run()
        except EditRefused as exc:
            raise SessionError(str(exc)) from None

    def list(self) -> int:
        found = self.tree.entries(archived=self.given.has("archived"))
        marks = {True: " (archived)", False: ""}
        lines = [
            f"{'  ' * depth}{entry.slug}: {entry.title}{marks[entry.archived]}" for depth, entry in order_entries(found)
        ]
        nothing = f"The memory {printable(str(self.path))} is empty. Sessions with --memory add to it."
        return self.show_rows(found, lines, nothing=nothing)

    def show(self, slug: str, version: str | None = None) -> int:
        entry = self.find_version(self.tree.history(slug), version)
        return self.show_rows([entry], format_page(entry))

    def search(self, *words: str) -> int:
        recall = memory.open_recall(self.sessions.store, self.path)
        found = recall.search(" ".join(words), self.given.number("limit", 10), everywhere=True)
        kinds = {"entry": found.entries, "message": found.messages}
        rows = [{"kind": kind, **to_builtins(each)} for kind, several in kinds.items() for each in several]
        lines = [
            *(f"entry    {each.slug}: {each.title}" for each in found.entries),
            *(f"message  {each.id} #{each.seq} {each.kind}: {each.excerpt}" for each in found.messages),
        ]
        return self.show_rows(rows, lines)

    def history(self, slug: str) -> int:
        versions = self.tree.history(slug)
        lines = [
            f"{each.version:>4}  {each.at[:19]}  {each.author:8} {'archived' if each.archived else each.title}"
            f"{format_sources(each)}"
            for each in versions
        ]
        return self.show_rows(versions, lines)

    def diff(self, slug: str, old: str | None = None, new: str | None = None) -> int:
        versions = self.tree.history(slug)
        after = self.find_version(versions, new)
        is_first = old is None and after.version == versions[0].version
        before = None if is_first else self.find_version(versions, old or str(after.version - 1))
        return self.show_rows([], format_change(before, after))

    def undo(self, slug: str, version: str | None = None) -> int:
        to = None if version is None else parse_number("VERSION", version)
        before = self.tree.get(slug)
        tree = memory.open_tree(self.launch, self.path, PERSON, dry_run=True) if self.dry_run else self.tree
        after = tree.undo(slug, to)
        done = "would be" if self.dry_run else "is"
        return self.show_rows([after], [f"{slug} {done} at version {after.version}:", *format_change(before, after)])

    def consolidate(self, session: str) -> int:
        consolidation = SessionConsolidator(
            self.launch, self.sessions, ModelFactory(self.launch), self.path, dry_run=self.dry_run
        )
        found = asyncio.run(consolidation.run(self.sessions.find(session)))
        tally, would = found.tally, "would be " if self.dry_run else ""
        lines = [f"{tally.created} entries {would}created, {tally.updated} updated, {tally.archived} archived"]
        lines += [tally.words] if tally.words else []
        lines += [line for before, after in found.changes for line in format_change(before, after)]
        row = {**to_builtins(tally), "entries": [to_builtins(after) for _, after in found.changes]}
        return self.show_rows([row], lines)

    def show_rows(self, rows: Sequence[Any], lines: Iterable[str], *, nothing: str = "") -> int:
        parts = show_lines(part for line in lines for part in line.split("\n"))
        return self.write(rows, parts, nothing=nothing)

    def find_version(self, versions: Sequence[KnowledgeEntry], version: str | None) -> KnowledgeEntry:
        """Raises UsageError."""
        if version is None:
            return versions[-1]
        at = parse_number("VERSION", version)
        for entry in versions:
            if entry.version == at:
                return entry
        raise UsageError(f"{versions[0].slug!r} has no version {at} (versions: 1 to {versions[-1].version})")


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
    old, new = ([] if entry is None else format_content(entry) for entry in (before, after))
    one, other = (f"{after.slug} version {entry.version}" if entry else "nothing" for entry in (before, after))
    return list(difflib.unified_diff(old, new, one, other, lineterm="", n=1))


def format_content(entry: KnowledgeEntry) -> list[str]:
    if entry.archived:
        return []
    fields = [f"title: {entry.title}", f"parent: {entry.parent or ''}", f"links: {', '.join(entry.links)}"]
    return [*fields, *entry.body.split("\n")]


class ConsolidationResult(Struct, frozen=True, kw_only=True):
    """The report, and each changed entry before and after."""

    tally: ConsolidationReport
    changes: list[tuple[KnowledgeEntry | None, KnowledgeEntry]]


class SessionConsolidator:
    def __init__(
        self, launch: LaunchContext, sessions: SessionStores, models: ModelFactory, path: Path, *, dry_run: bool
    ) -> None:
        self._launch = launch
        self._sessions = sessions
        self._models = models
        self._path = path
        self._dry_run = dry_run

    async def run(self, session_id: str) -> ConsolidationResult:
        """Raises UsageError, SessionError."""
        if not self._sessions.store(session_id).exists(session_id):
            raise UnknownSession(session_id)
        choice, tallies = self._model_ref(), [ConsolidationReport()]
        access = ModelPool(self._models.open)
        clock = self._launch.clock.monotonic
        budget = SpendingLimits.from_options(resolve_options(self._launch))
        ledger = Ledger(self._models.prices(), budget, clock)
        side_query = SideQuery(access, ModelSelection(choice), choice, ledger, SessionIdentity(session_id))

        async def ask(system: str, messages: list[Json], tools: list[Json]) -> list[Json]:
            return await side_query.converse(choice, system, messages, tools)

        database = memory.open_database(self._path, dry_run=self._dry_run)
        keeper = memory.open_memory(self._launch, self._sessions.store, session_id, database)
        before = {entry.slug: entry for entry in keeper.tree.entries(archived=True)}
        try:
            with self._record_decisions(session_id) as decide:
                await keeper.consolidate(ask, decide, tallies.append)
        except ModelError as exc:
            raise SessionError(f"the model {choice.display_name} could not be called: {exc}") from None
        finally:
            await access.close()
        after = keeper.tree.entries(archived=True)
        return ConsolidationResult(
            tally=tallies[-1],
            changes=[(before.get(entry.slug), entry) for entry in after if before.get(entry.slug) != entry],
        )

    def _model_ref(self) -> ModelRef:
        """Raises UsageError."""
        own, policy = self._models.resolve(self._models.name()), memory.make_policy(self._launch)
        choice = policy.choose_curator(own, self._models.small_name(), self._models.resolve)
        if choice is None:
            raise UsageError(
                f"{own.display_name} is not a real model: choose one with --model, or memory.model in settings"
            )
        return choice

    @contextmanager
    def _record_decisions(self, session_id: str) -> Iterator[DecideCall]:
        """Record decisions in the session's log, which is locked meanwhile. A dry run records nothing."""
        if self._dry_run:
            yield lambda *call: None
            return
        log = self._sessions.store(session_id).open(session_id)
        try:
            seq = max((entry.seq for entry in log.entries()), default=-1)

            def decide(id: str, tool: str, input: Json) -> None:
                nonlocal seq
                seq += 1
                record = curator_decision(id, tool, input_digest(input), CURATOR)
                log.append(LogEntry(seq=seq, kind="permission", at=self._launch.clock.now(), message=record))

            yield decide
        finally:
            log.close()
