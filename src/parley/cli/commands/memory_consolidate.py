"""`parley memory consolidate`: consolidate a stored session, or show what that would change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parley.compose import limits, memory
from parley.compose.launch_context import LaunchContext
from parley.compose.models import ModelFactory
from parley.compose.stores import SessionStores
from parley.engine.accounting.ledger import Ledger, SpendingLimits
from parley.engine.approval.request import input_digest
from parley.engine.context.conversation import ModelPool
from parley.engine.session.identity import SessionIdentity
from parley.engine.side.query import QueryModels, SideQuery
from parley.errors import ModelError, SessionError, UnknownSession, UsageError
from parley.memory.base import CURATOR, ConsolidationReport, DecideCall, KnowledgeEntry, curator_decision
from parley.models.catalog import ModelRef
from parley.protocol.base import Json, Struct
from parley.stores.base import Entry as LogEntry


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
        side_query = self._side_query(access, choice, session_id)

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

    def _side_query(self, access: ModelPool, choice: ModelRef, session_id: str) -> SideQuery:
        clock = self._launch.clock.monotonic
        budget = SpendingLimits.from_options(limits.resolve_options(self._launch))
        ledger = Ledger(self._models.prices(), budget, clock)
        models = QueryModels(open=access.open, current=lambda: choice, small=choice)
        return SideQuery(models, ledger, clock, SessionIdentity(session_id))

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
