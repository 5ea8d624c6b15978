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
    sandbox: str | UnsetType = UNSET
    """If the settings enable the sandbox: what confines commands (`bubblewrap`, `landlock`), or `none`."""
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
class ApiRetry(Message, frozen=True, kw_only=True, tag="system"):
    """A model call failed and will be retried."""

    subtype: Literal["api_retry"] = "api_retry"
    attempt: int
    max_retries: int
    retry_delay_ms: Number
    error_status: int | None
    error: str
    error_message: str | UnsetType = UNSET
    """Parley only: what failed, in words."""
    no_response: Json | UnsetType = UNSET
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


MODEL_SILENT = "model_silent"
"""The tag of the text that says what is waited for when a model's server sends nothing."""


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
class ThinkingTokens(Message, frozen=True, kw_only=True, tag="system"):
    """An estimate of the thinking tokens while they are streamed, for clients that get partial messages."""

    subtype: Literal["thinking_tokens"] = "thinking_tokens"
    estimated_tokens: int
    estimated_tokens_delta: int
    user_message_uuid: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


CAPABILITIES = {
    "interrupt_receipt_v1": "the answer to `interrupt` lists the prompts that still wait",
    "interrupt_cancel_queued_v1": "`interrupt` can cancel the prompts that wait",
    "msg_lifecycle_v1": "`command_lifecycle` reports what becomes of a prompt with a uuid",
    "ask_user_question_unanswered_v1": "a client can say why a question was not answered",
    "reload_plugins_refuse_if_busy_v1": "`reload_plugins` can be refused while the session is busy",
    "sdk_mcp_tools_list_changed": "a server of the client can change its list of tools",
    "sdk_mcp_manifests": "`initialize` can contain the handshakes of servers of the client",
    "mcp_read_resource_v1": "`mcp_read_resource` reads a resource of a server",
    "mcp_tool_ui_meta_v1": "`mcp_status` names the pages of tools",
    "mcp_call_result_not_for_model_v1": "`mcp_call` can return the whole result of a tool",
    "mcp_call_check_permissions_v1": "`mcp_call` can decide like a call of the model",
}
"""By name, what each says that the engine can do."""
