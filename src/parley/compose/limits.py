"""The limits of a session: turns, cost, retries, line length, and the schema of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from parley.compose import memory
from parley.compose.launch_context import LaunchContext
from parley.engine.accounting.budget import Budget
from parley.engine.context.compaction import CompactionPolicy, make_policy
from parley.engine.session.config import SessionLimits
from parley.engine.turn.result_spill import LINE_CAP_BYTES
from parley.engine.turn.retry import DEFAULT_RETRIES
from parley.engine.turn.structured_output import DEFAULT_ATTEMPTS, OutputSchema, parse_output_schema
from parley.settings.env_vars import background_wait_seconds, heartbeat_seconds, is_truthy, read_int, read_int_or
from parley.settings.limits import LimitValues

if TYPE_CHECKING:
    from parley.models.http.call import Deadlines

MIN_LINE_BYTES = 50_000


def settings_limits(launch: LaunchContext) -> LimitValues:
    return LimitValues(launch.options, launch.environment, launch.settings.merged.get("limits"))


def make_limits(launch: LaunchContext) -> SessionLimits:
    """Raises UsageError."""
    given, environment = settings_limits(launch), launch.environment
    given.deadlines()
    return SessionLimits(
        max_turns=given.get("maxTurns"),
        budget=Budget(
            usd=given.get("maxBudgetUsd"),
            tokens=given.get("maxBudgetTokens"),
            calls=given.get("maxBudgetCalls"),
            seconds=given.get("maxBudgetSeconds"),
        ),
        task_budget=given.get("taskBudget"),
        max_retries=given.get_or("maxRetries", DEFAULT_RETRIES),
        max_schema_attempts=given.get_or("structuredOutputAttempts", DEFAULT_ATTEMPTS),
        max_output_tokens=given.get("maxOutputTokens"),
        max_parallel_tools=max(1, read_int_or(environment, "CLAUDE_CODE_MAX_TOOL_USE_CONCURRENCY", 10)),
        max_line_bytes=max_line_bytes(launch),
        fail_on_denial=launch.options.fail_on_denial,
        allow_background_tasks=not is_truthy(environment.get("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS")),
        heartbeat_seconds=heartbeat_seconds(environment),
        background_wait_seconds=background_wait_seconds(environment),
    )


def max_line_bytes(launch: LaunchContext) -> int:
    """The longest line that is sent."""
    return max(MIN_LINE_BYTES, launch.options.max_line_bytes or LINE_CAP_BYTES)


def make_deadlines(launch: LaunchContext) -> Deadlines:
    """How long to wait for a silent backend. Raises UsageError."""
    from parley.models.http.call import Deadlines

    return Deadlines.from_settings(settings_limits(launch).deadlines())


def compaction_policy(launch: LaunchContext) -> CompactionPolicy:
    """Raises UsageError."""
    environment = launch.environment
    found = make_policy(
        disabled=is_truthy(environment.get("DISABLE_COMPACT")),
        auto_disabled=is_truthy(environment.get("DISABLE_AUTO_COMPACT")),
        flag=launch.options.autocompact,
        window=launch.settings.merged.get("autoCompactWindow"),
        percent=read_int(environment, "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"),
    )
    view_tokens = memory.make_policy(launch).view_tokens if memory.memory_path(launch) is not None else None
    return found if view_tokens is None else replace(found, max_tokens=view_tokens)


def output_schema(launch: LaunchContext) -> OutputSchema | None:
    """The schema of the result. Raises UsageError if it is not valid."""
    text, attempts = launch.options.json_schema, settings_limits(launch).get("structuredOutputAttempts")
    return None if text is None else parse_output_schema(text, attempts or DEFAULT_ATTEMPTS)
