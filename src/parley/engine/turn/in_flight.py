"""How far the calls of a turn have come: which have begun to run, and what those gave that are not over yet.

A call that ran has happened, whoever is cut off before all have heard of it: `take` has how it ended.
"""

from __future__ import annotations

import msgspec

from parley.engine.turn.tool_outcome import Called

CUT_OFF = "the turn was cut off before the hooks had seen it that must see it"


class Course:
    def __init__(self) -> None:
        self._begun: set[str] = set()
        self._ran: dict[str, Called] = {}
        self._guarded: set[str] = set()
        """Calls whose output is not told before hooks have seen it that must not fail."""

    @property
    def has_begun(self) -> bool:
        """Whether a call has begun to run, and is not over with all that hears of it."""
        return bool(self._begun)

    def guard(self, call: str) -> None:
        self._guarded.add(call)

    def begin(self, call: str) -> None:
        self._begun.add(call)

    def ran(self, call: str, called: Called) -> None:
        """It gave this, and hooks have still to hear of it."""
        self._ran[call] = called

    def leave(self, call: str) -> None:
        """It is over, or was cut off."""
        self._begun.discard(call)

    def end(self, call: str) -> None:
        """It is over, and all have heard of it."""
        self._ran.pop(call, None)
        self._guarded.discard(call)

    def take(self, call: str) -> Called | None:
        """What a call gave that ran and was cut off.

        A hook that was cut off counts as one that failed: where it must not fail, the output is withheld.
        """
        called, is_guarded = self._ran.pop(call, None), call in self._guarded
        self._guarded.discard(call)
        if called is None or not is_guarded or called.result.is_error:
            return called
        from parley.engine.hooks.tool_hooks import withheld

        return msgspec.structs.replace(called, result=withheld(CUT_OFF))
