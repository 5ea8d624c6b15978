"""A policy that opens when it is first used."""

from __future__ import annotations

from parley.compose.permissions import LazyPolicy
from parley.permissions.base import Allow, ToolRequest
from parley.permissions.filesystem import RealFilesystem
from parley.permissions.policy import LaunchRules, SessionPolicy
from parley.settings.base import MergedSettings


def test_nothing_is_opened_before_it_is_needed_and_then_once() -> None:
    opened: list[SessionPolicy] = []

    def make() -> SessionPolicy:
        opened.append(
            SessionPolicy(
                LaunchRules(cwd="/w", user_root="/home/me", denied=("Read(.env)",)), RealFilesystem("/home/me")
            )
        )
        return opened[-1]

    later = LazyPolicy(make)
    assert opened == []

    assert isinstance(later.decide(ToolRequest(tool="TodoWrite", input={}, cwd="/w"), "default"), Allow)
    assert later.is_hidden("/w/.env")
    assert later.update([{"type": "setMode", "mode": "plan", "destination": "session"}]) == "plan"
    later.apply_settings(MergedSettings())
    assert [row["rule"] for row in later.list_rules()["rules"]] == ["Read(.env)"]
    assert len(opened) == 1
