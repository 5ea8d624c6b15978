"""Other messages: heartbeats, rate limits, progress and status."""

from __future__ import annotations

from typing import Any

from parley.protocol.base import BOTH, UNSET, Json, Message, Number, Struct, UnsetType, message


@message
class KeepAlive(Message, frozen=True, kw_only=True, tag="keep_alive"):
    """A heartbeat in either direction. No reply."""

    senders = BOTH


class RateLimitInfo(Struct, frozen=True, kw_only=True):
    """The status of a rate limit window."""

    status: str
    resetsAt: Number | UnsetType = UNSET
    rateLimitType: str | UnsetType = UNSET
    utilization: Number | UnsetType = UNSET
    overageStatus: str | UnsetType = UNSET
    overageResetsAt: Number | UnsetType = UNSET
    overageDisabledReason: str | UnsetType = UNSET
    isUsingOverage: bool | UnsetType = UNSET
    overageInUse: bool | UnsetType = UNSET
    overageEnabled: bool | UnsetType = UNSET
    surpassedThreshold: Number | UnsetType = UNSET
    limitScope: str | UnsetType = UNSET
    errorCode: str | UnsetType = UNSET
    canUserPurchaseCredits: bool | UnsetType = UNSET
    hasChargeableSavedPaymentMethod: bool | UnsetType = UNSET


@message
class RateLimitEvent(Message, frozen=True, kw_only=True, tag="rate_limit_event"):
    """A quota window changed. The official Python SDK up to 0.1.20 fails on this message."""

    rate_limit_info: RateLimitInfo
    uuid: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET


@message
class ApiErrorLine(Message, frozen=True, kw_only=True, tag="error"):
    """A bare API error. Read but never sent, because it ends the stream of the official Python client."""

    error: Json


@message
class ConversationReset(Message, frozen=True, kw_only=True, tag="conversation_reset"):
    """The conversation was replaced, for example by /clear."""

    new_conversation_id: str
    trigger: str | UnsetType = UNSET
    user_message_uuid: str | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET


@message
class TranscriptMirror(Message, frozen=True, kw_only=True, tag="transcript_mirror"):
    """Copies of transcript lines, for a client with its own session store."""

    filePath: str
    entries: list[Json]


@message
class CommandLifecycle(Message, frozen=True, kw_only=True, tag="command_lifecycle"):
    """State of a prompt that has a uuid: queued, started, completed or cancelled."""

    command_uuid: str
    state: str
    uuid: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET


@message
class ToolProgress(Message, frozen=True, kw_only=True, tag="tool_progress"):
    """A long tool is still running."""

    tool_use_id: str
    tool_name: str
    parent_tool_use_id: str | None
    elapsed_time_seconds: Number
    task_id: str | UnsetType = UNSET
    heartbeat: bool | UnsetType = UNSET
    subagent_type: str | UnsetType = UNSET
    subagent_retry: Json | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET


@message
class ToolUseSummary(Message, frozen=True, kw_only=True, tag="tool_use_summary"):
    """A summary of preceding tool calls. Read but never sent."""

    summary: str
    preceding_tool_use_ids: list[str]
    uuid: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET


@message
class AuthStatus(Message, frozen=True, kw_only=True, tag="auth_status"):
    """Progress of a login. Read but never sent."""

    isAuthenticating: bool
    output: list[Any]
    error: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET


@message
class PromptSuggestion(Message, frozen=True, kw_only=True, tag="prompt_suggestion"):
    """A suggested next prompt, for clients that requested suggestions."""

    suggestion: str
    uuid: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET


@message
class ActiveGoal(Message, frozen=True, kw_only=True, tag="active_goal"):
    """The goal of the session, as a turn begins and at each change, for clients that get session states."""

    value: Json | None
    """`condition`, `iterations`, `set_at` in milliseconds, `tokens_at_start`, `last_reason`; null if there is none."""
    uuid: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
