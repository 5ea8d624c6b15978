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

from parley.engine.approval.input_digest import digest
from parley.engine.context.history import Said, tokens
from parley.engine.context.summary import block_text
from parley.errors import ModelError, SessionError, UsageError
from parley.memory.base import Keeper, Policy, Tally
from parley.models.catalog import PUPPETS, Choice, resolve
from parley.protocol.base import UNSET, Json
from parley.protocol.messages.dialects import Consolidation

if TYPE_CHECKING:
    from parley.engine.session.session import Session

HEAVIEST_BLOCK_TOKENS = 200
"""A long result does not make a turn worth remembering by itself."""
MOST_DOUBLINGS = 6
INTERRUPTED = "It was interrupted; what is left waits for the next time."
TOO_LONG = "Its time was up; what is left waits for the next time."


class Remembering:
    def __init__(self, session: Session, make_keeper: Callable[[], Keeper]) -> None:
        self._session = session
        self._make_keeper = make_keeper
        session.setup.tool_context.in_view = self._in_view
        self._task: asyncio.Task[None] | None = None
        self._again = False
        """Whether more was said, and is to be looked through, since the one that runs began."""
        self.awaited = asyncio.Event()
        """Set when nothing else is left to be done."""
        self._progress: int | None = None
        self._failures = 0
        """In a row."""

    @cached_property
    def keeper(self) -> Keeper:
        return self._make_keeper()

    def _in_view(self) -> frozenset[tuple[str, int]]:
        return frozenset((self._session.id, line.seq) for line in self._session.record.history.lines())

    # When.

    def turn_ended(self) -> None:
        """What is too little by itself waits for more; nothing is passed over."""
        policy = self.keeper.policy
        if not policy.consolidates or self._curator() is None:
            return
        # A curator that cannot be asked is not asked after every turn.
        enough = policy.trivial_tokens * 2 ** min(self._failures, MOST_DOUBLINGS)
        if self._pending_tokens() >= enough:
            self.begin()

    def begin(self) -> None:
        """Look through what has not been yet, and tell when that is done."""
        if not self.keeper.policy.consolidates or self._curator() is None:
            return
        if self._task is not None and not self._task.done():
            self._again = True
        elif self._pending_tokens():
            self._task = asyncio.create_task(self._run())

    def _pending_tokens(self) -> int:
        """About what the curator would have to read."""
        try:
            done = self.keeper.progress() if self._progress is None else self._progress
        except SessionError as flaw:
            self._session.setup.complain(str(flaw))
            return 0
        self._progress, pending = done, 0
        for line in reversed(self._session.record.history.lines()):
            if line.seq <= done:
                break
            pending += 0 if line.distilled else read_tokens(line)
        return pending

    def stop(self) -> None:
        """Give up the one that runs; its line is told all the same."""
        self._again = False
        if self._task is not None:
            self._task.cancel()

    async def settled(self, ceiling_seconds: float | None) -> None:
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
        last = Tally()

        def note(tally: Tally) -> None:
            nonlocal last
            last = tally

        words = ""
        try:
            async with asyncio.timeout(self.keeper.policy.max_seconds):
                await self.keeper.consolidate(self._ask, self._decide, note)
        except asyncio.CancelledError:
            words = INTERRUPTED
            raise
        except TimeoutError:
            words = TOO_LONG
        except (ModelError, SessionError, UsageError) as flaw:
            self._failures += 1
            words = f"It failed: {flaw}"
        except Exception as bug:  # a fault of ours costs this consolidation, not the session
            self._session.setup.complain("".join(traceback.format_exception(bug)))
            self._failures += 1
            words = f"It failed: internal error: {type(bug).__name__}: {bug}"
        else:
            self._failures = 0
        finally:
            self._progress = None
            self._tell(last, words)
        if self._again and not words:
            self._again = False
            self._task = asyncio.create_task(self._run())

    def _tell(self, tally: Tally, words: str) -> None:
        said = " ".join(filter(None, (tally.words, words)))
        self._session.tell(
            Consolidation(
                entries_created=tally.created,
                entries_updated=tally.updated,
                entries_archived=tally.archived,
                summary=said or UNSET,
            )
        )

    async def _ask(self, system: str, messages: list[Json], tools: list[Json]) -> list[Json]:
        """Raises ModelError."""
        choice = self._curator()
        assert choice is not None
        return await self._session.errand.converse(choice, system, messages, tools)

    def _decide(self, id: str, tool: str, input: Json) -> None:
        """Nothing runs without a recorded decision. Raises SessionError."""
        self._session.record.note("permission", decision(id, tool, digest(input), self._session.mode))

    def _curator(self) -> Choice | None:
        return curator_for(self.keeper.policy, self._session.conversation.model, self._session.setup.small_model)


def curator_for(policy: Policy, own: Choice, small: str) -> Choice | None:
    """Who looks through it. A puppet says what it was told to: it is asked only if it is named for this."""
    if policy.model is not None:
        return resolve(policy.model)
    if own.adapter == "anthropic":
        return resolve(small)
    return None if own.adapter in PUPPETS else own


def decision(id: str, tool: str, input_sha256: str, mode: str) -> Json:
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


def read_tokens(line: Said) -> int:
    """About what a reader makes of a line."""
    sizes = ((block.get("type"), tokens(len(block_text(block)))) for block in line.content)
    return sum(size if kind == "text" else min(size, HEAVIEST_BLOCK_TOKENS) for kind, size in sizes)
