"""Control requests in both directions, and the structs of their replies.

`@request` registers a class under its `subtype`. The union is open: an unknown subtype is an `UnknownRequest`, which is
answered with an error.

`answer` of a class is the struct of its success payload.
"""

# No `from __future__ import annotations`: msgspec compiles and evaluates string annotations one by one when the first
# request comes, which takes 3 million instructions of the start for `initialize` alone.
from abc import ABCMeta
from typing import Any, ClassVar, TypeVar

import msgspec

from parley.protocol.base import UNSET, Json, JsonBacked, Number, Struct, UnsetType, convert


class Payload(JsonBacked, metaclass=ABCMeta):
    """The `request` of a control request: a known Request or an UnknownRequest."""

    __slots__ = ()

    @classmethod
    def read(cls, json: Any) -> Any:
        if not isinstance(json, dict):
            raise msgspec.ValidationError("`request` must be an object")
        subtype = json.get("subtype")
        if not isinstance(subtype, str):
            raise msgspec.ValidationError("`request` needs a `subtype`")
        known = SUBTYPES.get(subtype)
        return UnknownRequest(json) if known is None else convert(json, known)


class UnknownRequest(Payload):
    """A request with an unknown subtype."""

    __slots__ = ()

    @property
    def subtype(self) -> str:
        found: str = self.json["subtype"]
        return found


class Request(Struct, frozen=True, kw_only=True, tag_field="subtype", tag=""):
    """A request with a known subtype."""

    answer: ClassVar[type[Struct] | None] = None

    @property
    def subtype(self) -> str:
        return str(self.__struct_config__.tag)


Payload.register(Request)

SUBTYPES: dict[str, type[Request]] = {}
R = TypeVar("R", bound=type[Request])


def request(cls: R) -> R:
    """Register a request class under its subtype."""
    SUBTYPES[str(cls.__struct_config__.tag)] = cls
    return cls


# Requests from the client to the engine.


class HookMatcher(Struct, frozen=True, kw_only=True):
    """Which callbacks are called for an event."""

    matcher: str | None | UnsetType = UNSET
    hookCallbackIds: list[str] = []
    timeout: Number | None | UnsetType = UNSET
    """Seconds."""
    onFailure: str | None | UnsetType = UNSET


class AgentDefinition(Struct, frozen=True, kw_only=True):
    """A subagent defined by the client."""

    description: str
    prompt: str
    tools: list[str] | None | UnsetType = UNSET
    disallowedTools: list[str] | None | UnsetType = UNSET
    model: str | None | UnsetType = UNSET
    skills: list[str] | None | UnsetType = UNSET
    memory: str | None | UnsetType = UNSET
    mcpServers: list[Any] | None | UnsetType = UNSET
    """Names of the session's servers, or configurations of the agent's own servers."""
    hooks: Json | None | UnsetType = UNSET
    """As in settings. They run only for this agent."""
    initialPrompt: str | None | UnsetType = UNSET
    maxTurns: int | None | UnsetType = UNSET
    background: bool | None | UnsetType = UNSET
    effort: str | int | None | UnsetType = UNSET
    permissionMode: str | None | UnsetType = UNSET
    isolation: str | None | UnsetType = UNSET
    """`worktree`: the agent works in its own git worktree."""
    autoCompactWindow: Any = UNSET
    omitClaudeMd: bool | None | UnsetType = UNSET
    observer: Any = UNSET
    observerMessage: Any = UNSET
    criticalSystemReminder_EXPERIMENTAL: str | None | UnsetType = UNSET


class InitializeAnswer(Struct, frozen=True, kw_only=True):
    """The reply to `initialize`."""

    commands: list[Json]
    agents: list[Json]
    output_style: str
    available_output_styles: list[str]
    models: list[Json]
    account: Json
    pid: int | UnsetType = UNSET
    claude_code_version: str | UnsetType = UNSET
    parley_version: str | UnsetType = UNSET
    current_permission_mode: str | UnsetType = UNSET
    hook_on_failure_supported: bool | UnsetType = UNSET
    hooks_applied: bool | UnsetType = UNSET
    plugins_applied: bool | UnsetType = UNSET
    sdk_mcp_manifests_parked: list[str] | UnsetType = UNSET
    fast_mode_state: str | UnsetType = UNSET
    fast_mode_disabled_reason: str | UnsetType = UNSET
    session_state: str | UnsetType = UNSET
    analytics_disabled: bool | UnsetType = UNSET
    capabilities: list[str] | UnsetType = UNSET
    user_output_styles_dir: str | UnsetType = UNSET
    other_hook_ask_outranks_host: bool | UnsetType = UNSET
    feedback_mode: Json | UnsetType = UNSET
    remote_control_available: bool | UnsetType = UNSET
    remote_control_auto_enable: bool | UnsetType = UNSET
    remote_control_auto_connect_default: bool | UnsetType = UNSET
    remote_control_auto_on_by_default: bool | UnsetType = UNSET
    ide_rc_auto_enable_gate: bool | UnsetType = UNSET


