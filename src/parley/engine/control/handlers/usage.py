"""Reports: what fills the context window, what was used, and what it cost."""

from __future__ import annotations

from parley.engine.accounting.ledger import Ledger
from parley.engine.context.conversation import Conversation
from parley.engine.context.system_prompt import render
from parley.engine.context.usage_report import RequestContents, report_usage
from parley.models.catalog import FAKE_ADAPTERS
from parley.protocol.base import Json, to_builtins
from parley.protocol.messages.requests import ContextUsage
from parley.protocol.messages.result import ModelUsage


def context_report(conversation: Conversation) -> ContextUsage:
    """What the next model call would contain."""
    return report_usage(
        RequestContents(
            model=conversation.model,
            # Before the first turn nothing was sent, and a report must not write to the log.
            system=conversation.journal.system_text or render(conversation.instructions),
            memory=conversation.instructions.memory_files(),
            tools=conversation.config.tools.schemas() if conversation.model.adapter not in FAKE_ADAPTERS else [],
            messages=conversation.journal.history.render(),
            last_usage=conversation.ledger.last_usage,
            counted_tokens=conversation.context_tokens(),
            window=conversation.window,
            threshold=conversation.compacts_at,
        )
    )


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


def format_usd(amount: float | None) -> str:
    return "unknown: a model has no price here (see PARLEY_PRICES)" if amount is None else f"${amount:.4f}"
