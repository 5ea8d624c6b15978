"""`system` messages: properties and events of the session."""

from __future__ import annotations

from typing import Any, Literal

from parley.protocol.base import UNSET, Json, Message, Number, Struct, UnsetType, message


class ServerState(Struct, frozen=True, kw_only=True):
    """An MCP server in `init`."""

    name: str
    status: str
    source: str | UnsetType = UNSET


@message
class Init(Message, frozen=True, kw_only=True, tag="system"):
    """The session's properties, sent first in every turn."""

    subtype: Literal["init"] = "init"
    cwd: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    tools: list[Any] | UnsetType = UNSET
    """Names. The spec001 dialect sends objects with schemas."""
    mcp_servers: list[ServerState] | UnsetType = UNSET
    model: str | UnsetType = UNSET
    permissionMode: str | UnsetType = UNSET
    slash_commands: list[str] | UnsetType = UNSET
    terminal_slash_commands: list[str] | UnsetType = UNSET
    apiKeySource: str | UnsetType = UNSET
    claude_code_version: str | UnsetType = UNSET
    parley_version: str | UnsetType = UNSET
    output_style: str | UnsetType = UNSET
    agents: list[str] | UnsetType = UNSET
    skills: list[str] | UnsetType = UNSET
    plugins: list[Json] | UnsetType = UNSET
    plugin_errors: list[Json] | UnsetType = UNSET
    betas: list[str] | UnsetType = UNSET
    capabilities: list[str] | UnsetType = UNSET
    analytics_disabled: bool | UnsetType = UNSET
    product_feedback_disabled: bool | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    memory_paths: Json | UnsetType = UNSET
    original_cwd: str | UnsetType = UNSET
    additional_directories: list[str] | UnsetType = UNSET
    messaging_socket_path: str | UnsetType = UNSET
    fast_mode_state: str | UnsetType = UNSET
    fast_mode_disabled_reason: str | UnsetType = UNSET
    per_turn_effort_active: bool | UnsetType = UNSET
    ultrathink_available: bool | UnsetType = UNSET
    ultrathink_typed_raises: bool | UnsetType = UNSET
    effort: str | UnsetType = UNSET
    view_mode: str | UnsetType = UNSET
    user_message_uuids: list[str] | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET


@message
class Status(Message, frozen=True, kw_only=True, tag="system"):
    """A temporary state, or a changed permission mode. In miriad also the reply to `control/status`."""

    subtype: Literal["status"] = "status"
    status: str | None | UnsetType = UNSET
    permissionMode: str | UnsetType = UNSET
    compact_result: str | UnsetType = UNSET
    compact_error: str | UnsetType = UNSET
    compact_output_chars: int | UnsetType = UNSET
    session_id: str | None | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    running: bool | UnsetType = UNSET
    queued_messages: int | UnsetType = UNSET
    request_id: Any = UNSET


@message
class CompactBoundary(Message, frozen=True, kw_only=True, tag="system"):
    """The history before this point was replaced by a summary."""

    subtype: Literal["compact_boundary"] = "compact_boundary"
    compact_metadata: Json
    logical_parent_uuid: str | None | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


class TaskUsage(Struct, frozen=True, kw_only=True):
    """Usage of a task so far."""

    total_tokens: int
    tool_uses: int
    duration_ms: Number