@request
class Initialize(Request, frozen=True, kw_only=True, tag="initialize"):
    """The handshake. Optional and repeatable; the last one applies."""

    answer = InitializeAnswer
    hooks: dict[str, list[HookMatcher]] | None | UnsetType = UNSET
    agents: dict[str, AgentDefinition] | None | UnsetType = UNSET
    systemPrompt: str | list[str] | None | UnsetType = UNSET
    """The TypeScript SDK sends its prompt here; `[""]` means none."""
    appendSystemPrompt: str | None | UnsetType = UNSET
    excludeDynamicSections: bool | None | UnsetType = UNSET
    systemPromptSnapshot: bool | None | UnsetType = UNSET
    skills: list[str] | str | None | UnsetType = UNSET
    forwardSubagentText: bool | None | UnsetType = UNSET
    jsonSchema: Json | None | UnsetType = UNSET
    sdkMcpServers: list[str] | None | UnsetType = UNSET
    sdkMcpServerConfigs: Json | None | UnsetType = UNSET
    sdkMcpServerManifests: Json | None | UnsetType = UNSET
    sdkMcpServerManifestsOrigin: Any = UNSET
    clientTools: list[Json] | None | UnsetType = UNSET
    guard: bool | None | UnsetType = UNSET
    """Parley only: ask the client about every call, whatever the rules and the mode say. It cannot be revoked."""
    title: str | None | UnsetType = UNSET
    toolAliases: Any = UNSET
    planModeInstructions: Any = UNSET
    promptSuggestions: Any = UNSET
    agentProgressSummaries: Any = UNSET
    perTaskStopAffordance: Any = UNSET
    supportedDialogKinds: Any = UNSET
    plugins: Any = UNSET
    protocolVersion: Any = UNSET
    """Accepted without effect, as is `features`."""
    features: Any = UNSET


class InterruptAnswer(Struct, frozen=True, kw_only=True):
    """The prompts that stay queued and those that were cancelled."""

    still_queued: list[str] = []
    cancelled: list[str] | UnsetType = UNSET


@request
class Interrupt(Request, frozen=True, kw_only=True, tag="interrupt"):
    """Stops the running turn. Without a running turn it does nothing."""

    answer = InterruptAnswer
    cancel_queued: bool | None | UnsetType = UNSET


@request
class SetPermissionMode(Request, frozen=True, kw_only=True, tag="set_permission_mode"):
    """Sets the permission mode."""

    mode: str


class SetModelAnswer(Struct, frozen=True, kw_only=True):
    """The model in use."""

    model: str


@request
class SetModel(Request, frozen=True, kw_only=True, tag="set_model"):
    """Absent, null and "default" mean the default model."""

    answer = SetModelAnswer
    model: str | None | UnsetType = UNSET


class RewindAnswer(Struct, frozen=True, kw_only=True):
    """Whether files can be restored, and which ones change."""

    canRewind: bool
    error: str | UnsetType = UNSET
    filesChanged: list[str] | UnsetType = UNSET
    insertions: int | UnsetType = UNSET
    deletions: int | UnsetType = UNSET
    skippedLinks: int | list[str] | UnsetType = UNSET
    """Claude Code sends a count."""


@request
class RewindFiles(Request, frozen=True, kw_only=True, tag="rewind_files"):
    """Restores files to their state before a user message."""

    answer = RewindAnswer
    user_message_id: str
    dry_run: bool | None | UnsetType = UNSET


@request
class SetMaxThinkingTokens(Request, frozen=True, kw_only=True, tag="set_max_thinking_tokens"):
    """An absent key changes nothing; null restores the session's default."""

    max_thinking_tokens: int | None | UnsetType = UNSET
    thinking_display: str | None | UnsetType = UNSET


class McpStatusAnswer(Struct, frozen=True, kw_only=True):
    """The state of all MCP servers."""

    mcpServers: list[Json]


@request
class McpStatus(Request, frozen=True, kw_only=True, tag="mcp_status"):
    """Requests the state of all MCP servers."""

    answer = McpStatusAnswer
    liveReply: bool | None | UnsetType = UNSET


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


