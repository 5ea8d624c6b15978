"""Control requests that few clients send: servers, tasks, files, settings, usage and plugins beside the conversation.

They are loaded with the first request of a subtype that `requests.py` does not have.
"""

# No `from __future__ import annotations`, for the reason given in requests.py.
from typing import Any

from parley.protocol.base import UNSET, Json, Number, Struct, UnsetType
from parley.protocol.messages.requests import PluginEntry, Request, request


class RewindAnswer(Struct, frozen=True, kw_only=True):
    """Whether files can be restored, and which ones change."""

    canRewind: bool
    error: str | UnsetType = UNSET
    filesChanged: list[str] | UnsetType = UNSET
    insertions: int | UnsetType = UNSET
    deletions: int | UnsetType = UNSET
    skippedLinks: int | list[str] | UnsetType = UNSET
    """Claude Code sends a count."""
    diffs: list[Json] | UnsetType = UNSET
    """Parley only, if the request has `diffs`: `path`, `status`, `diff` and `reason` of every file."""


@request(area="files", scope="prompt")
class RewindFiles(Request, frozen=True, kw_only=True, tag="rewind_files"):
    """Restores files to their state before a user message."""

    answer = RewindAnswer
    user_message_id: str
    dry_run: bool | None | UnsetType = UNSET
    diffs: bool | None | UnsetType = UNSET
    """Parley only: a dry run answers with the diff of each file."""


@request(area="settings", scope="prompt")
class SetMaxThinkingTokens(Request, frozen=True, kw_only=True, tag="set_max_thinking_tokens"):
    """An absent key changes nothing; null restores the session's default."""

    max_thinking_tokens: int | None | UnsetType = UNSET
    thinking_display: str | None | UnsetType = UNSET


class McpStatusAnswer(Struct, frozen=True, kw_only=True):
    """The state of all MCP servers."""

    mcpServers: list[Json]


@request(area="mcp", scope="view")
class McpStatus(Request, frozen=True, kw_only=True, tag="mcp_status"):
    """Requests the state of all MCP servers."""

    answer = McpStatusAnswer
    liveReply: bool | None | UnsetType = UNSET


@request(area="mcp", scope="prompt")
class McpReconnect(Request, frozen=True, kw_only=True, tag="mcp_reconnect"):
    """Reconnects an MCP server."""

    serverName: str


@request(area="mcp")
class McpToggle(Request, frozen=True, kw_only=True, tag="mcp_toggle"):
    """Enables or disables an MCP server."""

    serverName: str
    enabled: bool


@request(area="session", scope="prompt")
class StopTask(Request, frozen=True, kw_only=True, tag="stop_task"):
    """Stops a background task."""

    task_id: str


@request(area="mcp")
class McpSetServers(Request, frozen=True, kw_only=True, tag="mcp_set_servers"):
    """Replaces the MCP servers that the client configured."""

    servers: Json


@request(area="session", scope="prompt")
class CancelAsyncMessage(Request, frozen=True, kw_only=True, tag="cancel_async_message"):
    """Cancels a queued prompt."""

    message_uuid: str


class ContextUsage(Struct, frozen=True, kw_only=True):
    """How the context window is used."""

    categories: list[Json]
    totalTokens: int
    maxTokens: int
    rawMaxTokens: int
    percentage: Number
    model: str
    isAutoCompactEnabled: bool
    memoryFiles: list[Json]
    mcpTools: list[Json]
    agents: list[Json]
    gridRows: list[Any]
    apiUsage: Json | None
    autoCompactThreshold: int | UnsetType = UNSET
    autocompactSource: str | UnsetType = UNSET
    mcpInstructions: list[Any] | UnsetType = UNSET
    deferredBuiltinTools: Any = UNSET
    systemTools: Any = UNSET
    systemPromptSections: Any = UNSET
    slashCommands: Json | UnsetType = UNSET
    skills: Json | UnsetType = UNSET
    messageBreakdown: Json | UnsetType = UNSET


@request(area="panels", scope="view")
class GetContextUsage(Request, frozen=True, kw_only=True, tag="get_context_usage"):
    """Requests how the context window is used."""

    answer = ContextUsage
    detail: str | None | UnsetType = UNSET


@request(area="mcp")
class SetMcpPermissionModeOverride(Request, frozen=True, kw_only=True, tag="set_mcp_permission_mode_override"):
    """Sets a stricter permission mode for the tools of one MCP server; null removes it."""

    serverName: str
    mode: str | None


@request(area="settings")
class ApplyFlagSettings(Request, frozen=True, kw_only=True, tag="apply_flag_settings"):
    """Merges settings into the flag settings of the session."""

    settings: Json


