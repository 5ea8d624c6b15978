"""How much a model may think, in the terms of the model."""

from __future__ import annotations

import pytest

from parley.engine.context.conversation import ThinkingOptions, choose_effort, thinking_field
from parley.models.catalog import EFFORTS, ModelInfo
from parley.protocol.base import Json

ADAPTIVE: Json = {"type": "adaptive"}


def budget(tokens: int, **more: object) -> Json:
    return {"type": "enabled", "budget_tokens": tokens, **more}


@pytest.mark.parametrize(
    ("thinks", "wish", "field"),
    [
        ("adaptive", ThinkingOptions(), ADAPTIVE),
        ("adaptive", ThinkingOptions(budget_tokens=5000), ADAPTIVE),
        ("adaptive", ThinkingOptions(mode="adaptive"), ADAPTIVE),
        ("adaptive", ThinkingOptions(mode="enabled"), ADAPTIVE),
        ("adaptive", ThinkingOptions(display="omitted"), {**ADAPTIVE, "display": "omitted"}),
        ("adaptive", ThinkingOptions(mode="disabled"), None),
        ("adaptive", ThinkingOptions(budget_tokens=0), None),
        ("budget", ThinkingOptions(), budget(31_999)),
        ("budget", ThinkingOptions(budget_tokens=5000), budget(5000)),
        ("budget", ThinkingOptions(budget_tokens=5000, display="summarized"), budget(5000, display="summarized")),
        ("budget", ThinkingOptions(budget_tokens=1), budget(1024)),
        ("budget", ThinkingOptions(budget_tokens=10**6), budget(31_999)),
        ("budget", ThinkingOptions(mode="disabled", budget_tokens=5000), None),
        ("budget", ThinkingOptions(budget_tokens=0), None),
        ("effort", ThinkingOptions(), ADAPTIVE),
        ("effort", ThinkingOptions(mode="adaptive", display="omitted"), {**ADAPTIVE, "display": "omitted"}),
        ("effort", ThinkingOptions(budget_tokens=5000), budget(5000)),
        ("never", ThinkingOptions(), None),
        ("never", ThinkingOptions(budget_tokens=5000, mode="enabled", display="omitted"), None),
    ],
)
def test_a_thinking_option_is_translated_for_the_model(thinks: str, wish: ThinkingOptions, field: Json | None) -> None:
    assert thinking_field(wish, ModelInfo(thinking=thinks), 32_000) == field


@pytest.mark.parametrize(
    "wish", [ThinkingOptions(mode="disabled", budget_tokens=5000), ThinkingOptions(budget_tokens=0)]
)
@pytest.mark.parametrize(
    ("way", "field"),
    [
        ("omitted", None),
        ("always_on", None),
        ("disabled", {"type": "disabled"}),
        ("between_tools", {"type": "between_tools"}),
    ],
)
def test_thinking_is_turned_off_in_the_way_of_the_model(wish: ThinkingOptions, way: str, field: Json | None) -> None:
    assert thinking_field(wish, ModelInfo(thinking_off=way), 32_000) == field


NO_XHIGH, NO_MAX = ("low", "medium", "high", "max"), ("low", "medium", "high")


@pytest.mark.parametrize(
    ("wanted", "highest", "wish", "known", "effort"),
    [
        ("max", None, ThinkingOptions(), ModelInfo(efforts=EFFORTS), "max"),
        ("max", "medium", ThinkingOptions(), ModelInfo(efforts=EFFORTS), "medium"),
        ("xhigh", None, ThinkingOptions(), ModelInfo(efforts=NO_XHIGH), "high"),
        ("max", None, ThinkingOptions(), ModelInfo(efforts=NO_MAX), "high"),
        ("max", None, ThinkingOptions(), ModelInfo(), None),
        (None, None, ThinkingOptions(), ModelInfo(efforts=EFFORTS), None),
        (None, None, ThinkingOptions(budget_tokens=1), ModelInfo(efforts=EFFORTS), "low"),
        (None, None, ThinkingOptions(budget_tokens=10_000), ModelInfo(efforts=EFFORTS), "medium"),
        (None, None, ThinkingOptions(budget_tokens=31_999), ModelInfo(efforts=EFFORTS), "high"),
        ("max", None, ThinkingOptions(budget_tokens=1), ModelInfo(efforts=EFFORTS), "max"),
        (None, None, ThinkingOptions(budget_tokens=1), ModelInfo(thinking="budget", efforts=NO_MAX), None),
        ("max", None, ThinkingOptions(budget_tokens=0), ModelInfo(efforts=EFFORTS, thinking_off="disabled"), "high"),
        ("max", None, ThinkingOptions(budget_tokens=0), ModelInfo(efforts=EFFORTS), "max"),
    ],
)
def test_the_effort_is_one_that_the_model_takes(
    wanted: str | None, highest: str | None, wish: ThinkingOptions, known: ModelInfo, effort: str | None
) -> None:
    assert choose_effort(wanted, highest, wish, known) == effort


@pytest.mark.parametrize(
    ("max_tokens", "field"), [(500, None), (1024, None), (1025, budget(1024)), (2000, budget(1999))]
)
def test_a_budget_always_leaves_room_for_an_answer(max_tokens: int, field: Json | None) -> None:
    assert thinking_field(ThinkingOptions(budget_tokens=5000), ModelInfo(thinking="budget"), max_tokens) == field
