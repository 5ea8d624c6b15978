"""The options of a session with what variables and settings add, and the limits that follow from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from parley.compose import memory
from parley.compose.launch_context import LaunchContext
from parley.compose.registry import get_profile, include_partial_messages
from parley.engine.context.history import CompactionPolicy, make_policy
from parley.engine.session.config import LINE_CAP_BYTES, SessionLimits
from parley.protocol.options import CliOptions
from parley.settings.env_vars import (
    OptionValues,
    background_wait_seconds,
    heartbeat_seconds,
    is_truthy,
    read_int,
    read_int_or,
)

if TYPE_CHECKING:
    from parley.engine.turn.structured_output import OutputSchema
    from parley.models.http.call import Deadlines

MIN_LINE_BYTES = 50_000


def option_values(launch: LaunchContext) -> OptionValues:
    merged = launch.settings.merged
    return OptionValues(launch.options, launch.environment, merged.get, merged.managed_limits())


def resolve_options(launch: LaunchContext) -> CliOptions:
    """The options with what variables, settings and the dialect say, and without the key. Raises UsageError."""
    given, merged, found = launch.options, launch.settings.merged, option_values(launch).resolve()
    thinks = found.max_thinking_tokens is not None or merged.get("alwaysThinkingEnabled") is not False
    return found.replace(
        include_partial_messages=include_partial_messages(given),
        include_hook_events=given.include_hook_events or get_profile(given).hook_events,
        thinking=found.thinking or (None if thinks else "disabled"),
        thinking_display=found.thinking_display or ("summarized" if merged.is_on("showThinkingSummaries") else None),
        prompt_suggestions=found.prompt_suggestions and merged.get("promptSuggestionEnabled") is not False,
        api_key=None,
    )


def make_limits(launch: LaunchContext) -> SessionLimits:
    """Raises UsageError."""
    environment = launch.environment
    return SessionLimits(
        max_agent_turns=launch.settings.merged.managed_limits().get("maxTurns"),
        max_parallel_tools=max(1, read_int_or(environment, "CLAUDE_CODE_MAX_TOOL_USE_CONCURRENCY", 10)),
        max_line_bytes=max_line_bytes(launch),
        heartbeat_seconds=heartbeat_seconds(environment),
        background_wait_seconds=background_wait_seconds(environment),
    )


def max_line_bytes(launch: LaunchContext) -> int:
    """The longest line that is sent."""
    return max(MIN_LINE_BYTES, launch.options.max_line_bytes or LINE_CAP_BYTES)


def make_deadlines(launch: LaunchContext) -> Deadlines:
    """How long to wait for a silent backend. Raises UsageError."""
    from parley.models.http.call import Deadlines

    return Deadlines.from_settings(option_values(launch).deadlines())


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


def output_schema(options: CliOptions) -> OutputSchema | None:
    """The schema of the result. Raises UsageError if it is not valid."""
    if options.json_schema is None:
        return None
    from parley.engine.turn.structured_output import parse_output_schema

    return parse_output_schema(options.json_schema, options.max_schema_attempts)