@request(area="settings")
class UpdateSettings(Request, frozen=True, kw_only=True, tag="update_settings"):
    """Changes a settings file."""

    source: str
    settings: Json


@request(area="settings", scope="view")
class GetSettings(Request, frozen=True, kw_only=True, tag="get_settings"):
    """Requests the settings in effect and their sources."""


@request(area="panels")
class GetHooksListing(Request, frozen=True, kw_only=True, tag="get_hooks_listing"):
    """Requests all registered hooks."""


@request(area="settings", scope="view")
class ListPermissionRules(Request, frozen=True, kw_only=True, tag="list_permission_rules"):
    """Requests all permission rules."""


@request(area="settings", scope="prompt")
class CheckPermission(Request, frozen=True, kw_only=True, tag="check_permission"):
    """Parley only: requests what a tool call would be decided, and why. The call does not run."""

    tool_name: str
    input: Json
    mode: str | None | UnsetType = UNSET
    """A permission mode other than the current one."""


@request(area="settings")
class UpdatePermissions(Request, frozen=True, kw_only=True, tag="update_permissions"):
    """Parley only: applies permission updates, as `updatedPermissions` of an approval does."""

    updates: list[Json]


@request(area="session", scope="view")
class ListModels(Request, frozen=True, kw_only=True, tag="list_models"):
    """Requests the known models."""


@request(area="panels", scope="view")
class GetUsage(Request, frozen=True, kw_only=True, tag="get_usage"):
    """Requests the usage of the session."""

    skip_behaviors: bool | None | UnsetType = UNSET


@request(area="panels", scope="view")
class GetSessionCost(Request, frozen=True, kw_only=True, tag="get_session_cost"):
    """Requests the cost of the session."""


@request(area="session", scope="view")
class GetBinaryVersion(Request, frozen=True, kw_only=True, tag="get_binary_version"):
    """Requests the version of the engine."""


@request(area="session", scope="prompt")
class BackgroundTasks(Request, frozen=True, kw_only=True, tag="background_tasks"):
    """Moves running commands to the background."""

    tool_use_id: str | None | UnsetType = UNSET


@request(area="session", scope="view")
class GetTaskOutput(Request, frozen=True, kw_only=True, tag="get_task_output"):
    """Requests the output of a background task."""

    task_id: str


@request(area="files", scope="prompt")
class ReadFile(Request, frozen=True, kw_only=True, tag="read_file"):
    """Reads a file for the client."""

    path: str
    max_bytes: int | None | UnsetType = UNSET
    encoding: str | None | UnsetType = UNSET


@request(area="files", scope="prompt")
class SeedReadState(Request, frozen=True, kw_only=True, tag="seed_read_state"):
    """Marks a file as read, so that the model may edit it."""

    path: str
    mtime: Number


@request(area="files", scope="prompt")
class FileSuggestions(Request, frozen=True, kw_only=True, tag="file_suggestions"):
    """Completes a file path."""

    query: str


@request(area="files")
class RegisterRepoRoot(Request, frozen=True, kw_only=True, tag="register_repo_root"):
    """Adds a working directory below the others."""

    directory: str
    reload_claude_md: bool | None | UnsetType = UNSET
    reload_plugins: bool | None | UnsetType = UNSET
    reload_skills: bool | None | UnsetType = UNSET


@request(area="settings")
class ReloadPlugins(Request, frozen=True, kw_only=True, tag="reload_plugins"):
    """Reloads plugins."""

    hold_on_cache_impact: bool | None | UnsetType = UNSET
    """Change nothing if the list of tools would change; the answer then has `held` and `cache_impact`."""
    add_plugins: list[PluginEntry] | None | UnsetType = UNSET
    """Plugins to load as well, with absolute paths."""
    refuse_if_busy: bool | None | UnsetType = UNSET


@request(area="settings", scope="prompt")
class ReloadSkills(Request, frozen=True, kw_only=True, tag="reload_skills"):
    """Reloads commands and skills."""


@request(area="settings", scope="prompt")
class ReloadOutputStyles(Request, frozen=True, kw_only=True, tag="reload_output_styles"):
    """Reloads output styles."""


@request(area="session", scope="prompt")
class RenameSession(Request, frozen=True, kw_only=True, tag="rename_session"):
    """Sets the title of a session."""

    title: str
    source: str | None | UnsetType = UNSET
    session_id: str | None | UnsetType = UNSET


@request(area="session", scope="prompt")
class SetColor(Request, frozen=True, kw_only=True, tag="set_color"):
    """Acknowledged without effect."""

    color: Any = UNSET


