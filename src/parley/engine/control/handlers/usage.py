"""Answers that are numbers: what fills the context, what was used, what it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.engine.context.system_prompt import render
from parley.engine.context.usage_report import Contents, context_usage
from parley.models.catalog import PUPPETS
from parley.protocol.base import Json, plain
from parley.protocol.messages.requests import ContextUsage
from parley.protocol.messages.result import ModelUsage

if TYPE_CHECKING:
    from parley.engine.session.session import Session


def context(session: Session) -> ContextUsage:
    """What the next model call would carry."""
    talk = session.conversation
    return context_usage(
        Contents(
            model=talk.model,
            # Before the first turn nothing was sent, and asking must not write to the log.
            system=talk.record.system_text or render(talk.instructions),
            memory=talk.instructions.memory_files(),
            tools=talk.setup.tools.schemas() if talk.model.adapter not in PUPPETS else [],
            messages=talk.record.history.messages(),
            last_usage=session.ledger.last_usage,
            counted=talk.context_tokens(),
            window=talk.window,
            threshold=talk.compacts_at,
        )
    )


def usage(session: Session) -> Json:
    """The session's totals. There is no plan behind an API key, so there are no rate limits of one."""
    ledger = session.ledger
    return {
        "session": {
            "total_cost_usd": ledger.cost_usd,
            "total_api_duration_ms": round(ledger.api_seconds * 1000),
            "total_duration_ms": round((session.stamp.monotonic() - session.begun) * 1000),
            "total_lines_added": 0,
            "total_lines_removed": 0,
            "model_usage": {model: plain(used) for model, used in ledger.by_model().items()},
        },
        "subscription_type": None,
        "rate_limits_available": False,
        "rate_limits": None,
        "behaviors": None,
    }


def cost(session: Session) -> Json:
    """The bill, as a person reads it."""
    ledger = session.ledger
    lines = [
        f"Total cost: {dollars(ledger.cost_usd)}",
        f"Time in model calls: {ledger.api_seconds:.1f} s",
        f"Time since the start: {session.stamp.monotonic() - session.begun:.1f} s",
        *(f"{model}: {spent(used)}" for model, used in ledger.by_model().items()),
    ]
    return {"text": "\n".join(lines)}


def spent(used: ModelUsage) -> str:
    return (
        f"{used.inputTokens} input, {used.outputTokens} output, {used.cacheReadInputTokens} cache read, "
        f"{used.cacheCreationInputTokens} cache write ({dollars(used.costUSD)})"
    )


def dollars(amount: float | None) -> str:
    return "unknown: a model has no price here (see PARLEY_PRICES)" if amount is None else f"${amount:.4f}"
