"""Short runs of tests/stress/engine/agent_callbacks.py, which goes as far as you like."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stress.engine import agent_callbacks


@pytest.mark.parametrize("kind", agent_callbacks.KINDS)
@pytest.mark.parametrize("place", agent_callbacks.PLACES)
def test_no_callback_about_a_subagent_is_lost_or_asked_twice_and_each_names_its_agent(
    tmp_path: Path, kind: str, place: str
) -> None:
    assert agent_callbacks.scenario(tmp_path, kind=kind, place=place, agents=6, calls=3, seed=1) == []
