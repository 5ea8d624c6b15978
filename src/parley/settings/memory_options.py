"""The keys under `memory` in settings, and their valid values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def is_switch(value: Any) -> bool:
    return isinstance(value, bool)


def is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def is_amount(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


MEMORY: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "enabled": ("", is_switch),
    "model": ("model", is_name),
    "summaryModel": ("summary_model", is_name),
    "viewTokens": ("view_tokens", is_count),
    "consolidate": ("consolidates", is_switch),
    "trivialTokens": ("trivial_tokens", is_amount),
    "pieceTokens": ("piece_tokens", is_count),
    "maxCalls": ("max_calls", is_count),
    "maxSeconds": ("max_seconds", is_count),
}
"""Each key with the field of the memory policy that it sets, and the check of its value."""


def is_valid(value: Any) -> bool:
    """Whether a value is valid under `memory`. Unknown names are invalid: a misspelled key would have no effect."""
    return isinstance(value, dict) and all(name in MEMORY and MEMORY[name][1](given) for name, given in value.items())


def policy_fields(value: dict[str, Any]) -> dict[str, Any]:
    """Return the values by the names of the policy's fields."""
    return {MEMORY[name][0]: given for name, given in value.items() if MEMORY[name][0]}
