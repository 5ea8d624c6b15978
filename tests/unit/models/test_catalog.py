"""Resolving model names, and the cost of model calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from parley.errors import UsageError
from parley.models.catalog import (
    ALIASES,
    BUILT_IN,
    EFFORTS,
    KnownPrice,
    ModelInfo,
    ModelRef,
    Price,
    Prices,
    aliases_from,
    list_known_models,
    model_info,
    read_table,
    resolve,
)
from parley.protocol.base import Json

OLDER = ModelInfo(200_000, 32_000, "budget", must_read_first=True, thinking_betas=("interleaved-thinking-2025-05-14",))
WITH_1M = {"context_window": 1_000_000, "betas": ("context-1m-2025-08-07",)}


def newer(thinking_off: str, **fields: Any) -> ModelInfo:
    found = ModelInfo(1_000_000, 128_000, "adaptive", thinking_off, EFFORTS, supports_task_budget=True)
    return replace(found, takes_sampling=False, **fields)


@pytest.mark.parametrize(
    ("name", "choice", "shown"),
    [
        ("default", ModelRef("anthropic", "claude-opus-5-5"), "claude-opus-5-5"),
        ("inherit", ModelRef("anthropic", "claude-opus-5-5"), "claude-opus-5-5"),
        ("opus", ModelRef("anthropic", "claude-opus-5-5"), "claude-opus-5-5"),
        ("fable", ModelRef("anthropic", "claude-fable-5-2"), "claude-fable-5-2"),
        ("sonnet", ModelRef("anthropic", "claude-sonnet-5-5"), "claude-sonnet-5-5"),
        ("haiku", ModelRef("anthropic", "claude-haiku-5-5"), "claude-haiku-5-5"),
        ("claude-opus-4-5-20251101", ModelRef("anthropic", "claude-opus-4-5-20251101"), "claude-opus-4-5-20251101"),
        ("best", ModelRef("anthropic", "claude-fable-5-2"), "claude-fable-5-2"),
        ("sonnet[1m]", ModelRef("anthropic", "claude-sonnet-5-5[1m]"), "claude-sonnet-5-5[1m]"),
        ("anthropic:opus[1M]", ModelRef("anthropic", "claude-opus-5-5[1m]"), "claude-opus-5-5[1m]"),
        ("house-model[1m]", ModelRef("anthropic", "house-model[1m]"), "house-model[1m]"),
        ("openai:qwen[1m]", ModelRef("openai", "qwen[1m]"), "openai:qwen[1m]"),
        ("house-model", ModelRef("anthropic", "house-model"), "house-model"),
        ("llama3:8b", ModelRef("anthropic", "llama3:8b"), "llama3:8b"),
        ("anthropic:sonnet", ModelRef("anthropic", "claude-sonnet-5-5"), "claude-sonnet-5-5"),
        ("offline", ModelRef("offline", "offline"), "offline"),
        ("scripted:a/b.toml", ModelRef("scripted", "a/b.toml"), "scripted:a/b.toml"),
        ("scripted:sonnet", ModelRef("scripted", "sonnet"), "scripted:sonnet"),
        ("replay:tape", ModelRef("replay", "tape"), "replay:tape"),
        ("openai:qwen:7b", ModelRef("openai", "qwen:7b"), "openai:qwen:7b"),
        ("openai-responses:gpt-5", ModelRef("openai-responses", "gpt-5"), "openai-responses:gpt-5"),
    ],
)
def test_a_name_selects_a_backend_and_its_model(name: str, choice: ModelRef, shown: str) -> None:
    assert resolve(name) == choice
    assert resolve(name).display_name == shown


@pytest.mark.parametrize("name", [*ALIASES, "offline", "scripted:a.toml", "openai:x", "house-model"])
def test_the_shown_name_stands_for_the_same_model(name: str) -> None:
    assert resolve(resolve(name).display_name) == resolve(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude-fable-5-2", newer("always_on")),
        ("claude-mythos-5", newer("always_on")),
        ("claude-opus-5-5", newer("always_on")),
        ("claude-opus-5-5[1m]", newer("always_on")),
        ("claude-opus-5", newer("disabled")),
        ("claude-sonnet-5-5", newer("between_tools")),
        ("claude-sonnet-5", newer("disabled")),
        ("claude-haiku-5-5", newer("disabled")),
        ("claude-nova-9", newer("omitted")),
        ("claude-opus-4-8", newer("omitted", must_read_first=True)),
        ("us.anthropic.claude-opus-4-7-v1:0", newer("omitted", must_read_first=True)),
        ("anthropic/claude-opus-4.7", newer("omitted", must_read_first=True)),
        (
            "claude-sonnet-4-6",
            ModelInfo(1_000_000, 128_000, efforts=("low", "medium", "high", "max"), must_read_first=True),
        ),
        ("claude-opus-4-5-20251101", replace(OLDER, efforts=("low", "medium", "high"))),
        ("claude-sonnet-4-5", OLDER),
        ("claude-sonnet-4-5[1m]", replace(OLDER, **WITH_1M)),
        ("claude-haiku-4-5", OLDER),
        ("claude-opus-4-20250514", OLDER),
        ("claude-sonnet-4@20250514", OLDER),
        ("claude-3-7-sonnet-20250219", replace(OLDER, thinking_betas=())),
        ("claude-3-haiku-20240307", ModelInfo(200_000, 8_192, "never", must_read_first=True)),
        ("claude-next", ModelInfo(200_000, 32_000, "adaptive")),
        ("house-model", ModelInfo(200_000, 32_000, "never")),
        ("offline", ModelInfo(200_000, 32_000, "never")),
    ],
)
def test_a_name_says_what_the_model_can(name: str, expected: ModelInfo) -> None:
    assert model_info(name) == expected


def test_opusplan_is_opus_in_plan_mode_and_sonnet_otherwise() -> None:
    aliases = {"opus": "gw/opus[1m]"}

    assert resolve("opusplan").in_mode("plan") == resolve("opus")
    assert resolve("opusplan").in_mode("default") == resolve("sonnet")
    assert resolve("opusplan[1m]").in_mode("plan") == resolve("opus[1m]")
    assert resolve("opusplan", aliases).in_mode("plan") == ModelRef("anthropic", "gw/opus[1m]")


def row(value: str, model: str, title: str) -> Json:
    return {
        "value": value,
        "resolvedModel": model,
        "displayName": title,
        "description": f"{model} through the Messages API",
        "supportsEffort": True,
        "supportsAdaptiveThinking": True,
        "supportedEffortLevels": ["low", "medium", "high", "xhigh", "max"],
    }


def test_the_listing_begins_with_the_default_and_ends_with_the_fake_model() -> None:
    assert list_known_models() == [
        row("default", "claude-opus-5-5", "Default"),
        row("opus", "claude-opus-5-5", "Opus"),
        row("fable", "claude-fable-5-2", "Fable"),
        row("sonnet", "claude-sonnet-5-5", "Sonnet"),
        row("haiku", "claude-haiku-5-5", "Haiku"),
        {
            "value": "offline",
            "resolvedModel": "offline",
            "displayName": "Offline",
            "description": "The built-in fake model: follows directives in the prompt, needs no key and no network",
        },
    ]


GATEWAY = {
    "ANTHROPIC_DEFAULT_SONNET_MODEL": "gw/sonnet",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "openai:small",
    "ANTHROPIC_DEFAULT_OPUS_MODEL": "",
    "ANTHROPIC_DEFAULT_OTHER_MODEL": "x",
}


def test_the_environment_says_what_short_names_stand_for() -> None:
    aliases = aliases_from(GATEWAY)

    assert aliases == {"sonnet": "gw/sonnet", "haiku": "openai:small"}
    assert resolve("sonnet", aliases) == ModelRef("anthropic", "gw/sonnet")
    assert resolve("haiku", aliases) == ModelRef("openai", "small")
    assert resolve("opus", aliases) == resolve("opus")
    assert resolve("claude-sonnet-5-5", aliases).name == "claude-sonnet-5-5"


def test_default_follows_the_model_that_it_stands_for() -> None:
    aliases = aliases_from({"ANTHROPIC_DEFAULT_OPUS_MODEL": "gw/opus"})

    assert {resolve(name, aliases).name for name in ("default", "inherit", "opus")} == {"gw/opus"}


def test_the_listing_shows_what_short_names_stand_for() -> None:
    listed = {row["value"]: row["resolvedModel"] for row in list_known_models(aliases_from(GATEWAY))}

    assert (listed["sonnet"], listed["opus"]) == ("gw/sonnet", ALIASES["opus"])


MILLION = 1_000_000


def table(folder: Path, content: str | bytes) -> Prices:
    path = folder / "prices.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Prices(path)


def test_ten_tokens_in_and_five_out_of_the_default_model() -> None:
    assert Prices().cost_usd("claude-opus-5-5", {"input_tokens": 10, "output_tokens": 5}) == pytest.approx(0.00014)


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        ({}, 0),
        ({"input_tokens": MILLION}, 4),
        ({"output_tokens": MILLION}, 20),
        ({"cache_read_input_tokens": MILLION}, 0.4),
        ({"cache_creation_input_tokens": MILLION}, 5),
        ({"cache_creation_input_tokens": MILLION, "cache_creation": {"ephemeral_1h_input_tokens": MILLION}}, 8),
        (
            {
                "cache_creation_input_tokens": 2 * MILLION,
                "cache_creation": {"ephemeral_1h_input_tokens": MILLION, "ephemeral_5m_input_tokens": MILLION},
            },
            13,
        ),
        ({"server_tool_use": {"web_search_requests": 3}}, 0.03),
        ({"input_tokens": None, "cache_creation": None, "server_tool_use": None, "service_tier": "standard"}, 0),
    ],
)
def test_each_kind_of_token_has_its_price(usage: Json, dollars: float) -> None:
    assert Price(input=4, output=20).of(usage) == pytest.approx(dollars)


def test_the_prices_of_the_cache_may_be_given() -> None:
    price = Price(input=4, output=20, cache_read=1, cache_write_5m=2, cache_write_1h=3, web_search=0.5)
    usage = {
        "cache_read_input_tokens": MILLION,
        "cache_creation_input_tokens": 2 * MILLION,
        "cache_creation": {"ephemeral_1h_input_tokens": MILLION},
        "server_tool_use": {"web_search_requests": 2},
    }

    assert price.of(usage) == pytest.approx(1 + 2 + 3 + 1)


@pytest.mark.parametrize("model", ["house-model", "claude-fable-5-9", "claude-opus-6", "claude-", "", "openai:gpt"])
def test_a_model_without_a_price_costs_none_and_not_nothing(model: str) -> None:
    assert Prices().cost_usd(model, {"input_tokens": 10}) is None


@pytest.mark.parametrize(
    ("model", "dollars"),
    [
        ("claude-fable-5-2", (8, 40)),
        ("claude-fable-5-1", (10, 50)),
        ("claude-fable-5", (10, 50)),
        ("claude-mythos-5", (10, 50)),
        ("claude-opus-5", (5, 25)),
        ("claude-sonnet-5", (2, 10)),
        ("claude-opus-4-8", (5, 25)),
        ("claude-opus-4-7", (5, 25)),
        ("claude-opus-4-6", (5, 25)),
        ("claude-sonnet-4-6", (3, 15)),
        ("claude-sonnet-4-20250514", (3, 15)),
        ("claude-opus-4@20250514", (15, 75)),
        ("claude-opus-5-5[1m]", (4, 20)),
        ("us.anthropic.claude-opus-4-7-v1:0", (5, 25)),
    ],
)
def test_every_spelling_of_a_known_version_has_its_price(model: str, dollars: tuple[float, float]) -> None:
    found = Prices().find(model)

    assert found is not None
    assert (found.price.input, found.price.output) == dollars


@pytest.mark.parametrize(("cached", "dollars"), [(99_000, 0.1 + 0.99 + 0.5), (100_000, 0.5 + 5 + 2.5)])
def test_a_long_prompt_can_cost_more(cached: int, dollars: float) -> None:
    usage = {"input_tokens": 1_000, "cache_read_input_tokens": cached, "output_tokens": 1_000}

    assert Prices().cost_usd("claude-haiku-5-5", usage) == pytest.approx(dollars / 1_000)


@pytest.mark.parametrize("model", ["offline", "scripted:a.toml"])
def test_our_own_models_cost_nothing(model: str) -> None:
    assert Prices().cost_usd(model, {"input_tokens": MILLION, "output_tokens": MILLION}) == 0


def test_a_dated_name_has_the_price_of_its_model() -> None:
    assert Prices().find("claude-haiku-4-5-20251001") == KnownPrice(Price(input=1, output=5), "built-in")


def test_the_longest_beginning_that_fits_wins(tmp_path: Path) -> None:
    prices = table(
        tmp_path,
        '{"a-1-x": {"input": 3, "output": 3}, "a": {"input": 1, "output": 1}, "a-1": {"input": 2, "output": 2}}',
    )

    found = [prices.find(name) for name in ("a-2", "a-1-5", "a-1-xy", "b")]
    assert [None if known is None else known.price.input for known in found] == [1, 2, 3, None]


def test_a_table_of_the_person_is_searched_before_ours(tmp_path: Path) -> None:
    prices = table(tmp_path, '{"house-": {"input": 1, "output": 2}, "claude-opus": {"input": 7, "output": 8}}')

    assert prices.find("house-model") == KnownPrice(Price(input=1, output=2), f"{tmp_path}/prices.json")
    assert prices.find("claude-opus-5-5") == KnownPrice(Price(input=7, output=8), f"{tmp_path}/prices.json")
    assert prices.find("claude-opus-4-8") == KnownPrice(Price(input=7, output=8), f"{tmp_path}/prices.json")
    assert prices.find("claude-haiku-4-5") == KnownPrice(Price(input=1, output=5), "built-in")


def test_settings_come_before_the_file_and_contracts_before_both(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text('{"a": {"input": 1, "output": 1}, "b-long": {"input": 1, "output": 1}}')
    settings = {"b": KnownPrice(Price(input=2, output=2), "settings.json")}
    contracted = {"c": {"input": 3, "output": 3, "cacheRead": 3, "cacheWrite": 4}}
    prices = Prices(path, contracted, 1, settings)
    dearest = Price(input=3, output=3, cache_read=3, cache_write_5m=4, cache_write_1h=4)

    assert [prices.find(name) for name in ("a-1", "b-long", "us.anthropic.C-1")] == [
        KnownPrice(Price(input=1, output=1), str(path)),
        KnownPrice(Price(input=2, output=2), "settings.json"),
        KnownPrice(dearest, "modelPricing"),
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", ": Input data was truncated"),
        (b"[]", ": Expected `object`, got `array`"),
        (b'{"m": 5}', ", entry 'm': Expected `object`, got `int`"),
        (b'{"m": {"input": 5}}', ", entry 'm': Object missing required field `output`"),
        (b'{"m": {"input": "5", "output": 1}}', ", entry 'm': Expected `float`, got `str` - at `$.input`"),
        (b'{"m": {"input": -5, "output": 1}}', ", entry 'm': Expected `float` >= 0.0 - at `$.input`"),
        (b'{"m": {"input": 5, "output": 1, "outptu": 1}}', ", entry 'm': Object contains unknown field `outptu`"),
        (b'{"\xff": 5}', ": 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
)
def test_a_broken_table_is_reported_with_its_name(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(UsageError) as raised:
        table(tmp_path, content).cost_usd("m", {})

    assert str(raised.value) == f"invalid price table {tmp_path}/prices.json{reason}"


def test_a_missing_table_is_reported_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        Prices(tmp_path / "none.json").find("m")

    assert str(raised.value) == f"cannot read price table {tmp_path}/none.json: No such file or directory"


def test_our_own_table_can_be_read() -> None:
    assert {name for name, price in read_table(BUILT_IN).items() if price.output == 0} == {
        "offline",
        "scripted:",
        "replay:",
    }
