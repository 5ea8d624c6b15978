"""Permits that are opened when they are first asked: a turn without a tool call needs none, and starts sooner."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parley.permissions.base import Decision, Permits, Request
from parley.protocol.base import Json
from parley.settings.base import Merged


class Later:
    def __init__(self, make: Callable[[], Permits]) -> None:
        self._make = make
        self._made: Permits | None = None

    def open(self) -> Permits:
        if self._made is None:
            self._made = self._make()
        return self._made

    def decide(self, request: Request, mode: str) -> Decision:
        return self.open().decide(request, mode)

    def hides(self, path: str) -> bool:
        return self.open().hides(path)

    def update(self, updates: Sequence[Json], *, may_bypass: bool = False) -> str | None:
        return self.open().update(updates, may_bypass=may_bypass)

    def settle(self, merged: Merged) -> None:
        self.open().settle(merged)

    def listed(self) -> Json:
        return self.open().listed()
