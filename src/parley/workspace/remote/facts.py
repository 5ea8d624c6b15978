"""Facts about files of a remote workspace, for decisions that are made by the engine.

A decision needs facts that are known only while it is made: which symlinks lead where, what a repository configures.
To ask for each would take a round trip each. So the decision is first made on guesses ("no symlink", "does not exist"),
which collects its questions. All of them are asked in one call, and the decision is made again with the answers, until
it asks nothing new: two or three round trips for a usual command. No decision is used that was based on a guess.

    reader.run(decide)                  # in a thread
    await reader.prepare(decide)        # on a loop; afterwards the same task decides without waiting

See also: who asks: permissions/filesystem.py, settings/tree.py; who answers: compose/workspace/server.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

from parley.workspace.remote.calls import MAX_FACTS, Fact, FindFacts
from parley.workspace.remote.link import WorkspaceLink, WorkspaceUnavailable

T = TypeVar("T")
MAX_PASSES = 12
"""After so many, each further question is asked at once."""
ASK_SECONDS = 5.0
VALID_SECONDS = 2.0
"""How long prepared facts are used. The server checks the opened file in any case."""


class FactView:
    """The answers for one decision, and what it still has to ask."""

    def __init__(self) -> None:
        self.known: dict[Fact, Any] = {}
        self.missing: dict[Fact, None] = {}
        self.asks_at_once = False


class FactReader:
    """Reads facts of one workspace."""

    def __init__(self, link: WorkspaceLink) -> None:
        self._link = link
        self._view: ContextVar[FactView | None] = ContextVar("workspace_facts", default=None)
        self._prepared: ContextVar[tuple[dict[Fact, Any], float]] = ContextVar("prepared_facts", default=({}, 0.0))
        """Facts that the task has collected, and until when they are used."""

    def get(self, kind: str, path: str, limit: int, guess: Any) -> Any:
        """A fact; the guess while a decision collects its questions. Raises WorkspaceUnavailable."""
        fact, view = (kind, path, limit), self._view.get()
        if view is None:
            return self._ask([fact])[0]
        if fact in view.known:
            return view.known[fact]
        if view.asks_at_once:
            view.known[fact] = self._ask([fact])[0]
            return view.known[fact]
        view.missing[fact] = None
        return guess

    def run(self, work: Callable[[], T]) -> T:
        """Do the work with facts: those that are prepared, and others. Raises what it raises, WorkspaceUnavailable."""
        view, (prepared, valid_until) = FactView(), self._prepared.get()
        if time.monotonic() < valid_until:
            view.known.update(prepared)
        for _ in range(MAX_PASSES):
            attempt = self._try(view, work)
            if attempt is not None:
                return attempt()
            asked = take_missing(view)
            view.known.update(zip(asked, self._ask(asked), strict=True))
        view.asks_at_once = True
        with self._using(view):
            return work()

    async def prepare(self, work: Callable[[], object]) -> None:
        """Collect the facts for the work, so that the calling task can do it without waiting.

        Raises WorkspaceUnavailable."""
        view = FactView()
        for _ in range(MAX_PASSES):
            if self._try(view, work) is not None:
                break
            asked = take_missing(view)
            answers = await self._link.request(FindFacts(facts=asked))
            view.known.update(zip(asked, answers, strict=True))
        self._prepared.set((view.known, time.monotonic() + VALID_SECONDS))

    def _try(self, view: FactView, work: Callable[[], T]) -> Callable[[], T] | None:
        """Do the work on what is known. Returns its outcome; None if it used a guess."""
        error: Exception | None = None
        result: Any = None
        with self._using(view):
            try:
                result = work()
            except Exception as exc:
                error = exc
        if view.missing:
            return None

        def outcome() -> T:
            if error is not None:
                raise error
            found: T = result
            return found

        return outcome

    @contextlib.contextmanager
    def _using(self, view: FactView) -> Iterator[None]:
        before = self._view.set(view)
        try:
            yield
        finally:
            self._view.reset(before)

    def _ask(self, facts: list[Fact]) -> list[Any]:
        if not self._link.is_connected:  # the engine's loop may be waiting
            raise WorkspaceUnavailable(f"{self._link.name} is not connected")
        answers: list[Any] = self._link.call(FindFacts(facts=facts), ASK_SECONDS)
        return answers


def take_missing(view: FactView) -> list[Fact]:
    asked = list(view.missing)[:MAX_FACTS]
    view.missing.clear()
    return asked
