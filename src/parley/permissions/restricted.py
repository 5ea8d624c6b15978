"""The policy of a restricted session: file tools stay inside its working directories, whatever the rules allow.

See also: which tools such a session has (compose/tools.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from parley.permissions.base import Decision, Deny, InvalidUpdate, Policy, ToolRequest
from parley.permissions.wrapped import WrappedPolicy
from parley.protocol.base import Json
from parley.tools.catalog import FILE_EFFECTS, find_traits
from parley.workspace.base import Scope

OUTSIDE = "The session is restricted to its working directories"


class RestrictedPolicy(WrappedPolicy):
    def __init__(self, policy: Policy, roots: Iterable[str]) -> None:
        super().__init__(policy)
        self._roots = tuple(os.path.realpath(root) for root in roots)

    def decide(self, request: ToolRequest, mode: str) -> Decision:
        decision = super().decide(request, mode)
        is_exempt = find_traits(request.tool).effect not in FILE_EFFECTS or request.runs_elsewhere
        if is_exempt or isinstance(decision, Deny) or self._contains(decision.scope):
            return decision
        text = f"{request.tool} was denied: this session is restricted to its working directories."
        return Deny(message=text, source="mode", reason=OUTSIDE, reason_type="workingDir")

    def _contains(self, scope: Scope) -> bool:
        """Whether every file of a call is in the working directories."""
        paths = (*scope.files, *scope.folders)
        return not scope.anywhere and all(self._is_inside(os.path.realpath(path)) for path in paths)

    def _is_inside(self, path: str) -> bool:
        return any(path == root or path.startswith(root.rstrip("/") + "/") for root in self._roots)

    def update(self, updates: Sequence[Json], *, may_bypass: bool = False) -> str | None:
        from parley.permissions.updates import AddDirectories, parse_updates

        for update in parse_updates(updates):
            for folder in update.directories if isinstance(update, AddDirectories) else ():
                path = os.path.realpath(os.path.join(self._roots[0], os.path.expanduser(folder)))
                if not self._is_inside(path):
                    raise InvalidUpdate(
                        f"{folder!r:.200} is outside the directories that this session is restricted to"
                    )
        return super().update(updates, may_bypass=False)
