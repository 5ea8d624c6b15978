"""Who looks after the memory of a session: behind the conversation, and in nobody's way.

    remembering.turn_ended()      something was said: is it enough to be looked through?
    remembering.begin()           look through what has not been yet; returns at once
    remembering.stop()            an interrupt, or the end: what is done by then stays done
    await remembering.settled(ceiling_seconds)

Every consolidation that begins ends with one line that says what it came to, also where that is
nothing, or it failed. What it did not get to is there for the next one.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from parley.engine.approval.input_digest import input_digest
from parley.engine.context.history import HistoryEntry, tokens_from_chars
from parley.engine.context.summary import block_text
from parley.errors import ModelError, SessionError, UsageError
from parley.memory.base import ConsolidationReport, MemoryPolicy, SessionMemory
from parley.models.catalog import FAKE_ADAPTERS, ModelRef, resolve
from parley.protocol.base import UNSET, Json
from parley.protocol.messages.dialects import Consolidation

if TYPE_CHECKING:
    from parley.engine.session.session import Session

HEAVIEST_BLOCK_TOKENS = 200
"""A long result does not make a turn worth remembering by itself."""
MAX_DOUBLINGS = 6
INTERRUPTED = "It was interrupted; what is left waits for the next time."
TOO_LONG = "Its time was up; what is left waits for the next time."


class MemoryWorker:
    def __init__(self, session: Session, open_memory: Callable[[], SessionMemory]) -> None:
        self._session = session
        self._open_memory = open_memory
        session.config.tool_context.in_view = self._visible_entries
        self._task: asyncio.Task[None] | None = None
        self._again = False
        """Whether more was said, and is to be looked through, since the one that runs began."""
        self.awaited = asyncio.Event()
        """Set when nothing else is left to be done."""
        self._progress: int | None = None
        self._failures = 0
        """In a row."""

    @cached_property
    def memory(self) -> SessionMemory:
        return self._open_memory()

    def _visible_entries(self) -> frozenset[tuple[str, int]]:
        return frozenset((self._session.id, line.seq) for line in self._session.journal.history.list_entries())

    # When.

    def turn_ended(self) -> None:
        """What is too little by itself waits for more; nothing is passed over."""
        policy = self.memory.policy
        if not policy.consolidates or self._choose_curator() is None:
            return
        # A curator that cannot be asked is not asked after every turn.
        enough = policy.trivial_tokens * 2 ** min(self._failures, MAX_DOUBLINGS)
        if self._pending_tokens() >= enough:
            self.start()

    def start(self) -> None:
        """Look through what has not been yet, and tell when that is done."""
        if not self.memory.policy.consolidates or self._choose_curator() is None:
            return
        if self._task is not None and not self._task.done():
            self._again = True
        elif self._pending_tokens():
            self._task = asyncio.create_task(self._run())

    def _pending_tokens(self) -> int:
        """About what the curator would have to read."""
        try:
            done = self.memory.progress() if self._progress is None else self._progress
        except SessionError as exc:
            self._session.config.warn(str(exc))
            return 0
        self._progress, pending = done, 0
        for line in reversed(self._session.journal.history.list_entries()):
            if line.seq <= done:
                break
            pending += 0 if line.summaries else entry_tokens(line)
        return pending

    def stop(self) -> None:
        """Give up the one that runs; its line is told all the same."""
        self._again = False
        if self._task is not None:
            self._task.cancel()

    async def wait_idle(self, ceiling_seconds: float | None) -> None:
        """Until nothing is looked through any more, or the time is up."""
        self.awaited.set()
        while self._task is not None and not self._task.done():
            done, _ = await asyncio.wait({self._task}, timeout=ceiling_seconds)
            if not done:
                return

    async def close(self) -> None:
        """Until what runs is over, which is soon."""
        self.stop()
        if self._task is not None:
            await asyncio.wait({self._task})

    # How.

    async def _run(self) -> None:
        last = ConsolidationReport()

        def note(tally: ConsolidationReport) -> None:
            nonlocal last
            last = tally

        words = ""
        try:
            async with asyncio.timeout(self.memory.policy.max_seconds):
                await self.memory.consolidate(self._call_model, self._append_decision, note)
        except asyncio.CancelledError:
            words = INTERRUPTED
            raise
        except TimeoutError:
            words = TOO_LONG
        except (ModelError, SessionError, UsageError) as exc:
            self._failures += 1
            words = f"It failed: {exc}"
        except Exception as exc:  # a fault of ours costs this consolidation, not the session
            self._session.config.warn("".join(traceback.format_exception(exc)))
            self._failures += 1
            words = f"It failed: internal error: {type(exc).__name__}: {exc}"
        else:
            self._failures = 0
        finally:
            self._progress = None
            self._send_report(last, words)
        if self._again and not words:
            self._again = False
            self._task = asyncio.create_task(self._run())

    def _send_report(self, totals: ConsolidationReport, words: str) -> None:
        said = " ".join(filter(None, (totals.words, words)))
        self._session.send(
            Consolidation(
                entries_created=totals.created,
                entries_updated=totals.updated,
                entries_archived=totals.archived,
                summary=said or UNSET,
            )
        )

    async def _call_model(self, system: str, messages: list[Json], tools: list[Json]) -> list[Json]:
        """Raises ModelError."""
        choice = self._choose_curator()
        assert choice is not None
        return await self._session.side_query.converse(choice, system, messages, tools)

    def _append_decision(self, id: str, tool: str, input: Json) -> None:
        """Nothing runs without a recorded decision. Raises SessionError."""
        self._session.journal.append_event(
            "permission", decision_record(id, tool, input_digest(input), self._session.mode)
        )

    def _choose_curator(self) -> ModelRef | None:
        return choose_curator(self.memory.policy, self._session.conversation.model, self._session.config.model.small)


def choose_curator(policy: MemoryPolicy, own: ModelRef, small: str) -> ModelRef | None:
    """Who looks through it. A puppet says what it was told to: it is asked only if it is named for this."""
    if policy.model is not None:
        return resolve(policy.model)
    if own.adapter == "anthropic":
        return resolve(small)
    return None if own.adapter in FAKE_ADAPTERS else own


def decision_record(id: str, tool: str, input_sha256: str, mode: str) -> Json:
    """The record of a call of the curator, which nobody is asked about: its tools reach the memory and nothing else."""
    return {
        "tool_use_id": id,
        "tool": tool,
        "decision": "allow",
        "source": "memory",
        "reason": "The curator changes the memory and nothing else",
        "mode": mode,
        "asked": False,
        "input_sha256": input_sha256,
    }


def entry_tokens(line: HistoryEntry) -> int:
    """About what a reader makes of a line."""
    sizes = ((block.get("type"), tokens_from_chars(len(block_text(block)))) for block in line.content)
    return sum(size if kind == "text" else min(size, HEAVIEST_BLOCK_TOKENS) for kind, size in sizes)