@request(area="session", scope="prompt")
class SetHasSubscribers(Request, frozen=True, kw_only=True, tag="set_has_subscribers"):
    """Acknowledged without effect."""

    has_subscribers: bool


@request(area="mcp")
class McpCall(Request, frozen=True, kw_only=True, tag="mcp_call"):
    """Calls an MCP tool directly."""

    tool: str
    arguments: Json | None | UnsetType = UNSET
    timeout_ms: Number | None | UnsetType = UNSET
    expires_at: Any = UNSET
    check_permissions: bool | None | UnsetType = UNSET
    result_not_for_model: bool | None | UnsetType = UNSET
    input_files: Any = UNSET
    output_files: Any = UNSET


@request(area="mcp", scope="prompt")
class McpReadResource(Request, frozen=True, kw_only=True, tag="mcp_read_resource"):
    """Reads a resource of an MCP server."""

    serverName: str
    uri: str


@request(area="files")
class SetCwd(Request, frozen=True, kw_only=True, tag="set_cwd"):
    """Changes the working directory of the session."""

    path: str


class ClaimAnswer(Struct, frozen=True, kw_only=True):
    """The session that a spare process became."""

    status: str = "ok"
    cwd: str
    session_id: str
    parked_ms: int
    sdk_mcp_settled: bool
    initialize: Json | UnsetType = UNSET


@request(area="session")
class ClaimSession(Request, frozen=True, kw_only=True, tag="claim_session"):
    """Makes a process that was started with `--await-claim` a session."""

    answer = ClaimAnswer
    cwd: str
    permission_mode: str | None | UnsetType = UNSET
    env: dict[str, str] | None | UnsetType = UNSET
    additional_directories: list[str] | None | UnsetType = UNSET
    append_system_prompt: str | None | UnsetType = UNSET
    title: str | None | UnsetType = UNSET
    agents: Json | None | UnsetType = UNSET
    session_id: str | None | UnsetType = UNSET
    resume: str | None | UnsetType = UNSET
    sdk_mcp_servers: list[str] | None | UnsetType = UNSET
    include_initialize: bool | None | UnsetType = UNSET


@request(area="side", scope="prompt")
class GenerateSessionTitle(Request, frozen=True, kw_only=True, tag="generate_session_title"):
    """Requests a title for the session."""

    description: str
    persist: bool | None | UnsetType = UNSET


@request(area="side", scope="prompt")
class SideQuestion(Request, frozen=True, kw_only=True, tag="side_question"):
    """Asks a question about the conversation that does not become part of it."""

    question: str


@request(area="settings", scope="prompt")
class SetPromptSuggestionsPaused(Request, frozen=True, kw_only=True, tag="set_prompt_suggestions_paused"):
    """Pauses or resumes the suggestions of the next prompt."""

    paused: bool


@request(area="panels", scope="view")
class GetStatus(Request, frozen=True, kw_only=True, tag="get_status"):
    """Requests what a status page shows."""


@request(area="panels", scope="view")
class GetPlan(Request, frozen=True, kw_only=True, tag="get_plan"):
    """Requests the plan of the session."""


@request(area="panels", scope="prompt")
class ExportConversation(Request, frozen=True, kw_only=True, tag="export_conversation"):
    """Requests the conversation as text."""


@request(area="panels", scope="prompt")
class GetMemoryDialog(Request, frozen=True, kw_only=True, tag="get_memory_dialog"):
    """Requests the memory files."""


@request(area="panels", scope="prompt")
class GetSkillsDialog(Request, frozen=True, kw_only=True, tag="get_skills_dialog"):
    """Requests the skills and the commands from files."""


@request(area="panels", scope="prompt")
class GetSandboxDialog(Request, frozen=True, kw_only=True, tag="get_sandbox_dialog"):
    """Requests the state of the sandbox."""


@request(area="mcp")
class McpAuthenticate(Request, frozen=True, kw_only=True, tag="mcp_authenticate"):
    """Starts the login to an MCP server."""

    serverName: str
    redirectUri: str | None | UnsetType = UNSET


@request(area="mcp")
class McpOauthCallbackUrl(Request, frozen=True, kw_only=True, tag="mcp_oauth_callback_url"):
    """Passes on the address that the browser was redirected to at the end of a login."""

    serverName: str
    callbackUrl: str


@request(area="mcp")
class McpClearAuth(Request, frozen=True, kw_only=True, tag="mcp_clear_auth"):
    """Deletes the tokens of a login to an MCP server."""

    serverName: str
