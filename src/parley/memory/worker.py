"""Consolidate the messages of a session into its memory, in the background.

    worker.turn_ended()      starts a consolidation if there is enough new text
    worker.start()           starts one in any case; returns at once
    worker.stop()            cancels it; finished changes stay
    await worker.wait_idle(ceiling_seconds)

Every consolidation ends with one `consolidation` message, also if it changed nothing or failed. What it did
not process is left for the next one.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from functools import cached_property

from parley.engine.approval.request import input_digest
from parley.engine.context.compactor import block_text
from parley.engine.context.conversation import Conversation
from parley.engine.context.history import HistoryEntry, tokens_from_chars
from parley.errors import ModelError, SessionError, UsageError
from parley.memory.base import ConsolidationReport, curator_decision
from parley.memory.session_memory import SessionMemory
from parley.memory.summarizer import Summarizer
from parley.models.catalog import ModelRef
from parley.protocol.base import UNSET, Json
from parley.protocol.messages.dialects import Consolidation

HEAVIEST_BLOCK_TOKENS = 200
"""A long tool result counts for no more than this."""
MAX_DOUBLINGS = 6
INTERRUPTED = "Interrupted; the rest is done next time."
TOO_LONG = "Out of time; the rest is done next time."


class LocalMemoryWorker:
    """Implements `parley.memory.base.MemoryWorker`."""

    def __init__(self, own: Conversation, open_memory: Callable[[], SessionMemory]) -> None:
        self._own = own
        self._open_memory = open_memory
        self._task: asyncio.Task[None] | None = None
        self._again = False
        """More text came since the running consolidation started."""
        self.awaited = asyncio.Event()
        """Set when the session waits for nothing but its memory."""
        self._progress: int | None = None
        self._failures = 0
        """Consecutive failures."""

    @cached_property
    def memory(self) -> SessionMemory:
        return self._open_memory()

    def make_compactor(self, conversation: Conversation) -> Summarizer:
        return Summarizer(conversation, self.memory.policy.summary_model, self.start)

    # Schedule.

    def turn_ended(self) -> None:
        """Start a consolidation if there is enough new text; less waits for more."""
        policy = self.memory.policy
        if not policy.consolidates or self._choose_curator() is None:
            return
        # After failures, wait for more text before the next attempt.
        enough = policy.trivial_tokens * 2 ** min(self._failures, MAX_DOUBLINGS)
        if self._pending_tokens() >= enough:
            self.start()

    def start(self) -> None:
        """Start a consolidation, or repeat the running one when it ends."""
        if not self.memory.policy.consolidates or self._choose_curator() is None:
            return
        if self._task is not None and not self._task.done():
            self._again = True
        elif self._pending_tokens():
            self._task = asyncio.create_task(self._run())

    def _pending_tokens(self) -> int:
        """An estimate of what the curator would read."""
        try:
            done = self.memory.progress() if self._progress is None else self._progress
        except SessionError as exc:
            self._own.config.warn(str(exc))
            return 0
        self._progress, pending = done, 0
        for line in reversed(self._own.journal.history.list_entries()):
            if line.seq <= done:
                break
            pending += 0 if line.summaries else entry_tokens(line)
        return pending

    def stop(self) -> None:
        """Cancel the running consolidation; its report is still sent."""
        self._again = False
        if self._task is not None:
            self._task.cancel()

    async def wait_idle(self, ceiling_seconds: float | None) -> None:
        """Wait for the running consolidation, up to a limit."""
        self.awaited.set()
        while self._task is not None and not self._task.done():
            done, _ = await asyncio.wait({self._task}, timeout=ceiling_seconds)
            if not done:
                return

    async def close(self) -> None:
        """Stop and wait for the end."""
        self.stop()
        if self._task is not None:
            await asyncio.wait({self._task})

    # Consolidation.

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
        except Exception as exc:  # a bug fails this consolidation, not the session
            self._own.config.warn("".join(traceback.format_exception(exc)))
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
        summary = " ".join(filter(None, (totals.words, words)))
        self._own.parts.outbox.send(
            Consolidation(
                entries_created=totals.created,
                entries_updated=totals.updated,
                entries_archived=totals.archived,
                summary=summary or UNSET,
            )
        )

    async def _call_model(self, system: str, messages: list[Json], tools: list[Json]) -> list[Json]:
        """Raises ModelError."""
        choice = self._choose_curator()
        assert choice is not None
        return await self._own.parts.side_query.converse(choice, system, messages, tools)

    def _append_decision(self, id: str, tool: str, input: Json) -> None:
        """Record the decision before the call runs. Raises SessionError."""
        self._own.journal.append_event("permission", curator_decision(id, tool, input_digest(input), self._own.mode()))

    def _choose_curator(self) -> ModelRef | None:
        models = self._own.config.model
        return self.memory.policy.choose_curator(self._own.model, models.small, models.resolve)


def entry_tokens(line: HistoryEntry) -> int:
    """An estimate of what a line is worth to a reader."""
    sizes = ((block.get("type"), tokens_from_chars(len(block_text(block)))) for block in line.content)
    return sum(size if kind == "text" else min(size, HEAVIEST_BLOCK_TOKENS) for kind, size in sizes)
