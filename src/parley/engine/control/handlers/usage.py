"""Reports: what fills the context window, what was used, and what it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from parley.engine.accounting.ledger import format_usd
from parley.engine.context.usage_report import report_context, report_templates
from parley.errors import NotPossible
from parley.protocol.base import UNSET, Json, to_builtins
from parley.protocol.messages import panel_requests
from parley.protocol.messages.result import ModelUsage

if TYPE_CHECKING:
    from parley.engine.session.session import Session


DETAILS = ("full", "summary")


def get_context_usage(session: Session, request: panel_requests.GetContextUsage) -> panel_requests.ContextUsage:
    """The numbers are estimates: `full` and `summary` have the same answer."""
    if request.detail not in (UNSET, None, *DETAILS):
        raise NotPossible(f"detail {request.detail!r:.100} is unknown (choose from {', '.join(DETAILS)})")
    commands = session.commands
    usage = report_context(session.conversation, session.servers.quoted_instructions())
    skills, slash_commands = report_templates(commands.templates().values(), commands.offered())
    return msgspec.structs.replace(usage, skills=skills, slashCommands=slash_commands)


def get_usage(session: Session, request: panel_requests.GetUsage) -> Json:
    """The totals of a session. An API key has no plan, so there are no rate limits of one."""
    ledger = session.ledger
    return {
        "session": {
            "total_cost_usd": ledger.cost_usd,
            "total_api_duration_ms": round(ledger.api_seconds * 1000),
            "total_duration_ms": round((session.clock.monotonic() - session.started_at) * 1000),
            "total_lines_added": ledger.lines_added,
            "total_lines_removed": ledger.lines_removed,
            "model_usage": {model: to_builtins(used) for model, used in ledger.by_model().items()},
        },
        "subscription_type": None,
        "rate_limits_available": False,
        "rate_limits": None,
        "behaviors": None,
    }


def get_session_cost(session: Session, request: panel_requests.GetSessionCost) -> Json:
    """The cost as text for a person."""
    ledger, total_seconds = session.ledger, session.clock.monotonic() - session.started_at
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
