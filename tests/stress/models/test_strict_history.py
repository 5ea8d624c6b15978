"""A short run of tests/stress/models/strict_history.py, which goes as far as you like."""

from __future__ import annotations

import pytest

from parley.engine.context import conversation, history
from tests.stress.models import strict_history


def test_no_request_is_rejected_and_no_thinking_is_lost() -> None:
    counts = strict_history.run_in_processes(0, 100, seed=1, jobs=2)

    assert counts["requests"] > 1000
    assert (counts["rejected"], counts["dropped"]) == (0, 0), counts


def test_the_program_catches_thinking_that_another_model_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "thinking_owner", lambda name: "anyone")

    assert strict_history.run(0, 10, seed=1)["rejected"] > 0


@pytest.mark.parametrize(("always", "found"), [(True, "rejected"), (False, "dropped")])
def test_the_program_catches_thinking_that_is_always_or_never_sent(
    monkeypatch: pytest.MonkeyPatch, always: bool, found: str
) -> None:
    monkeypatch.setattr(history, "is_readable", lambda binding, digest, reader, unread_seq: always)

    assert strict_history.run(0, 10, seed=1)[found] > 0
