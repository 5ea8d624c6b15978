"""The line at the end of a run: turns, tokens, cost, time, and how to continue. Pure."""

from __future__ import annotations

from parley.cli.terminal.calls import format_seconds
from parley.protocol.messages.result import Result

SHORT_ID_CHARS = 8


def summarize(result: Result, *, is_stored: bool) -> str:
    parts = [count(result.num_turns, "turn")] if isinstance(result.num_turns, int) else []
    if isinstance(result.modelUsage, dict) and result.modelUsage:
        used = result.modelUsage.values()
        read = sum(one.inputTokens + one.cacheReadInputTokens + one.cacheCreationInputTokens for one in used)
        parts.append(f"{read:,} tokens in, {sum(one.outputTokens for one in used):,} out")
    if not isinstance(result.total_cost_usd, int | float):
        parts.append("cost unknown")
    else:
        parts.append(f"${result.total_cost_usd:.4f}")
    if isinstance(result.duration_ms, int | float):
        parts.append(format_seconds(result.duration_ms / 1000))
    if isinstance(result.session_id, str) and is_stored:
        parts.append(f'session {result.session_id[:SHORT_ID_CHARS]}, continue: parley -c "…"')
    return " · ".join(parts)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
