"""Limits that a person sets: by a flag, by a variable, or under `limits` in settings. One row each.

    given = Given(options, environment, merged.get("limits"))
    given.get("maxTurns")       # what is set, or None
    given.deadlines()           # those of model calls that are set, in seconds

The flag counts first, then the variable, then the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parley.errors import UsageError
from parley.protocol.base import Struct
from parley.protocol.options import BY_FLAG, CliOptions


class Limit(Struct, frozen=True, kw_only=True):
    flag: str | None = None
    variable: str | None = None
    whole: bool = True
    least: int = 1


LIMITS: dict[str, Limit] = {
    "maxTurns": Limit(flag="--max-turns"),
    "maxBudgetUsd": Limit(flag="--max-budget-usd", whole=False, least=0),
    "maxBudgetTokens": Limit(flag="--max-budget-tokens"),
    "maxBudgetCalls": Limit(flag="--max-budget-calls"),
    "maxBudgetSeconds": Limit(flag="--max-budget-seconds", whole=False, least=0),
    "taskBudget": Limit(flag="--task-budget"),
    "maxRetries": Limit(variable="CLAUDE_CODE_MAX_RETRIES", least=0),
    "maxOutputTokens": Limit(variable="CLAUDE_CODE_MAX_OUTPUT_TOKENS"),
    "structuredOutputAttempts": Limit(variable="MAX_STRUCTURED_OUTPUT_RETRIES"),
    # No wait is endless: 0 is the default. A variable bounds all that it names: the whole request with its first
    # byte, and a stream without content whether or not there are pings.
    "connectTimeoutMs": Limit(least=0),
    "firstByteTimeoutMs": Limit(variable="API_TIMEOUT_MS", least=0),
    "streamIdleTimeoutMs": Limit(variable="CLAUDE_STREAM_IDLE_TIMEOUT_MS", least=0),
    "contentTimeoutMs": Limit(variable="CLAUDE_STREAM_IDLE_TIMEOUT_MS", least=0),
    "requestTimeoutMs": Limit(variable="API_TIMEOUT_MS", least=0),
}


DEADLINES = {
    "connectTimeoutMs": "connect_seconds",
    "firstByteTimeoutMs": "first_byte_seconds",
    "streamIdleTimeoutMs": "silence_seconds",
    "contentTimeoutMs": "content_seconds",
    "requestTimeoutMs": "request_seconds",
}


class LimitValues(Struct, frozen=True):
    """What a person said about limits."""

    options: CliOptions
    environment: Mapping[str, str]
    settings: Mapping[str, Any] | None

    def get(self, name: str) -> Any:
        """What is set, or None. Raises UsageError for what no such limit can be."""
        row = LIMITS[name]
        flag = self.options.given.get(BY_FLAG[row.flag].field) if row.flag else None
        if flag is not None:
            return check_value(flag, row, f"option '{row.flag}'")
        if row.variable and (text := self.environment.get(row.variable)):
            return check_value(parse_number(text, row.variable), row, row.variable)
        return (self.settings or {}).get(name)

    def get_or(self, name: str, default: int) -> Any:
        value = self.get(name)
        return default if value is None else value

    def deadlines(self) -> dict[str, float]:
        """By the names that the adapters have for them. Raises UsageError."""
        named = ((field, self.get(name)) for name, field in DEADLINES.items())
        return {field: value / 1000 for field, value in named if value}


def parse_number(text: str, name: str) -> float:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name} must be a whole number, not {text!r}") from None


def check_value(value: float, row: Limit, name: str) -> float:
    if not is_in_range(value, row):
        raise UsageError(f"{name} must be {'a whole number' if row.whole else 'a number'} of at least {row.least}")
    return value


def is_in_range(value: Any, row: Limit) -> bool:
    kinds = int if row.whole else int | float
    return isinstance(value, kinds) and not isinstance(value, bool) and value >= row.least


def are_limits(value: Any) -> bool:
    """Whether this can stand under `limits`: a name that is spelled wrong would be a limit that never applies."""
    return isinstance(value, dict) and all(
        name in LIMITS and is_in_range(given, LIMITS[name]) for name, given in value.items()
    )
