"""The `result` message, which ends every turn, and its usage numbers."""

from __future__ import annotations

from typing import Any

from parley.protocol.base import UNSET, Json, Message, Number, Struct, UnsetType, message


class Denial(Struct, frozen=True, kw_only=True):
    """A tool call that was not allowed."""

    tool_name: str
    tool_use_id: str
    tool_input: Json


class ModelUsage(Struct, frozen=True, kw_only=True):
    """Usage of one model, including subagents and internal calls."""

    inputTokens: int
    outputTokens: int
    cacheReadInputTokens: int
    cacheCreationInputTokens: int
    webSearchRequests: int
    costUSD: Number | None
    """null if the price of the model is unknown."""
    contextWindow: int
    maxOutputTokens: int
    thinkingTokens: int | UnsetType = UNSET
    cacheCreationEphemeral5mInputTokens: int | UnsetType = UNSET
    cacheCreationEphemeral1hInputTokens: int | UnsetType = UNSET
    canonicalModel: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    costBasis: str | UnsetType = UNSET


@message
class Result(Message, frozen=True, kw_only=True, tag="result"):
    """The end of a turn. Every turn has exactly one."""

    subtype: str
    is_error: bool | UnsetType = UNSET
    duration_ms: Number | UnsetType = UNSET
    duration_api_ms: Number | UnsetType = UNSET
    num_turns: int | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    result: str | UnsetType = UNSET
    stop_reason: str | None | UnsetType = UNSET
    terminal_reason: str | UnsetType = UNSET
    total_cost_usd: Number | None | UnsetType = UNSET
    usage: Json | UnsetType = UNSET
    modelUsage: dict[str, ModelUsage] | UnsetType = UNSET
    model_usage_since_last_result: dict[str, ModelUsage] | UnsetType = UNSET
    permission_denials: list[Denial] | UnsetType = UNSET
    errors: list[str] | UnsetType = UNSET
    structured_output: Any = UNSET
    structured_output_report: Json | UnsetType = UNSET
    """Parley only: `attempts`, whether it was `repaired`, and the last validation `errors`."""
    deferred_tool_use: Json | UnsetType = UNSET
    api_error_status: int | None | UnsetType = UNSET
    api_error_type: str | UnsetType = UNSET
    api_error: str | UnsetType = UNSET
    fault_type: str | UnsetType = UNSET
    """Parley only, for a turn that could not run: `validation_error`, `tool_error` or `system_error`."""
    origin: Json | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    queued_turn_count: int | UnsetType = UNSET
    result_index: int | UnsetType = UNSET
    subagent_stats: Json | UnsetType = UNSET
    fast_mode_state: str | UnsetType = UNSET
    fast_mode_disabled_reason: str | UnsetType = UNSET
    safety_stops: int | UnsetType = UNSET
    ttft_ms: Number | UnsetType = UNSET
    ttft_stream_ms: Number | UnsetType = UNSET
    time_to_request_ms: Number | UnsetType = UNSET
    first_content_frame_ms: Number | UnsetType = UNSET
    request_sent_wall_ms: Number | UnsetType = UNSET
    first_request_input_tokens: int | UnsetType = UNSET
    first_request_cache_read_input_tokens: int | UnsetType = UNSET
    user_message_uuid: str | UnsetType = UNSET
    user_message_uuids: list[str] | UnsetType = UNSET
    resume_reason: str | UnsetType = UNSET
    local_command: Any = UNSET
    startup_failure_reason: str | UnsetType = UNSET
    invalid_config_file: str | UnsetType = UNSET
    credential_expires_at: Any = UNSET
    # The flat form of the spec001 dialect.
    error: Json | UnsetType = UNSET
    input_tokens: int | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET
    cache_creation_tokens: int | UnsetType = UNSET
    cache_read_tokens: int | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET
