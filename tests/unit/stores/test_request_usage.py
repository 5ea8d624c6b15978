"""What each request read from the prompt cache, and why it missed something."""

from __future__ import annotations

from typing import Any

import pytest

from parley.stores.base import Entry
from parley.stores.request_usage import FIRST, UNKNOWN, RequestUsage, list_requests

MODEL = "claude-sonnet-4-5"


def answer(number: int, read: int, written: int, *, minute: int = 0, model: str = MODEL, hour: int = 0) -> list[Entry]:
    """A finished answer, as the log has it."""
    usage = {"input_tokens": 3, "cache_read_input_tokens": read, "cache_creation_input_tokens": written}
    usage_of_hour: dict[str, Any] = {"cache_creation": {"ephemeral_1h_input_tokens": hour}}
    at = f"2026-11-19T12:{minute:02}:00.000Z"
    block = {"type": "assistant", "message": {"id": f"m{number}", "model": model, "usage": {"input_tokens": 1}}}
    ending = {"id": f"m{number}", "usage": usage | usage_of_hour}
    return [Entry(seq=0, kind="assistant", at=at, message=block), Entry(seq=0, kind="usage", at=at, message=ending)]


def event(kind: str, subtype: str = "") -> list[Entry]:
    return [Entry(seq=0, kind=kind, at="", message={"subtype": subtype})]


def listed(*parts: list[Entry]) -> list[RequestUsage]:
    return [*list_requests(entry for part in parts for entry in part)]


def test_each_request_has_the_figures_of_its_last_entry() -> None:
    first, second = listed(answer(1, 0, 5000), answer(2, 5000, 200))

    assert (first.read, first.written, first.fresh, first.missed, first.reason) == (0, 5000, 3, 0, FIRST)
    assert (second.read, second.written, second.missed, second.reason) == (5000, 200, 0, "")


@pytest.mark.parametrize(
    ("between", "later", "reason"),
    [
        (event("system", "compact_boundary"), {}, "the conversation was compacted"),
        (event("results_removed"), {}, "old tool results were removed"),
        (event("tools"), {}, "the list of tools changed"),
        ([], {"model": "other"}, f"another model ({MODEL} before)"),
        ([], {"minute": 12}, "expired: 12 minutes had passed"),
        ([], {}, UNKNOWN),
    ],
)
def test_a_miss_has_a_reason(between: list[Entry], later: dict[str, Any], reason: str) -> None:
    _, second = listed(answer(1, 0, 5000), between, answer(2, 2000, 3000, **later))

    assert (second.missed, second.reason) == (3000, reason)


def test_a_prefix_that_was_written_for_an_hour_does_not_expire_after_minutes() -> None:
    _, second = listed(answer(1, 0, 5000, hour=5000), answer(2, 0, 5000, minute=12))

    assert second.reason == UNKNOWN
