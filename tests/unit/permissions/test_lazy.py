"""Permits that open when they are first needed."""

from __future__ import annotations

from parley.permissions.base import Allow, Request
from parley.permissions.lazy import Later
from parley.permissions.paths.filesystem import RealView
from parley.permissions.policy import Book, Given
from parley.settings.base import Merged


def test_nothing_is_opened_before_it_is_needed_and_then_once() -> None:
    opened: list[Book] = []

    def make() -> Book:
        opened.append(Book(Given(cwd="/w", user_root="/home/me", denied=("Read(.env)",)), RealView("/home/me")))
        return opened[-1]

    later = Later(make)
    assert opened == []

    assert isinstance(later.decide(Request(tool="TodoWrite", input={}, cwd="/w"), "default"), Allow)
    assert later.hides("/w/.env")
    assert later.update([{"type": "setMode", "mode": "plan", "destination": "session"}]) == "plan"
    later.settle(Merged())
    assert [row["rule"] for row in later.listed()["rules"]] == ["Read(.env)"]
    assert len(opened) == 1