@request
class GetContextUsage(Request, frozen=True, kw_only=True, tag="get_context_usage"):
    """Requests how the context window is used."""

    answer = ContextUsage
    detail: str | None | UnsetType = UNSET


@request
class McpReconnect(Request, frozen=True, kw_only=True, tag="mcp_reconnect"):
    """Reconnects an MCP server."""

    serverName: str


@request
class McpToggle(Request, frozen=True, kw_only=True, tag="mcp_toggle"):
    """Enables or disables an MCP server."""

    serverName: str
    enabled: bool


@request
class StopTask(Request, frozen=True, kw_only=True, tag="stop_task"):
    """Stops a background task."""

    task_id: str


@request
class McpSetServers(Request, frozen=True, kw_only=True, tag="mcp_set_servers"):
    """Replaces the MCP servers that the client configured."""

    servers: Json


@request
class SetMcpPermissionModeOverride(Request, frozen=True, kw_only=True, tag="set_mcp_permission_mode_override"):
    """Sets a permission mode for the tools of one MCP server. Answered with an error: not supported."""

    serverName: str
    mode: str | None = None


@request
class ApplyFlagSettings(Request, frozen=True, kw_only=True, tag="apply_flag_settings"):
    """Merges settings into the flag settings of the session."""

    settings: Json


@request
class UpdateSettings(Request, frozen=True, kw_only=True, tag="update_settings"):
    """Changes a settings file."""

    source: str
    settings: Json


@request
class GetSettings(Request, frozen=True, kw_only=True, tag="get_settings"):
    """Requests the settings in effect and their sources."""


@request
class GetHooksListing(Request, frozen=True, kw_only=True, tag="get_hooks_listing"):
    """Requests all registered hooks."""


@request
class ListPermissionRules(Request, frozen=True, kw_only=True, tag="list_permission_rules"):
    """Requests all permission rules."""


@request
class ListModels(Request, frozen=True, kw_only=True, tag="list_models"):
    """Requests the known models."""


@request
class GetUsage(Request, frozen=True, kw_only=True, tag="get_usage"):
    """Requests the usage of the session."""

    skip_behaviors: bool | None | UnsetType = UNSET


@request
class GetSessionCost(Request, frozen=True, kw_only=True, tag="get_session_cost"):
    """Requests the cost of the session."""


@request
class GetBinaryVersion(Request, frozen=True, kw_only=True, tag="get_binary_version"):
    """Requests the version of the engine."""


@request
class CancelAsyncMessage(Request, frozen=True, kw_only=True, tag="cancel_async_message"):
    """Cancels a queued prompt."""

    message_uuid: str


@request
class BackgroundTasks(Request, frozen=True, kw_only=True, tag="background_tasks"):
    """Moves running commands to the background."""

    tool_use_id: str | None | UnsetType = UNSET


@request
class GetTaskOutput(Request, frozen=True, kw_only=True, tag="get_task_output"):
    """Requests the output of a background task."""

    task_id: str


@request
class ReadFile(Request, frozen=True, kw_only=True, tag="read_file"):
    """Reads a file for the client."""

    path: str
    max_bytes: int | None | UnsetType = UNSET
    encoding: str | None | UnsetType = UNSET


@request
class SeedReadState(Request, frozen=True, kw_only=True, tag="seed_read_state"):
    """Marks a file as read, so that the model may edit it."""

    path: str
    mtime: Number


@request
class FileSuggestions(Request, frozen=True, kw_only=True, tag="file_suggestions"):
    """Completes a file path."""

    query: str


@request
class RegisterRepoRoot(Request, frozen=True, kw_only=True, tag="register_repo_root"):
    """Adds a working directory. Answered with an error: not supported."""

    directory: str
    reload_claude_md: bool | None | UnsetType = UNSET
    reload_plugins: bool | None | UnsetType = UNSET
    reload_skills: bool | None | UnsetType = UNSET


@request
class ReloadPlugins(Request, frozen=True, kw_only=True, tag="reload_plugins"):
    """Reloads plugins."""

    hold_on_cache_impact: bool | None | UnsetType = UNSET
    add_plugins: Any = UNSET
    refuse_if_busy: bool | None | UnsetType = UNSET


@request
class ReloadSkills(Request, frozen=True, kw_only=True, tag="reload_skills"):
    """Reloads commands and skills."""


@request
class ReloadOutputStyles(Request, frozen=True, kw_only=True, tag="reload_output_styles"):
    """Reloads output styles."""


