"""The line at the end of a run: model calls, tokens, cost, time, and how to continue. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from parley.protocol.base import UNSET
from parley.protocol.messages.result import Result
from parley.terminal.rendering.calls import format_seconds

SHORT_ID_CHARS = 8


def summarize(results: Sequence[Result], *, is_stored: bool) -> str:
    """`results`: one for the prompt, and one for each background task that was reported to the model later."""
    result = results[-1]
    calls = sum(map(count_model_calls, results))
    milliseconds = sum(one.duration_ms for one in results if isinstance(one.duration_ms, int | float))
    parts = [count(calls, "model call")]
    if isinstance(result.modelUsage, dict) and result.modelUsage:
        used = result.modelUsage.values()
        read = sum(one.inputTokens + one.cacheReadInputTokens + one.cacheCreationInputTokens for one in used)
        parts.append(f"{read:,} tokens in, {sum(one.outputTokens for one in used):,} out")
    if not isinstance(result.total_cost_usd, int | float):
        parts.append("cost unknown")
    else:
        parts.append(f"${result.total_cost_usd:.4f}" if result.total_cost_usd else "$0")
    parts.append(format_seconds(milliseconds / 1000))
    if isinstance(result.session_id, str) and is_stored:
        parts.append(f"parley -c resumes {result.session_id[:SHORT_ID_CHARS]}")
    return " · ".join(parts)


def count_model_calls(result: Result) -> int:
    """`num_turns` without the call that it counts although it was not made: after the limit, or the output tool."""
    is_one_more = result.terminal_reason == "max_turns" or result.structured_output is not UNSET
    return result.num_turns - is_one_more if isinstance(result.num_turns, int) else 0


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
