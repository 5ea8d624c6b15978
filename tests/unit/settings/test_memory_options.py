"""The valid keys under `memory`, and what they set."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from parley.memory.base import MemoryPolicy
from parley.settings.base import SettingsLayer
from parley.settings.keys import MEMORY_OBJECT, MemoryKeys, policy_fields
from parley.settings.merge import validate_layer

ALL = {
    "enabled": True,
    "model": "haiku",
    "summaryModel": "sonnet",
    "viewTokens": 50_000,
    "consolidate": False,
    "trivialTokens": 0,
    "pieceTokens": 10,
    "maxCalls": 3,
    "maxSeconds": 60,
}


def test_every_key_sets_what_it_says() -> None:
    assert set(ALL) == {each.encode_name for each in structs.fields(MemoryKeys)}
    assert MEMORY_OBJECT.accepts(ALL)
    assert MemoryPolicy(**policy_fields(ALL)) == MemoryPolicy(
        model="haiku",
        summary_model="sonnet",
        view_tokens=50_000,
        consolidates=False,
        trivial_tokens=0,
        piece_tokens=10,
        max_calls=3,
        max_seconds=60,
    )


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {"modle": "haiku"},
        {"model": ""},
        {"viewTokens": 0},
        {"maxCalls": True},
        {"enabled": 1},
        {"trivialTokens": -1},
    ],
)
def test_what_does_not_fit_is_ignored_with_a_word(wrong: Any) -> None:
    values, problems = validate_layer(SettingsLayer(source="flag", path="given", root="/", values={"memory": wrong}))

    assert values == {}
    assert "memory must be an object with known keys" in problems[0].text
