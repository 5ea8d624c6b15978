"""How much a model may think, in the terms of the model."""

from __future__ import annotations

import pytest

from parley.engine.models.thinking import Wish, thinking_field
from parley.models.catalog import Facts
from parley.protocol.base import Json

ADAPTIVE: Json = {"type": "adaptive"}


def budget(tokens: int, **more: object) -> Json:
    return {"type": "enabled", "budget_tokens": tokens, **more}


@pytest.mark.parametrize(
    ("thinks", "wish", "field"),
    [
        ("adaptive", Wish(), ADAPTIVE),
        ("adaptive", Wish(tokens=5000), ADAPTIVE),
        ("adaptive", Wish(mode="adaptive"), ADAPTIVE),
        ("adaptive", Wish(mode="enabled"), ADAPTIVE),
        ("adaptive", Wish(display="omitted"), {**ADAPTIVE, "display": "omitted"}),
        ("adaptive", Wish(mode="disabled"), None),
        ("adaptive", Wish(tokens=0), None),
        ("budget", Wish(), budget(31_999)),
        ("budget", Wish(tokens=5000), budget(5000)),
        ("budget", Wish(tokens=5000, display="summarized"), budget(5000, display="summarized")),
        ("budget", Wish(tokens=1), budget(1024)),
        ("budget", Wish(tokens=10**6), budget(31_999)),
        ("budget", Wish(mode="disabled", tokens=5000), None),
        ("budget", Wish(tokens=0), None),
        ("never", Wish(), None),
        ("never", Wish(tokens=5000, mode="enabled", display="omitted"), None),
    ],
)
def test_a_wish_is_put_in_the_terms_of_the_model(thinks: str, wish: Wish, field: Json | None) -> None:
    assert thinking_field(wish, Facts(thinks=thinks), 32_000) == field


@pytest.mark.parametrize(
    ("max_tokens", "field"), [(500, None), (1024, None), (1025, budget(1024)), (2000, budget(1999))]
)
def test_a_budget_always_leaves_room_for_an_answer(max_tokens: int, field: Json | None) -> None:
    assert thinking_field(Wish(tokens=5000), Facts(thinks="budget"), max_tokens) == field
