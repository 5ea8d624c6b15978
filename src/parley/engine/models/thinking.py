"""How much a model may think: what was asked for, in the terms of the model. Pure."""

from __future__ import annotations

from parley.models.catalog import Facts
from parley.protocol.base import Json, Struct

SMALLEST_BUDGET = 1024


class Wish(Struct, frozen=True, kw_only=True):
    """What the person asked for. None everywhere: whatever is usual for the model."""

    tokens: int | None = None
    mode: str | None = None
    """adaptive, enabled or disabled."""
    display: str | None = None


def thinking_field(wish: Wish, facts: Facts, max_tokens: int) -> Json | None:
    """The request's `thinking`, or None to leave it out."""
    off = wish.mode == "disabled" or wish.tokens == 0
    no_room = facts.thinks == "budget" and max_tokens <= SMALLEST_BUDGET
    if facts.thinks == "never" or off or no_room:
        return None
    field: Json = {"type": "adaptive"}
    if facts.thinks == "budget":
        budget = wish.tokens if wish.tokens is not None else max_tokens - 1
        # The budget is part of max_tokens and the API wants room behind it.
        field = {"type": "enabled", "budget_tokens": max(SMALLEST_BUDGET, min(budget, max_tokens - 1))}
    return {**field, "display": wish.display} if wish.display else field
