"""A policy around another one: what a subclass does not decide itself is passed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parley.permissions.base import Decision, PathsAndHosts, Policy, ToolRequest
from parley.protocol.base import Json
from parley.settings.base import MergedSettings


class WrappedPolicy:
    def __init__(self, policy: Policy) -> None:
        self._inner = policy

    def decide(self, request: ToolRequest, mode: str) -> Decision:
        return self._inner.decide(request, mode)

    def is_hidden(self, path: str) -> bool:
        return self._inner.is_hidden(path)

    def update(self, updates: Sequence[Json], *, may_bypass: bool = False) -> str | None:
        return self._inner.update(updates, may_bypass=may_bypass)

    def apply_settings(self, merged: MergedSettings) -> None:
        self._inner.apply_settings(merged)

    def add_server_rules(self, server: str, rules: Mapping[str, str]) -> None:
        self._inner.add_server_rules(server, rules)

    def drop_server_rules(self, server: str) -> None:
        self._inner.drop_server_rules(server)

    def list_folders(self) -> tuple[str, ...]:
        return self._inner.list_folders()

    def list_rules(self) -> Json:
        return self._inner.list_rules()

    def list_paths_and_hosts(self) -> PathsAndHosts:
        return self._inner.list_paths_and_hosts()
