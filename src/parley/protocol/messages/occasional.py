"""`system` messages that most sessions never send, loaded when one is sent or received."""

from __future__ import annotations

from typing import Any, Literal

from parley.protocol.base import UNSET, Json, Message, Number, UnsetType, message


@message
class CompactBoundary(Message, frozen=True, kw_only=True, tag="system"):
    """The history before this point was replaced by a summary."""

    subtype: Literal["compact_boundary"] = "compact_boundary"
    compact_metadata: Json
    logical_parent_uuid: str | None | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class HookStarted(Message, frozen=True, kw_only=True, tag="system"):
    """A hook started."""

    subtype: Literal["hook_started"] = "hook_started"
    hook_id: str
    hook_name: str
    hook_event: str
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class HookProgress(Message, frozen=True, kw_only=True, tag="system"):
    """Output of a running hook so far."""

    subtype: Literal["hook_progress"] = "hook_progress"
    hook_id: str
    hook_name: str
    hook_event: str
    stdout: str
    stderr: str
    output: str
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class HookResponse(Message, frozen=True, kw_only=True, tag="system"):
    """A hook finished."""

    subtype: Literal["hook_response"] = "hook_response"
    hook_id: str
    hook_name: str
    hook_event: str
    output: str
    stdout: str
    stderr: str
    outcome: str
    exit_code: int | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class MirrorError(Message, frozen=True, kw_only=True, tag="system"):
    """Created by a client whose session store failed, never by the engine."""

    subtype: Literal["mirror_error"] = "mirror_error"
    error: str
    key: Json | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class ControlRequestProgress(Message, frozen=True, kw_only=True, tag="system"):
    """The work of a control request that takes long: it `started`, or a model call is repeated (`api_retry`)."""

    subtype: Literal["control_request_progress"] = "control_request_progress"
    request_id: str
    status: str
    attempt: int | UnsetType = UNSET
    max_retries: int | UnsetType = UNSET
    retry_delay_ms: Number | UnsetType = UNSET
    error_status: int | None | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class Notification(Message, frozen=True, kw_only=True, tag="system"):
    """A short notification for the user. Read but never sent."""

    subtype: Literal["notification"] = "notification"
    key: str
    text: str
    priority: str
    color: str | UnsetType = UNSET
    timeout_ms: Number | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class LocalCommandOutput(Message, frozen=True, kw_only=True, tag="system"):
    """Output of a slash command that ran without the model. Read but never sent."""

    subtype: Literal["local_command_output"] = "local_command_output"
    content: str
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class CommandsChanged(Message, frozen=True, kw_only=True, tag="system"):
    """The list of slash commands changed."""

    subtype: Literal["commands_changed"] = "commands_changed"
    commands: list[Json]
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class ModelRefusalFallback(Message, frozen=True, kw_only=True, tag="system"):
    """The model refused, and another model answers; or (`revert`) the session's own model is used again."""

    subtype: Literal["model_refusal_fallback"] = "model_refusal_fallback"
    trigger: str
    direction: str
    original_model: str
    fallback_model: str
    request_id: str | None
    content: str
    scope: str | UnsetType = UNSET
    api_refusal_category: str | None | UnsetType = UNSET
    api_refusal_explanation: str | None | UnsetType = UNSET
    retracted_message_uuids: list[str] | UnsetType = UNSET
    refused_user_message_uuid: str | None | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class ModelRefusalNoFallback(Message, frozen=True, kw_only=True, tag="system"):
    """The model refused, and there is no other model to retry with."""

    subtype: Literal["model_refusal_no_fallback"] = "model_refusal_no_fallback"
    original_model: str
    request_id: str | None
    content: str
    api_refusal_category: str | None | UnsetType = UNSET
    api_refusal_explanation: str | None | UnsetType = UNSET
    refused_user_message_uuid: str | None | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class MemoryRecall(Message, frozen=True, kw_only=True, tag="system"):
    """Memories were added to the context."""

    subtype: Literal["memory_recall"] = "memory_recall"
    mode: str
    memories: list[Json]
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class ElicitationComplete(Message, frozen=True, kw_only=True, tag="system"):
    """An elicitation that the user completed outside the client has finished."""

    subtype: Literal["elicitation_complete"] = "elicitation_complete"
    mcp_server_name: str
    elicitation_id: str
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class FilesPersisted(Message, frozen=True, kw_only=True, tag="system"):
    """Files were saved. Read but never sent."""

    subtype: Literal["files_persisted"] = "files_persisted"
    files: list[Json]
    failed: list[Json]
    processed_at: str
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class PluginInstall(Message, frozen=True, kw_only=True, tag="system"):
    """Progress of a plugin installation. Read but never sent."""

    subtype: Literal["plugin_install"] = "plugin_install"
    status: str
    name: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class SessionWritesLost(Message, frozen=True, kw_only=True, tag="system"):
    """The transcript could not be written because the disk is full."""

    subtype: Literal["session_writes_lost"] = "session_writes_lost"
    error_code: str
    lost: list[Any]
    transcript_session_ids: list[str] | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class WorkerShuttingDown(Message, frozen=True, kw_only=True, tag="system"):
    """The engine process is about to exit. Read but never sent."""

    subtype: Literal["worker_shutting_down"] = "worker_shutting_down"
    reason: str
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
