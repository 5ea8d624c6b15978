"""What the user says of models in the setting `models`: context window, longest answer, form of thinking and price.

    {"models": {"openai:qwen3": {"contextWindow": 40960, "price": {"input": 0.1, "output": 0.4}}}}

A key is how the names of models begin, as messages spell them. For each value, the longest key that sets it applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from parley.errors import UsageError
from parley.models.catalog import ALIASES, KnownPrice, ModelInfo, Rates, longest_prefix
from parley.protocol.base import Struct

Tokens = Annotated[int, msgspec.Meta(ge=1)]
LIMITS = {
    "context_window": "contextWindow",
    "max_output_tokens": "maxOutputTokens",
    "thinking": "thinking",
    "efforts": "efforts",
}
"""What an entry can set of a model, and the names in settings."""


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of `models`."""

    contextWindow: Tokens | None = None
    maxOutputTokens: Tokens | None = None
    thinking: Literal["adaptive", "budget", "never"] | None = None
    efforts: tuple[Literal["low", "medium", "high", "xhigh", "max"], ...] | None = None
    price: Rates | None = None


class ConfiguredModel(Struct, frozen=True):
    """An entry and the file it is from."""

    entry: ModelSettings
    source: str


def parse_entry(name: str, value: Any, path: str) -> ConfiguredModel:
    """Raises UsageError, which names the file and the key."""
    where = f"{path}: models: {name!r}"
    if name in ALIASES:
        raise UsageError(f"{where} is a short name; use a full model name, such as {ALIASES[name]!r}")
    try:
        return ConfiguredModel(msgspec.convert(value, ModelSettings), path)
    except msgspec.ValidationError as exc:
        raise UsageError(f"{where}: {exc}") from None


def known_prices(models: Mapping[str, ConfiguredModel]) -> dict[str, KnownPrice]:
    return {
        name: KnownPrice(model.entry.price.to_price(), model.source)
        for name, model in models.items()
        if model.entry.price is not None
    }


def apply_entries(known: ModelInfo, name: str, models: Mapping[str, ConfiguredModel]) -> ModelInfo:
    """What is known of a model, with the limits that the user sets."""
    found = {
        field: getattr(model.entry, key)
        for field, key in LIMITS.items()
        if (model := find_entry(name, key, models)) is not None
    }
    return msgspec.structs.replace(known, **found) if found else known


def find_entry(name: str, key: str, models: Mapping[str, ConfiguredModel]) -> ConfiguredModel | None:
    """The entry that sets a value for a model; None if no entry does."""
    setting = {prefix: model for prefix, model in models.items() if getattr(model.entry, key) is not None}
    prefix = longest_prefix(name, setting)
    return None if prefix is None else setting[prefix]
