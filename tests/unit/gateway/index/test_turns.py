"""What a turn used, from the totals that results have."""

from __future__ import annotations

import json

import pytest

from parley.gateway.index.tables import ModelUse, decode_line, read_uses


def use(usd: float | None, tokens: int) -> dict[str, float | None]:
    return {"costUSD": usd, "inputTokens": tokens, "outputTokens": tokens, "cacheReadInputTokens": 0}


def read(before: object, totals: object, of_turn: object) -> list[ModelUse]:
    line = {"type": "result", "modelUsage": totals, "model_usage_since_last_result": of_turn}
    return read_uses(decode_line(json.dumps(line)), json.dumps(before))[0]


def test_a_turn_used_what_the_totals_have_grown_by() -> None:
    assert read({"a": use(1, 10)}, {"a": use(3, 15), "b": use(0.5, 2)}, {}) == [
        ModelUse("a", 2, 5, 5, 0),
        ModelUse("b", 0.5, 2, 2, 0),
    ]


def test_what_was_used_between_turns_counts() -> None:
    assert read({"a": use(1, 10)}, {"a": use(3, 15)}, {"a": use(0.5, 1)}) == [ModelUse("a", 2, 5, 5, 0)]


@pytest.mark.parametrize("total", [use(1, 5), use(12, 40)])
def test_the_totals_of_another_engine_begin_again(total: dict[str, float | None]) -> None:
    assert read({"a": use(10, 30)}, {"a": total}, {"a": total}) == [
        ModelUse("a", total["costUSD"], int(total["inputTokens"] or 0), int(total["outputTokens"] or 0), 0)
    ]


def test_an_unknown_price_stays_unknown() -> None:
    assert read({}, {"a": use(None, 3)}, {"a": use(None, 3)}) == [ModelUse("a", None, 3, 3, 0)]


@pytest.mark.parametrize(
    "found", [None, [], "x", {"a": None}, {"a": []}, {"a": {"inputTokens": "many"}}, {"a": use(0, 0)}]
)
def test_a_result_without_figures_used_nothing_and_keeps_the_totals(found: object) -> None:
    assert read({"b": use(1, 1)}, found, found) == []
    line = json.dumps({"type": "result", "modelUsage": {}})
    assert read_uses(decode_line(line), '{"b":1}') == ([], '{"b":1}')
