"""What the user says of models in the setting `models`."""

from __future__ import annotations

from typing import Any

import pytest

from parley.errors import UsageError
from parley.models.catalog import UNKNOWN_MODEL, KnownPrice, ModelInfo, Price, model_info
from parley.models.entries import ConfiguredModel, apply_entries, find_entry, known_prices, parse_entry


def entries(**given: Any) -> dict[str, ConfiguredModel]:
    return {name: parse_entry(name, value, "s.json") for name, value in given.items()}


def test_limits_replace_what_is_known_value_by_value() -> None:
    given = entries(**{"a": {"contextWindow": 10, "maxOutputTokens": 5}, "a-long": {"contextWindow": 20}})

    assert apply_entries(UNKNOWN_MODEL, "a-long-1", given) == ModelInfo(20, 5, thinking="never")
    assert apply_entries(UNKNOWN_MODEL, "a-1", given) == ModelInfo(10, 5, thinking="never")
    assert apply_entries(model_info("claude-opus-5-5"), "claude-opus-5-5", given) is model_info("claude-opus-5-5")


def test_an_entry_has_its_file() -> None:
    given = entries(a={"contextWindow": 10}, b={"price": {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4}})
    price = Price(input=1, output=2, cache_read=3, cache_write_5m=4, cache_write_1h=4)

    assert known_prices(given) == {"b": KnownPrice(price, "s.json")}
    assert find_entry("a-1", "contextWindow", given) == given["a"]
    assert find_entry("a-1", "price", given) is None


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("m", 5, ": Expected `object`, got `int`"),
        ("m", {"contextWindow": 0}, ": Expected `int` >= 1 - at `$.contextWindow`"),
        ("m", {"contextWindow": "9"}, ": Expected `int | null`, got `str` - at `$.contextWindow`"),
        ("m", {"contextwindow": 9}, ": Object contains unknown field `contextwindow`"),
        ("m", {"price": {"input": 1}}, ": Object missing required field `output` - at `$.price`"),
        ("m", {"price": {"input": 1, "output": -1}}, ": Expected `float` >= 0.0 - at `$.price.output`"),
        ("opus", {}, " is a short name; use a full model name, such as 'claude-opus-5-5'"),
    ],
)
def test_an_invalid_entry_is_an_error_with_file_and_key(name: str, value: Any, reason: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_entry(name, value, "s.json")

    assert str(raised.value) == f"s.json: models: {name!r}{reason}"
