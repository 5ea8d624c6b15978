"""Permits of a restricted session: tools for files stay inside its working directories, whatever rules allow.

Not here: which tools such a session has at all (compose/tools.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from parley.permissions.base import BadUpdate, Decision, Deny, Permits, Request
from parley.protocol.base import Json
from parley.settings.base import Merged
from parley.workspace.base import Reach

FILE_TOOLS = frozenset({"Read", "Write", "Edit", "NotebookEdit", "Glob", "Grep"})
OUTSIDE = "The session is restricted to its working directories"


class Confined:
    def __init__(self, permits: Permits, roots: Iterable[str]) -> None:
        self._permits = permits
        self._roots = tuple(os.path.realpath(root) for root in roots)

    def decide(self, request: Request, mode: str) -> Decision:
        decision = self._permits.decide(request, mode)
        elsewhere = request.tool not in FILE_TOOLS or request.runs_elsewhere
        if elsewhere or isinstance(decision, Deny) or self._holds(decision.reach):
            return decision
        text = f"{request.tool} was denied: this session is restricted to its working directories."
        return Deny(message=text, source="mode", reason=OUTSIDE, reason_type="workingDir")

    def _holds(self, reach: Reach) -> bool:
        """Whether a call goes no further than our folders."""
        places = (*reach.files, *reach.folders)
        return not reach.anywhere and all(self._is_inside(os.path.realpath(place)) for place in places)

    def _is_inside(self, place: str) -> bool:
        return any(place == root or place.startswith(root.rstrip("/") + "/") for root in self._roots)

    def hides(self, path: str) -> bool:
        return self._permits.hides(path)

    def update(self, updates: Sequence[Json], *, may_bypass: bool = False) -> str | None:
        from parley.permissions.updates import AddDirectories, read_updates

        for update in read_updates(updates):
            for folder in update.directories if isinstance(update, AddDirectories) else ():
                place = os.path.realpath(os.path.join(self._roots[0], os.path.expanduser(folder)))
                if not self._is_inside(place):
                    raise BadUpdate(f"{folder!r:.200} is outside of the directories that this session is restricted to")
        return self._permits.update(updates, may_bypass=False)

    def settle(self, merged: Merged) -> None:
        self._permits.settle(merged)

    def listed(self) -> Json:
        return self._permits.listed()
