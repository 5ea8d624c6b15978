"""The `thinking` field of a model request. Pure."""

from __future__ import annotations

from parley.models.catalog import ModelInfo
from parley.protocol.base import Json, Struct

MIN_BUDGET_TOKENS = 1024


class ThinkingOptions(Struct, frozen=True, kw_only=True):
    """The options of the user; None for the default of the model."""

    budget_tokens: int | None = None
    mode: str | None = None
    """adaptive, enabled or disabled."""
    display: str | None = None


def thinking_field(options: ThinkingOptions, model_info: ModelInfo, max_tokens: int) -> Json | None:
    """The request's `thinking`, or None to leave it out."""
    off = options.mode == "disabled" or options.budget_tokens == 0
    no_room = model_info.thinking == "budget" and max_tokens <= MIN_BUDGET_TOKENS
    if model_info.thinking == "never" or off or no_room:
        return None
    field: Json = {"type": "adaptive"}
    if model_info.thinking == "budget":
        budget = options.budget_tokens if options.budget_tokens is not None else max_tokens - 1
        # The budget is part of max_tokens, and the API wants some tokens left for the answer.
        field = {"type": "enabled", "budget_tokens": max(MIN_BUDGET_TOKENS, min(budget, max_tokens - 1))}
    return {**field, "display": options.display} if options.display else field
