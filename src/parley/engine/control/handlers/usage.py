"""Answers that are numbers: what fills the context, what was used, what it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.engine.context.system_prompt import render
from parley.engine.context.usage_report import RequestContents, report_usage
from parley.protocol.base import Json, to_builtins
from parley.protocol.messages.requests import ContextUsage
from parley.protocol.messages.result import ModelUsage

if TYPE_CHECKING:
    from parley.engine.session.session import Session


def context_report(session: Session) -> ContextUsage:
    """What the next model call would carry."""
    conversation = session.conversation
    return report_usage(
        RequestContents(
            model=conversation.model,
            # Before the first turn nothing was sent, and asking must not write to the log.
            system=conversation.journal.system_text or render(conversation.instructions),
            memory=conversation.instructions.memory_files(),
            tools=conversation.config.tools.schemas() if not conversation.model.is_fake else [],
            messages=conversation.journal.history.render(),
            last_usage=session.ledger.last_usage,
            counted_tokens=conversation.context_tokens(),
            window=conversation.window,
            threshold=conversation.compacts_at,
        )
    )


def usage_report(session: Session) -> Json:
    """The session's totals. There is no plan behind an API key, so there are no rate limits of one."""
    ledger = session.ledger
    return {
        "session": {
            "total_cost_usd": ledger.cost_usd,
            "total_api_duration_ms": round(ledger.api_seconds * 1000),
            "total_duration_ms": round((session.clock.monotonic() - session.started_at) * 1000),
            "total_lines_added": 0,
            "total_lines_removed": 0,
            "model_usage": {model: to_builtins(used) for model, used in ledger.by_model().items()},
        },
        "subscription_type": None,
        "rate_limits_available": False,
        "rate_limits": None,
        "behaviors": None,
    }


def cost_report(session: Session) -> Json:
    """The bill, as a person reads it."""
    ledger = session.ledger
    lines = [
        f"Total cost: {format_usd(ledger.cost_usd)}",
        f"Time in model calls: {ledger.api_seconds:.1f} s",
        f"Time since the start: {session.clock.monotonic() - session.started_at:.1f} s",
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
