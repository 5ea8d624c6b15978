"""A policy that is opened at the first use, so a turn without tool calls starts sooner.

A session that starts with rules or working directories opens it at once (`compose/permissions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from parley.permissions.base import Decision, Policy, ToolRequest
from parley.protocol.base import Json
from parley.settings.base import MergedSettings


class LazyPolicy:
    def __init__(self, factory: Callable[[], Policy]) -> None:
        self._factory = factory
        self._policy: Policy | None = None

    def open(self) -> Policy:
        if self._policy is None:
            self._policy = self._factory()
        return self._policy

    def decide(self, request: ToolRequest, mode: str) -> Decision:
        return self.open().decide(request, mode)

    def is_hidden(self, path: str) -> bool:
        return self.open().is_hidden(path)

    def update(self, updates: Sequence[Json], *, may_bypass: bool = False) -> str | None:
        return self.open().update(updates, may_bypass=may_bypass)

    def apply_settings(self, merged: MergedSettings) -> None:
        self.open().apply_settings(merged)

    def add_server_rules(self, server: str, rules: Mapping[str, str]) -> None:
        self.open().add_server_rules(server, rules)

    def drop_server_rules(self, server: str) -> None:
        if self._policy is not None:
            self._policy.drop_server_rules(server)

    def list_folders(self) -> tuple[str, ...]:
        return () if self._policy is None else self._policy.list_folders()

    def list_rules(self) -> Json:
        return self.open().list_rules()
