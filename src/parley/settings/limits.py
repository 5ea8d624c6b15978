"""Limits that a user sets by a flag, by an environment variable, or under `limits` in settings.

    limits = LimitValues(options, environment, merged.get("limits"))
    limits.get("maxTurns")       # the value, or None
    limits.deadlines()           # the timeouts of model calls that are set, in seconds

The flag takes precedence over the variable, and the variable over the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parley.errors import UsageError
from parley.protocol.base import Struct
from parley.protocol.options import BY_FLAG, CliOptions


class Limit(Struct, frozen=True, kw_only=True):
    """Where a limit can be set, and its range."""

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
    # 0 means the default; no timeout can be disabled. One variable can set two limits: API_TIMEOUT_MS limits the
    # request and its first byte, CLAUDE_STREAM_IDLE_TIMEOUT_MS a stream without data and one with only pings.
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
    """The limits of a session."""

    options: CliOptions
    environment: Mapping[str, str]
    settings: Mapping[str, Any] | None

    def get(self, name: str) -> Any:
        """Return the value of a limit, or None. Raises UsageError for an invalid value."""
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
        """Return the timeouts by the names that the model backends use. Raises UsageError."""
        named = ((field, self.get(name)) for name, field in DEADLINES.items())
        return {field: value / 1000 for field, value in named if value}


def parse_number(text: str, name: str) -> float:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name} must be a whole number, not {text!r}") from None


def check_value(value: float, row: Limit, name: str) -> float:
    if not is_in_range(value, row):
        raise UsageError(f"{name} must be {'a whole number' if row.whole else 'a number'}, {row.least} or more")
    return value


def is_in_range(value: Any, row: Limit) -> bool:
    kinds = int if row.whole else int | float
    return isinstance(value, kinds) and not isinstance(value, bool) and value >= row.least


def are_limits(value: Any) -> bool:
    """Whether a value is valid under `limits`. Unknown names are invalid: a misspelled limit would never apply."""
    return isinstance(value, dict) and all(
        name in LIMITS and is_in_range(given, LIMITS[name]) for name, given in value.items()
    )
