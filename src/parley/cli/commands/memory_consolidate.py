"""Having a session looked through from the command line, or finding out what would come of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parley.compose import limits, memory
from parley.compose.launch_context import Basis
from parley.compose.models import Models
from parley.compose.stores import Sessions
from parley.engine.accounting.ledger import Ledger
from parley.engine.approval.input_digest import digest
from parley.engine.memory.worker import curator_for, decision
from parley.engine.models.pool import Access
from parley.engine.side.query import Errand
from parley.errors import ModelError, SessionError, UnknownSession, UsageError
from parley.memory.base import CURATOR, Decide, Entry, Tally
from parley.models.catalog import Choice, resolve
from parley.protocol.base import Json, Struct
from parley.stores.base import Entry as LogEntry


class Found(Struct, frozen=True, kw_only=True):
    """What came of it, and each entry before and after."""

    tally: Tally
    changes: list[tuple[Entry | None, Entry]]


class Curation:
    def __init__(self, basis: Basis, sessions: Sessions, models: Models, path: Path, *, dry_run: bool) -> None:
        self._basis = basis
        self._sessions = sessions
        self._models = models
        self._path = path
        self._dry_run = dry_run

    async def run(self, session_id: str) -> Found:
        """Raises UsageError, SessionError."""
        if not self._sessions.store(session_id).exists(session_id):
            raise UnknownSession(session_id)
        choice, tallies = self._choice(), [Tally()]
        access = Access(self._models.open)
        errand = self._errand(access, choice, session_id)

        async def ask(system: str, messages: list[Json], tools: list[Json]) -> list[Json]:
            return await errand.converse(choice, system, messages, tools)

        database = memory.opened(self._path, rehearsed=self._dry_run)
        keeper = memory.keeper_of(self._basis, self._sessions, session_id, database)
        before = {entry.slug: entry for entry in keeper.tree.entries(archived=True)}
        try:
            with self._recorded(session_id) as decide:
                await keeper.consolidate(ask, decide, tallies.append)
        except ModelError as flaw:
            raise SessionError(f"the model {choice.shown} could not be asked: {flaw}") from None
        finally:
            await access.close()
        after = keeper.tree.entries(archived=True)
        return Found(
            tally=tallies[-1],
            changes=[(before.get(entry.slug), entry) for entry in after if before.get(entry.slug) != entry],
        )

    def _choice(self) -> Choice:
        """Raises UsageError."""
        own, policy = resolve(self._models.name()), memory.policy(self._basis)
        choice = curator_for(policy, own, self._models.small())
        if choice is None:
            raise UsageError(f"{own.shown} is no model: name one with --model, or memory.model in settings")
        return choice

    def _errand(self, access: Access, choice: Choice, session_id: str) -> Errand:
        return Errand(
            open_model=access.open,
            current=lambda: choice,
            small=choice,
            ledger=Ledger(self._models.prices(), limits.limits(self._basis).budget, self._basis.stamp.monotonic),
            clock=self._basis.stamp.monotonic,
            session_id=session_id,
        )

    @contextmanager
    def _recorded(self, session_id: str) -> Iterator[Decide]:
        """Decisions go into the session's log, which nobody else may hold meanwhile. A dry run decides on nothing."""
        if self._dry_run:
            yield lambda *call: None
            return
        log = self._sessions.store(session_id).open(session_id)
        try:
            seq = max((entry.seq for entry in log.entries()), default=-1)

            def decide(id: str, tool: str, input: Json) -> None:
                nonlocal seq
                seq += 1
                record = decision(id, tool, digest(input), CURATOR)
                log.append(LogEntry(seq=seq, kind="permission", at=self._basis.stamp.now(), message=record))

            yield decide
        finally:
            log.close()
