"""Resolving model names."""

from __future__ import annotations

import pytest

from parley.models.catalog import (
    ALIASES,
    ModelInfo,
    ModelRef,
    aliases_from,
    list_known_models,
    model_info,
    resolve,
)
from parley.protocol.base import Json

BIG = ModelInfo(1_000_000, 128_000, supports_effort=True, supports_task_budget=True)


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
        *((name, BIG) for name in ALIASES.values()),
        ("claude-opus-4-5-20251101", ModelInfo(200_000, 32_000, "budget", must_read_first=True)),
        ("claude-sonnet-4-5", ModelInfo(200_000, 32_000, "budget", must_read_first=True)),
        ("claude-haiku-4-5", ModelInfo(200_000, 32_000, "budget", must_read_first=True)),
        ("claude-3-haiku-20240307", ModelInfo(200_000, 8_192, "never", must_read_first=True)),
        ("claude-next", ModelInfo(200_000, 32_000, "adaptive")),
        ("house-model", ModelInfo(200_000, 32_000, "never")),
        ("offline", ModelInfo(200_000, 32_000, "never")),
    ],
)
def test_the_beginning_of_a_name_reports_what_the_model_can(name: str, expected: ModelInfo) -> None:
    assert model_info(name) == expected


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
