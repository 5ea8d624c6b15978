"""What settings say under `memory`: the keys, and what each may be."""

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
"""For each key the field of the policy it sets, and what it may be."""


def fits(value: Any) -> bool:
    """Whether this can stand under `memory`: a name that is spelled wrong would be a wish that is never heeded."""
    return isinstance(value, dict) and all(name in MEMORY and MEMORY[name][1](given) for name, given in value.items())


def policy_fields(value: dict[str, Any]) -> dict[str, Any]:
    """What is set, by the names that the policy has for it."""
    return {MEMORY[name][0]: given for name, given in value.items() if MEMORY[name][0]}
