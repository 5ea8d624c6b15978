"""What was used and what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.engine.ledger import Ledger, add_usage, blank_usage, find_provider
from parley.models.catalog import Prices
from parley.protocol.base import UNSET, Json
from parley.protocol.messages.result import ModelUsage

OPUS = "claude-opus-5-5"
ZERO: Json = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
    "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
    "service_tier": "standard",
    "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
}
CALL: Json = {"input_tokens": 10, "output_tokens": 5}
RICH: Json = {
    "input_tokens": 1,
    "cache_creation_input_tokens": 30,
    "cache_read_input_tokens": 40,
    "output_tokens": 5,
    "server_tool_use": {"web_search_requests": 2},
    "service_tier": "priority",
    "cache_creation": {"ephemeral_1h_input_tokens": 10, "ephemeral_5m_input_tokens": 20},
    "output_tokens_details": {"thinking_tokens": 3},
    "inference_geo": "eu",
}


def of(model: str, **fields: Any) -> ModelUsage:
    """The numbers of a model; what is not given is nothing."""
    known = (1_000_000, 128_000) if model == OPUS else (200_000, 32_000)
    nothing = {
        "inputTokens": 0,
        "outputTokens": 0,
        "cacheReadInputTokens": 0,
        "cacheCreationInputTokens": 0,
        "webSearchRequests": 0,
        "thinkingTokens": 0,
        "cacheCreationEphemeral5mInputTokens": 0,
        "cacheCreationEphemeral1hInputTokens": 0,
        "contextWindow": known[0],
        "maxOutputTokens": known[1],
        "canonicalModel": model,
        "provider": "offline" if model == "offline" else "firstParty",
        "costBasis": "list",
    }
    return ModelUsage(**{**nothing, **fields})


def test_a_new_ledger_is_blank() -> None:
    ledger = Ledger(Prices())

    assert blank_usage() == ZERO
    assert (ledger.cost_usd, ledger.by_model(), ledger.by_model_this_turn(), ledger.turn_usage, ledger.api_seconds) == (
        0,
        {},
        {},
        ZERO,
        0.0,
    )


def test_a_call_is_counted_for_its_model_and_its_turn() -> None:
    ledger = Ledger(Prices())
    ledger.record_call(OPUS, RICH, 1.5)
    # 1 in at 4, 5 out at 20, 40 read at 0.2, 20 written at 5, 10 written at 8 dollars a million; 2 searches.
    cost = (4 + 100 + 8 + 100 + 80) / 1_000_000 + 0.02

    assert ledger.by_model() == {
        OPUS: of(
            OPUS,
            inputTokens=1,
            outputTokens=5,
            cacheReadInputTokens=40,
            cacheCreationInputTokens=30,
            webSearchRequests=2,
            thinkingTokens=3,
            cacheCreationEphemeral5mInputTokens=20,
            cacheCreationEphemeral1hInputTokens=10,
            costUSD=pytest.approx(cost),
        )
    }
    assert ledger.turn_usage == {**RICH, "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 0}}
    assert ledger.cost_usd == pytest.approx(cost)
    assert ledger.api_seconds == 1.5


def test_a_turn_begins_at_nothing_while_the_session_continues_counting() -> None:
    ledger = Ledger(Prices())
    ledger.record_call(OPUS, CALL, 1)
    ledger.begin_turn()
    ledger.record_call(OPUS, CALL, 2)
    ledger.record_call("offline", CALL, 4)

    assert ledger.by_model() == {
        OPUS: of(OPUS, inputTokens=20, outputTokens=10, costUSD=pytest.approx(0.00028)),
        "offline": of("offline", inputTokens=10, outputTokens=5, costUSD=0),
    }
    assert ledger.by_model_this_turn() == {
        OPUS: of(OPUS, inputTokens=10, outputTokens=5, costUSD=pytest.approx(0.00014)),
        "offline": of("offline", inputTokens=10, outputTokens=5, costUSD=0),
    }
    assert ledger.turn_usage == {**ZERO, "input_tokens": 20, "output_tokens": 10}
    assert ledger.cost_usd == pytest.approx(0.00028)
    assert ledger.api_seconds == 7


def test_one_call_of_unknown_price_makes_the_sum_unknown() -> None:
    ledger = Ledger(Prices())
    ledger.record_call(OPUS, CALL, 0)
    ledger.record_call("house-model", CALL, 0)
    ledger.begin_turn()

    assert ledger.cost_usd is None
    assert ledger.by_model() == {
        OPUS: of(OPUS, inputTokens=10, outputTokens=5, costUSD=pytest.approx(0.00014)),
        "house-model": of("house-model", inputTokens=10, outputTokens=5, costUSD=None, costBasis="unknown"),
    }
    assert ledger.by_model_this_turn() == {}


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        (OPUS, "firstParty"),
        ("a-model-of-a-gateway", "firstParty"),
        ("openai:gpt-5", "openai"),
        ("openai-responses:gpt-5", "openai"),
        ("bedrock:anthropic.claude-opus-5-5-v1:0", "bedrock"),
        ("vertex:claude-opus-5-5", "vertex"),
        ("scripted:a.toml", "scripted"),
        ("offline", "offline"),
    ],
)
def test_the_provider_of_a_model_is_named(model: str, provider: str) -> None:
    assert find_provider(model) == provider


def test_how_a_call_was_priced_is_known_after_the_first_one(tmp_path: Path) -> None:
    table = tmp_path / "prices.json"
    table.write_text('{"house-model": {"input": 1, "output": 2}}')
    ledger = Ledger(Prices(table))
    ledger.resume({"modelUsage": {"house-model": {"costUSD": 1}}})
    assert ledger.by_model()["house-model"].costBasis is UNSET
    ledger.record_call("house-model", CALL, 0)
    assert ledger.by_model()["house-model"].costBasis == "managed"


@pytest.mark.parametrize(
    ("prices", "basis"),
    [
        (Prices(), "list"),
        (Prices(multiplier=0.5), "managed"),
        (Prices(overrides={"claude-opus": {"input": 1, "output": 1, "cacheRead": 1, "cacheWrite": 1}}), "managed"),
        (Prices(overrides={"claude-haiku": {"input": 1, "output": 1, "cacheRead": 1, "cacheWrite": 1}}), "list"),
    ],
)
def test_prices_of_the_settings_are_not_list_prices(prices: Prices, basis: str) -> None:
    ledger = Ledger(prices)
    ledger.record_call(OPUS, CALL, 0)
    assert ledger.by_model()[OPUS].costBasis == basis


@pytest.mark.parametrize(
    ("one", "other", "total"),
    [
        (ZERO, {}, ZERO),
        (ZERO, RICH, {**RICH, "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 0}}),
        (
            RICH,
            RICH,
            {
                "input_tokens": 2,
                "cache_creation_input_tokens": 60,
                "cache_read_input_tokens": 80,
                "output_tokens": 10,
                "server_tool_use": {"web_search_requests": 4},
                "service_tier": "priority",
                "cache_creation": {"ephemeral_1h_input_tokens": 20, "ephemeral_5m_input_tokens": 40},
                "output_tokens_details": {"thinking_tokens": 6},
                "inference_geo": "eu",
            },
        ),
        (
            ZERO,
            {"input_tokens": None, "server_tool_use": None, "cache_creation": None, "service_tier": None},
            ZERO,
        ),
    ],
)
def test_usages_add_up_and_what_is_not_counted_is_taken_from_the_later(one: Json, other: Json, total: Json) -> None:
    assert add_usage(one, other) == total
