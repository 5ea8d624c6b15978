"""How far a session may go: turns, money, retries, the size of lines, the form of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from parley.compose import memory
from parley.compose.launch_context import Basis
from parley.engine.accounting.budget import Budget
from parley.engine.context.compaction import Policy, policy
from parley.engine.session.config import Limits
from parley.engine.turn.result_spill import LINE_CAP_BYTES
from parley.engine.turn.retry import DEFAULT_RETRIES
from parley.engine.turn.structured_output import DEFAULT_ATTEMPTS, Form, read_form
from parley.settings.env_vars import background_wait_seconds, heartbeat_seconds, truthy, whole, whole_or
from parley.settings.limits import Given

if TYPE_CHECKING:
    from parley.models.http.call import Deadlines

SMALLEST_LINE_BYTES = 50_000


def given_limits(basis: Basis) -> Given:
    return Given(basis.options, basis.environment, basis.settings.merged.get("limits"))


def limits(basis: Basis) -> Limits:
    """Raises UsageError."""
    given, environment = given_limits(basis), basis.environment
    given.deadlines()
    return Limits(
        max_turns=given.get("maxTurns"),
        budget=Budget(
            usd=given.get("maxBudgetUsd"),
            tokens=given.get("maxBudgetTokens"),
            calls=given.get("maxBudgetCalls"),
            seconds=given.get("maxBudgetSeconds"),
        ),
        task_budget=given.get("taskBudget"),
        max_retries=given.get_or("maxRetries", DEFAULT_RETRIES),
        max_form_attempts=given.get_or("structuredOutputAttempts", DEFAULT_ATTEMPTS),
        max_output_tokens=given.get("maxOutputTokens"),
        max_parallel_tools=max(1, whole_or(environment, "CLAUDE_CODE_MAX_TOOL_USE_CONCURRENCY", 10)),
        line_bytes=line_bytes(basis),
        fail_on_denial=basis.options.fail_on_denial,
        may_work_behind=not truthy(environment.get("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS")),
        heartbeat_seconds=heartbeat_seconds(environment),
        background_wait_seconds=background_wait_seconds(environment),
    )


def line_bytes(basis: Basis) -> int:
    """How long a line may be that goes out."""
    return max(SMALLEST_LINE_BYTES, basis.options.max_line_bytes or LINE_CAP_BYTES)


def deadlines(basis: Basis) -> Deadlines:
    """How long a silent backend is waited for. Raises UsageError."""
    from parley.models.http.call import Deadlines

    return Deadlines.of(given_limits(basis).deadlines())


def compaction(basis: Basis) -> Policy:
    """Raises UsageError."""
    environment = basis.environment
    found = policy(
        disabled=truthy(environment.get("DISABLE_COMPACT")),
        auto_disabled=truthy(environment.get("DISABLE_AUTO_COMPACT")),
        flag=basis.options.autocompact,
        window=basis.settings.merged.get("autoCompactWindow"),
        percent=whole(environment, "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"),
    )
    view_tokens = memory.policy(basis).view_tokens if memory.place(basis) is not None else None
    return found if view_tokens is None else replace(found, most_tokens=view_tokens)


def form(basis: Basis) -> Form | None:
    """What an answer must look like. Raises UsageError if that is no schema."""
    text, attempts = basis.options.json_schema, given_limits(basis).get("structuredOutputAttempts")
    return None if text is None else read_form(text, attempts or DEFAULT_ATTEMPTS)
