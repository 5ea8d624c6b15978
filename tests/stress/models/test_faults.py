"""Short runs of tests/stress/models/broken_streams.py and fault_storm.py, which go as far as you like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parley.engine.ledger import Ledger
from parley.engine.turn.model_call import ModelCall
from tests.stress.models import broken_streams, fault_storm


def twice(method: Callable[..., Any]) -> Callable[..., Any]:
    def both(*words: Any, **fields: Any) -> Any:
        method(*words, **fields)
        return method(*words, **fields)

    return both


def test_a_stream_that_breaks_anywhere_ends_the_turn_once_and_in_time(tmp_path: Path) -> None:
    assert broken_streams.run(tmp_path, streams=4, seed=1, step=23) > 80


@pytest.mark.parametrize(
    ("cls", "method", "law"),
    [(Ledger, "record_call", "each_call_is_paid_for_once"), (ModelCall, "send_block", "nothing_twice")],
)
def test_the_programme_catches_an_engine_that_does_things_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cls: type, method: str, law: str
) -> None:
    monkeypatch.setattr(cls, method, twice(getattr(cls, method)))

    with pytest.raises(broken_streams.Broken, match=law):
        broken_streams.run(tmp_path, streams=1, seed=1, step=100)


async def test_every_fault_leaves_the_executable_with_one_result_a_prompt(tmp_path: Path) -> None:
    assert (await fault_storm.storm(tmp_path, runs=1, parallel=4)).total() == len(fault_storm.FAULTS)
