"""The fields `thinking` and `effort` of a model request. Pure."""

from __future__ import annotations

from parley.models.catalog import ModelInfo
from parley.protocol.base import Json, Struct
from parley.protocol.options import ModelOptions

MIN_BUDGET_TOKENS = 1024
EFFORTS = ("low", "medium", "high", "xhigh", "max")
"""The effort levels, lowest first."""
DEFAULT_EFFORT = "high"


class ThinkingOptions(Struct, frozen=True, kw_only=True):
    """The options of the user; None for the default of the model."""

    budget_tokens: int | None = None
    mode: str | None = None
    """adaptive, enabled or disabled."""
    display: str | None = None

    @classmethod
    def from_options(cls, options: ModelOptions) -> ThinkingOptions:
        return cls(budget_tokens=options.max_thinking_tokens, mode=options.thinking, display=options.thinking_display)


def thinking_field(options: ThinkingOptions, model_info: ModelInfo, max_tokens: int) -> Json | None:
    """The request's `thinking`, or None to leave it out."""
    off = options.mode == "disabled" or options.budget_tokens == 0
    if model_info.thinking == "effort" and off:
        return {"type": "disabled"}
    no_room = model_info.thinking == "budget" and max_tokens <= MIN_BUDGET_TOKENS
    if model_info.thinking == "never" or off or no_room:
        return None
    field: Json = {"type": "adaptive"}
    if model_info.thinking == "effort" and options.budget_tokens is not None:
        field = {"type": "enabled", "budget_tokens": options.budget_tokens}
    elif model_info.thinking == "budget":
        budget = options.budget_tokens if options.budget_tokens is not None else max_tokens - 1
        # The budget is part of max_tokens, and the API wants some tokens left for the answer.
        field = {"type": "enabled", "budget_tokens": max(MIN_BUDGET_TOKENS, min(budget, max_tokens - 1))}
    return {**field, "display": options.display} if options.display else field


def limit_effort(effort: str | None, highest: str | None) -> str | None:
    """The effort, but not more than the highest one. A model whose effort is not set works at `high`."""
    if highest is None or highest not in EFFORTS:
        return effort
    wanted = effort or DEFAULT_EFFORT
    if wanted in EFFORTS and EFFORTS.index(wanted) <= EFFORTS.index(highest):
        return effort
    return highest
