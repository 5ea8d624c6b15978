"""Reports: what fills the context window, what was used, and what it cost."""

from __future__ import annotations

from parley.engine.accounting.ledger import Ledger, format_usd
from parley.protocol.base import Json, to_builtins
from parley.protocol.messages.result import ModelUsage


def usage_report(ledger: Ledger, total_seconds: float) -> Json:
    """The totals of a session. An API key has no plan, so there are no rate limits of one."""
    return {
        "session": {
            "total_cost_usd": ledger.cost_usd,
            "total_api_duration_ms": round(ledger.api_seconds * 1000),
            "total_duration_ms": round(total_seconds * 1000),
            "total_lines_added": 0,
            "total_lines_removed": 0,
            "model_usage": {model: to_builtins(used) for model, used in ledger.by_model().items()},
        },
        "subscription_type": None,
        "rate_limits_available": False,
        "rate_limits": None,
        "behaviors": None,
    }


def cost_report(ledger: Ledger, total_seconds: float) -> Json:
    """The cost as text for a person."""
    lines = [
        f"Total cost: {format_usd(ledger.cost_usd)}",
        f"Time in model calls: {ledger.api_seconds:.1f} s",
        f"Time since the start: {total_seconds:.1f} s",
        *(f"{model}: {format_model_cost(used)}" for model, used in ledger.by_model().items()),
    ]
    return {"text": "\n".join(lines)}


def format_model_cost(used: ModelUsage) -> str:
    return (
        f"{used.inputTokens} input, {used.outputTokens} output, {used.cacheReadInputTokens} cache read, "
        f"{used.cacheCreationInputTokens} cache write ({format_usd(used.costUSD)})"
    )
