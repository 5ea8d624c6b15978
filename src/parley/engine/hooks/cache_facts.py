"""What hook inputs say about the prompt cache: how old it is, and what writing it anew costs. Pure but for the log."""

from __future__ import annotations

from datetime import datetime

from parley.models.catalog import BUILT_IN_SOURCE, ModelRef, Prices
from parley.protocol.base import Json, Struct
from parley.stores.base import USAGE, Log

CACHE_TTL = "5m"
CACHE_SECONDS = 300
COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


class LastResponse(Struct, frozen=True, kw_only=True):
    """The last answer of the model in a log."""

    seconds: float
    """When, in seconds since the epoch."""
    tokens: int
    """Its input and output, cached or not."""


def find_last_response(log: Log) -> LastResponse | None:
    found: LastResponse | None = None
    for entry in log.entries():
        if entry.kind == "conversation_reset":
            found = None
        elif entry.kind == "assistant" and isinstance(entry.message.get("message"), dict):
            usage = entry.message["message"].get("usage")
            if isinstance(usage, dict) and entry.message["message"].get("model") != "<synthetic>":
                found = LastResponse(seconds=parse_time(entry.at), tokens=count_tokens(usage))
        elif entry.kind == USAGE and found is not None and isinstance(entry.message.get("usage"), dict):
            found = LastResponse(seconds=parse_time(entry.at), tokens=count_tokens(entry.message["usage"]))
    return found


def parse_time(at: str) -> float:
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return 0.0


def count_tokens(usage: Json) -> int:
    return sum(value for name in COUNTS if isinstance(value := usage.get(name), int))


def write_cost_usd(prices: Prices, model: ModelRef, tokens: int) -> float:
    """The estimated cost of writing tokens to the cache of a model; 0 if its price is unknown."""
    return prices.cost_usd(model.display_name, {"cache_creation_input_tokens": tokens}) or 0.0


def resume_facts(last: LastResponse | None, now: float, model: ModelRef, prices: Prices) -> Json:
    """The fields of SessionStart in a resumed session."""
    if last is None:
        return {}
    age = max(0.0, now - last.seconds)
    return {
        "seconds_since_last_response": round(age),
        "context_tokens": last.tokens,
        "prompt_cache_likely_expired": age > CACHE_SECONDS,
        "estimated_cache_write_usd": write_cost_usd(prices, model, last.tokens),
    }


def switch_facts(last: LastResponse | None, now: float, model: ModelRef, prices: Prices) -> Json:
    """The fields of PreModelSwitch and PostModelSwitch."""
    tokens = 0 if last is None else last.tokens
    known = prices.find(model.display_name)
    return {
        "context_tokens": tokens,
        "prompt_cache_warm": last is not None and now - last.seconds <= CACHE_SECONDS,
        "cache_ttl": CACHE_TTL,
        "estimated_cache_write_usd": write_cost_usd(prices, model, tokens),
        "pricing": "default" if known is None else "catalog" if known.source == BUILT_IN_SOURCE else "configured",
    }