@message
class TaskStarted(Message, frozen=True, kw_only=True, tag="system"):
    """A subagent or a background command started."""

    subtype: Literal["task_started"] = "task_started"
    task_id: str
    description: str
    tool_use_id: str | UnsetType = UNSET
    task_type: str | UnsetType = UNSET
    subagent_type: str | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    is_backgrounded: bool | UnsetType = UNSET
    spawn_depth: int | UnsetType = UNSET
    parent_task_id: str | UnsetType = UNSET
    workflow_name: str | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    skip_transcript: bool | UnsetType = UNSET
    ambient: bool | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class TaskProgress(Message, frozen=True, kw_only=True, tag="system"):
    """Running totals of a task."""

    subtype: Literal["task_progress"] = "task_progress"
    task_id: str
    description: str
    usage: TaskUsage
    tool_use_id: str | UnsetType = UNSET
    last_tool_name: str | UnsetType = UNSET
    subagent_type: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class TaskUpdated(Message, frozen=True, kw_only=True, tag="system"):
    """A task's state changed. The end of a task may be reported only here."""

    subtype: Literal["task_updated"] = "task_updated"
    task_id: str
    patch: Json
    run_id: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class TaskNotification(Message, frozen=True, kw_only=True, tag="system"):
    """A task ended."""

    subtype: Literal["task_notification"] = "task_notification"
    task_id: str
    status: str
    output_file: str
    summary: str
    tool_use_id: str | UnsetType = UNSET
    usage: TaskUsage | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    resource_links: list[Any] | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    skip_transcript: bool | UnsetType = UNSET
    ambient: bool | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class BackgroundTasksChanged(Message, frozen=True, kw_only=True, tag="system"):
    """All live background tasks."""

    subtype: Literal["background_tasks_changed"] = "background_tasks_changed"
    tasks: list[Json]
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class SessionStateChanged(Message, frozen=True, kw_only=True, tag="system"):
    """idle, running or requires_action; only for clients that asked for it."""

    subtype: Literal["session_state_changed"] = "session_state_changed"
    state: str
    sdk_host_only: bool | UnsetType = UNSET
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
class ApiRetry(Message, frozen=True, kw_only=True, tag="system"):
    """A model call failed and will be retried."""

    subtype: Literal["api_retry"] = "api_retry"
    attempt: int
    max_retries: int
    retry_delay_ms: Number
    error_status: int | None
    error: str
    no_response: Json | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class ControlRequestProgress(Message, frozen=True, kw_only=True, tag="system"):
    """A control request takes long. Read but never sent."""

    subtype: Literal["control_request_progress"] = "control_request_progress"
    request_id: str
    status: str
    attempt: int | UnsetType = UNSET
    max_retries: int | UnsetType = UNSET
    retry_delay_ms: Number | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class PermissionDenied(Message, frozen=True, kw_only=True, tag="system"):
    """A tool call was denied without asking the client."""

    subtype: Literal["permission_denied"] = "permission_denied"
    tool_name: str
    tool_use_id: str
    message: str
    agent_id: str | UnsetType = UNSET
    decision_reason_type: str | UnsetType = UNSET
    decision_reason: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class Informational(Message, frozen=True, kw_only=True, tag="system"):
    """Text for the user."""

    subtype: Literal["informational"] = "informational"
    content: str
    level: str
    tool_use_id: str | UnsetType = UNSET
    prevent_continuation: bool | UnsetType = UNSET
    prompt_submit_outcome: Json | UnsetType = UNSET
    mcp_server: Json | UnsetType = UNSET
    """Parley only: the MCP server that the text is about."""
    tag: str | UnsetType = UNSET
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
class ThinkingTokens(Message, frozen=True, kw_only=True, tag="system"):
    """An estimate of the thinking tokens, while they are streamed. Read but never sent."""

    subtype: Literal["thinking_tokens"] = "thinking_tokens"
    estimated_tokens: int
    estimated_tokens_delta: int
    user_message_uuid: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class ModelRefusalFallback(Message, frozen=True, kw_only=True, tag="system"):
    """The model refused; the turn is retried with another model. Read but never sent."""

    subtype: Literal["model_refusal_fallback"] = "model_refusal_fallback"
    trigger: str
    direction: str
    original_model: str
    fallback_model: str
    request_id: str
    content: str
    scope: str | UnsetType = UNSET
    api_refusal_category: str | UnsetType = UNSET
    api_refusal_explanation: str | UnsetType = UNSET
    retracted_message_uuids: list[str] | UnsetType = UNSET
    refused_user_message_uuid: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class ModelRefusalNoFallback(Message, frozen=True, kw_only=True, tag="system"):
    """The model refused, without another model to retry with. Read but never sent."""

    subtype: Literal["model_refusal_no_fallback"] = "model_refusal_no_fallback"
    original_model: str
    request_id: str
    content: str
    api_refusal_category: str | UnsetType = UNSET
    api_refusal_explanation: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class MemoryRecall(Message, frozen=True, kw_only=True, tag="system"):
    """Memories were added to the context. Read but never sent."""

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
    """The transcript could not be written because the disk is full. Read but never sent."""

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