@request
class RenameSession(Request, frozen=True, kw_only=True, tag="rename_session"):
    """Sets the title of a session."""

    title: str
    source: str | None | UnsetType = UNSET
    session_id: str | None | UnsetType = UNSET


@request
class SetColor(Request, frozen=True, kw_only=True, tag="set_color"):
    """Acknowledged without effect."""

    color: Any = UNSET


@request
class SetHasSubscribers(Request, frozen=True, kw_only=True, tag="set_has_subscribers"):
    """Acknowledged without effect."""

    has_subscribers: bool


@request
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


@request
class McpReadResource(Request, frozen=True, kw_only=True, tag="mcp_read_resource"):
    """Reads a resource of an MCP server."""

    serverName: str
    uri: str


@request
class EndSession(Request, frozen=True, kw_only=True, tag="end_session"):
    """Ends the session, as the end of stdin does."""


# Requests from the engine to the client.


class PermissionAnswer(Struct, frozen=True, kw_only=True):
    """allow or deny. `delegate` is treated as a denial; `selectedOptions` answers questions."""

    behavior: str
    updatedInput: Json | None | UnsetType = UNSET
    updatedPermissions: list[Json] | None | UnsetType = UNSET
    message: str | None | UnsetType = UNSET
    interrupt: bool | None | UnsetType = UNSET
    toolUseID: str | None | UnsetType = UNSET
    selectedOptions: list[str] | None | UnsetType = UNSET
    decisionClassification: str | None | UnsetType = UNSET


@request
class CanUseTool(Request, frozen=True, kw_only=True, tag="can_use_tool"):
    """Asks whether a tool call may run. It waits without a time limit."""

    answer = PermissionAnswer
    tool_name: str
    display_name: str | UnsetType = UNSET
    input: Json
    description: str | UnsetType = UNSET
    permission_suggestions: list[Any] | None | UnsetType = UNSET
    blocked_path: str | None | UnsetType = UNSET
    decision_reason: str | UnsetType = UNSET
    decision_reason_type: str | UnsetType = UNSET
    decision_reason_hook_event: str | UnsetType = UNSET
    decision_reason_hook_source: str | UnsetType = UNSET
    tool_use_id: str | UnsetType = UNSET
    agent_id: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    mcp_server: Any = UNSET
    requires_user_interaction: bool | UnsetType = UNSET
    server_policy_ask_only: bool | UnsetType = UNSET
    classifier_approvable: bool | UnsetType = UNSET
    suppress_always_allow_rule: bool | UnsetType = UNSET
    default_to_no: bool | UnsetType = UNSET
    matched_ask_rule: Any = UNSET
    input_sha256: str | UnsetType = UNSET
    """Parley only: SHA-256 of the input as JSON with sorted keys. Only the input in the answer runs."""


@request
class HookCallback(Request, frozen=True, kw_only=True, tag="hook_callback"):
    """Calls a hook of the client. `hook_name` and `hook_data` are read but never sent."""

    callback_id: str | UnsetType = UNSET
    input: Any = UNSET
    tool_use_id: str | None | UnsetType = UNSET
    hook_name: str | UnsetType = UNSET
    hook_data: Any = UNSET


class McpAnswer(Struct, frozen=True, kw_only=True):
    """The MCP server's JSON-RPC response."""

    mcp_response: Json


@request
class McpMessage(Request, frozen=True, kw_only=True, tag="mcp_message"):
    """A JSON-RPC message to or from an MCP server of the client."""

    answer = McpAnswer
    server_name: str
    message: Json


@request
class SdkControlInterrupt(Request, frozen=True, kw_only=True, tag="sdk_control_interrupt"):
    """Read but never sent."""


class ElicitationAnswer(Struct, frozen=True, kw_only=True):
    """The user's answer to an elicitation."""

    action: str
    content: Json | None | UnsetType = UNSET


@request
class Elicitation(Request, frozen=True, kw_only=True, tag="elicitation"):
    """An MCP server asks the user a question."""

    answer = ElicitationAnswer
    mcp_server_name: str
    message: str
    mode: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    elicitation_id: str | UnsetType = UNSET
    requested_schema: Json | UnsetType = UNSET
    property_order: list[str] | UnsetType = UNSET
    title: str | UnsetType = UNSET


@request
class RequestUserDialog(Request, frozen=True, kw_only=True, tag="request_user_dialog"):
    """Asks the client to show a dialog. Read but never sent."""

    dialog_kind: str
    payload: Any
    tool_use_id: str | UnsetType = UNSET
