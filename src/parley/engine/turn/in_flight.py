"""How far the calls of a turn have come: which have begun to run, and what those gave that are not over yet.

A call that ran has happened, whoever is cut off before all have heard of it: `take` has how it ended.
"""

from __future__ import annotations

import msgspec

from parley.engine.turn.tool_outcome import ToolOutcome

CUT_OFF = "the turn was cut off before the hooks had seen it that must see it"


class InFlightCalls:
    def __init__(self) -> None:
        self._started: set[str] = set()
        self._ran: dict[str, ToolOutcome] = {}
        self._guarded: set[str] = set()
        """Calls whose output is not told before hooks have seen it that must not fail."""

    @property
    def has_started(self) -> bool:
        """Whether a call has begun to run, and is not over with all that hears of it."""
        return bool(self._started)

    def guard(self, call: str) -> None:
        self._guarded.add(call)

    def start(self, call: str) -> None:
        self._started.add(call)

    def record_output(self, call: str, outcome: ToolOutcome) -> None:
        """It gave this, and hooks have still to hear of it."""
        self._ran[call] = outcome

    def discard(self, call: str) -> None:
        """It is over, or was cut off."""
        self._started.discard(call)

    def finish(self, call: str) -> None:
        """It is over, and all have heard of it."""
        self._ran.pop(call, None)
        self._guarded.discard(call)

    def pop_output(self, call: str) -> ToolOutcome | None:
        """What a call gave that ran and was cut off.

        A hook that was cut off counts as one that failed: where it must not fail, the output is withheld.
        """
        outcome, is_guarded = self._ran.pop(call, None), call in self._guarded
        self._guarded.discard(call)
        if outcome is None or not is_guarded or outcome.output.is_error:
            return outcome
        from parley.engine.hooks.tool_hooks import withhold_output

        return msgspec.structs.replace(outcome, output=withhold_output(CUT_OFF))
