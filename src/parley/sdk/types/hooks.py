"""Inputs and outputs of hooks.

Names and keys are those of the official SDK. An engine may send more keys than these.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

HookEvent = Literal[
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "UserPromptSubmit",
    "Stop",
    "SubagentStop",
    "PreCompact",
    "Notification",
    "SubagentStart",
    "PermissionRequest",
]
MoreHookEvent = Literal[
    "SessionStart",
    "SessionEnd",
    "PostCompact",
    "PostToolBatch",
    "PermissionDenied",
    "UserPromptExpansion",
    "PreModelSwitch",
    "PostModelSwitch",
    "Elicitation",
    "ElicitationResult",
    "CwdChanged",
    "FileChanged",
    "WorktreeCreate",
    "WorktreeRemove",
    "MessageDisplay",
    "StopFailure",
    "Setup",
    "TeammateIdle",
    "TaskCreated",
    "TaskCompleted",
    "ConfigChange",
    "InstructionsLoaded",
    "DirectoryAdded",
]
"""Events that the official Python SDK does not declare. docs/hooks.md lists which of them Parley fires."""
AnyHookEvent = HookEvent | MoreHookEvent
"""All events that a hook can be registered for."""


class HookEffort(TypedDict):
    """How much work the model puts into an answer."""

    level: str


class BackgroundTaskSummary(TypedDict):
    """A background task that runs at the end of a turn."""

    id: str
    type: str
    status: str
    description: str
    command: NotRequired[str]
    agent_type: NotRequired[str]
    server: NotRequired[str]
    tool: NotRequired[str]
    name: NotRequired[str]


class SessionCronSummary(TypedDict):
    """A scheduled prompt of the session."""

    id: str
    schedule: str
    recurring: bool
    prompt: str


class BaseHookInput(TypedDict):
    """What every hook input has."""

    session_id: str
    transcript_path: str
    cwd: str
    permission_mode: NotRequired[str]
    prompt_id: NotRequired[str]
    effort: NotRequired[HookEffort]


class _OfAgent(TypedDict, total=False):
    """Present if the event belongs to a subagent."""

    agent_id: str
    agent_type: str


class PreToolUseHookInput(BaseHookInput, _OfAgent):
    """Before a tool call is decided and run."""

    hook_event_name: Literal["PreToolUse"]
    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str


class PostToolUseHookInput(BaseHookInput, _OfAgent):
    """After a successful tool call."""

    hook_event_name: Literal["PostToolUse"]
    tool_name: str
    tool_input: dict[str, Any]
    tool_response: Any
    tool_use_id: str
    duration_ms: NotRequired[float]


class PostToolUseFailureHookInput(BaseHookInput, _OfAgent):
    """After a tool call that ran and failed."""

    hook_event_name: Literal["PostToolUseFailure"]
    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str
    error: str
    is_interrupt: NotRequired[bool]
    duration_ms: NotRequired[float]


class UserPromptSubmitHookInput(BaseHookInput):
    """Before a prompt is accepted."""

    hook_event_name: Literal["UserPromptSubmit"]
    prompt: str


class StopHookInput(BaseHookInput):
    """When the model is done, before the result."""

    hook_event_name: Literal["Stop"]
    stop_hook_active: bool
    last_assistant_message: NotRequired[str]
    background_tasks: NotRequired[list[BackgroundTaskSummary]]
    session_crons: NotRequired[list[SessionCronSummary]]


class SubagentStopHookInput(BaseHookInput):
    """When a subagent finishes."""

    hook_event_name: Literal["SubagentStop"]
    stop_hook_active: bool
    agent_id: str
    agent_transcript_path: str
    agent_type: str
    last_assistant_message: NotRequired[str]
    background_tasks: NotRequired[list[BackgroundTaskSummary]]
    session_crons: NotRequired[list[SessionCronSummary]]


class PreCompactHookInput(BaseHookInput):
    """Before the conversation is compacted."""

    hook_event_name: Literal["PreCompact"]
    trigger: Literal["manual", "auto"]
    custom_instructions: str | None


class NotificationHookInput(BaseHookInput):
    """When a permission request stays unanswered."""

    hook_event_name: Literal["Notification"]
    message: str
    title: NotRequired[str]
    notification_type: str


class SubagentStartHookInput(BaseHookInput):
    """When a subagent starts."""

    hook_event_name: Literal["SubagentStart"]
    agent_id: str
    agent_type: str


class PermissionRequestHookInput(BaseHookInput, _OfAgent):
    """When the user is asked about a tool call."""

    hook_event_name: Literal["PermissionRequest"]
    tool_name: str
    tool_input: dict[str, Any]
    permission_suggestions: NotRequired[list[Any]]


class SessionStartHookInput(BaseHookInput):
    """Before the first turn, and after compaction. Callbacks are called after compaction only."""

    hook_event_name: Literal["SessionStart"]
    source: Literal["startup", "resume", "clear", "compact", "fork"]
    agent_type: NotRequired[str]
    model: NotRequired[str]
    session_title: NotRequired[str]
    seconds_since_last_response: NotRequired[float]
    context_tokens: NotRequired[int]
    prompt_cache_likely_expired: NotRequired[bool]
    estimated_cache_write_usd: NotRequired[float]


class SessionEndHookInput(BaseHookInput):
    """At the end of the session."""

    hook_event_name: Literal["SessionEnd"]
    reason: str


class PostCompactHookInput(BaseHookInput):
    """After the conversation was compacted."""

    hook_event_name: Literal["PostCompact"]
    trigger: Literal["manual", "auto"]
    compact_summary: str


class BatchedToolCall(TypedDict):
    """One call of a `PostToolBatchHookInput`."""

    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str
    tool_response: NotRequired[Any]


class PostToolBatchHookInput(BaseHookInput, _OfAgent):
    """After all tool calls of one model response."""

    hook_event_name: Literal["PostToolBatch"]
    tool_calls: list[BatchedToolCall]


class PermissionDeniedHookInput(BaseHookInput, _OfAgent):
    """After a rule, the mode or a hook denied a call, or no one could be asked."""

    hook_event_name: Literal["PermissionDenied"]
    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str
    reason: str


class UserPromptExpansionHookInput(BaseHookInput):
    """Before a slash command becomes a prompt."""

    hook_event_name: Literal["UserPromptExpansion"]
    expansion_type: Literal["slash_command", "mcp_prompt"]
    command_name: str
    command_args: str
    command_source: NotRequired[str]
    prompt: str


class _ModelSwitch(BaseHookInput):
    from_model: str
    to_model: str
    requested_model: str | None
    context_tokens: int
    prompt_cache_warm: bool
    cache_ttl: Literal["5m", "1h"]
    estimated_cache_write_usd: float
    pricing: Literal["configured", "catalog", "default"]


class PreModelSwitchHookInput(_ModelSwitch):
    """Before the model of the session changes."""

    hook_event_name: Literal["PreModelSwitch"]
    source: Literal["command", "picker", "sdk"]


class PostModelSwitchHookInput(_ModelSwitch):
    """After the model of the session changed."""

    hook_event_name: Literal["PostModelSwitch"]
    source: Literal["command", "picker", "sdk", "auto", "resume"]


class ElicitationHookInput(BaseHookInput):
    """When an MCP server asks the user something."""

    hook_event_name: Literal["Elicitation"]
    mcp_server_name: str
    message: str
    mode: NotRequired[Literal["form", "url"]]
    url: NotRequired[str]
    elicitation_id: NotRequired[str]
    requested_schema: NotRequired[dict[str, Any]]


class ElicitationResultHookInput(BaseHookInput):
    """Before the user's answer is sent to an MCP server."""

    hook_event_name: Literal["ElicitationResult"]
    mcp_server_name: str
    elicitation_id: NotRequired[str]
    mode: NotRequired[Literal["form", "url"]]
    action: Literal["accept", "decline", "cancel"]
    content: NotRequired[dict[str, Any]]


class CwdChangedHookInput(BaseHookInput):
    """After the working directory changed."""

    hook_event_name: Literal["CwdChanged"]
    old_cwd: str
    new_cwd: str


class DirectoryAddedHookInput(BaseHookInput):
    """After a working directory was added."""

    hook_event_name: Literal["DirectoryAdded"]
    directory: str
    source: Literal["slash_command", "register_repo_root"]


class FileChangedHookInput(BaseHookInput):
    """After a watched file changed."""

    hook_event_name: Literal["FileChanged"]
    file_path: str
    event: Literal["change", "add", "unlink"]


class WorktreeCreateHookInput(BaseHookInput):
    """When an agent needs a worktree."""

    hook_event_name: Literal["WorktreeCreate"]
    name: str


class WorktreeRemoveHookInput(BaseHookInput):
    """After an agent has left its worktree."""

    hook_event_name: Literal["WorktreeRemove"]
    worktree_path: str


class MessageDisplayHookInput(BaseHookInput):
    """Before text of the model is sent."""

    hook_event_name: Literal["MessageDisplay"]
    turn_id: str
    message_id: str
    index: int
    final: bool
    delta: str


class StopFailureHookInput(BaseHookInput):
    """When a model error ends the turn."""

    hook_event_name: Literal["StopFailure"]
    error: str
    error_details: NotRequired[str]
    last_assistant_message: NotRequired[str]


class SetupHookInput(BaseHookInput):
    """When a project is set up. Parley never fires it."""

    hook_event_name: Literal["Setup"]
    trigger: Literal["init", "maintenance"]


class TeammateIdleHookInput(BaseHookInput):
    """When a teammate has nothing to do. Parley never fires it."""

    hook_event_name: Literal["TeammateIdle"]
    teammate_name: str
    team_name: str


class _TaskHookInput(BaseHookInput):
    task_id: str
    task_subject: str
    task_description: NotRequired[str]
    teammate_name: NotRequired[str]
    team_name: NotRequired[str]


class TaskCreatedHookInput(_TaskHookInput):
    """Before a task is added to the task list."""

    hook_event_name: Literal["TaskCreated"]


class TaskCompletedHookInput(_TaskHookInput):
    """Before a task of the task list is completed."""

    hook_event_name: Literal["TaskCompleted"]


class ConfigChangeHookInput(BaseHookInput):
    """Before `update_settings` takes effect, and after a settings file or the skills changed."""

    hook_event_name: Literal["ConfigChange"]
    source: Literal["user_settings", "project_settings", "local_settings", "policy_settings", "skills"]
    file_path: NotRequired[str]


class InstructionsLoadedHookInput(BaseHookInput):
    """When a memory file enters the context."""

    hook_event_name: Literal["InstructionsLoaded"]
    file_path: str
    memory_type: Literal["User", "Project", "Local", "Managed"]
    load_reason: Literal["session_start", "nested_traversal", "path_glob_match", "include", "compact"]
    globs: NotRequired[list[str]]
    trigger_file_path: NotRequired[str]
    parent_file_path: NotRequired[str]


HookInput = (
    PreToolUseHookInput
    | PostToolUseHookInput
    | PostToolUseFailureHookInput
    | UserPromptSubmitHookInput
    | StopHookInput
    | SubagentStopHookInput
    | PreCompactHookInput
    | NotificationHookInput
    | SubagentStartHookInput
    | PermissionRequestHookInput
    | SessionStartHookInput
    | SessionEndHookInput
    | PostCompactHookInput
    | PostToolBatchHookInput
    | PermissionDeniedHookInput
    | UserPromptExpansionHookInput
    | PreModelSwitchHookInput
    | PostModelSwitchHookInput
    | ElicitationHookInput
    | ElicitationResultHookInput
    | CwdChangedHookInput
    | DirectoryAddedHookInput
    | FileChangedHookInput
    | WorktreeCreateHookInput
    | WorktreeRemoveHookInput
    | MessageDisplayHookInput
    | StopFailureHookInput
    | SetupHookInput
    | TeammateIdleHookInput
    | TaskCreatedHookInput
    | TaskCompletedHookInput
    | ConfigChangeHookInput
    | InstructionsLoadedHookInput
)
"""The input of any hook; `hook_event_name` tells which one it is."""


# Outputs.


class PreToolUseHookSpecificOutput(TypedDict):
    """Decides on a tool call: allow, deny, ask or defer, with another input if given."""

    hookEventName: Literal["PreToolUse"]
    permissionDecision: NotRequired[Literal["allow", "deny", "ask", "defer"]]
    permissionDecisionReason: NotRequired[str]
    updatedInput: NotRequired[dict[str, Any]]
    additionalContext: NotRequired[str]


class PostToolUseHookSpecificOutput(TypedDict):
    """Adds context for the model, or replaces what it sees of the tool result."""

    hookEventName: Literal["PostToolUse"]
    additionalContext: NotRequired[str]
    updatedToolOutput: NotRequired[Any]
    updatedMCPToolOutput: NotRequired[Any]


class PostToolUseFailureHookSpecificOutput(TypedDict):
    """Adds context for the model."""

    hookEventName: Literal["PostToolUseFailure"]
    additionalContext: NotRequired[str]


class UserPromptSubmitHookSpecificOutput(TypedDict):
    """Adds context to a prompt, or names the session."""

    hookEventName: Literal["UserPromptSubmit"]
    additionalContext: NotRequired[str]
    sessionTitle: NotRequired[str]
    suppressOriginalPrompt: NotRequired[bool]


class SessionStartHookSpecificOutput(TypedDict):
    """Adds context or a first prompt, names the session, watches files."""

    hookEventName: Literal["SessionStart"]
    additionalContext: NotRequired[str]
    initialUserMessage: NotRequired[str]
    sessionTitle: NotRequired[str]
    watchPaths: NotRequired[list[str]]
    reloadSkills: NotRequired[bool]


class NotificationHookSpecificOutput(TypedDict):
    """Adds context for the model."""

    hookEventName: Literal["Notification"]
    additionalContext: NotRequired[str]


class SubagentStartHookSpecificOutput(TypedDict):
    """Adds context for the subagent."""

    hookEventName: Literal["SubagentStart"]
    additionalContext: NotRequired[str]


class PermissionRequestAllow(TypedDict):
    """Allows the call, with another input or with rules for later calls if given."""

    behavior: Literal["allow"]
    updatedInput: NotRequired[dict[str, Any]]
    updatedPermissions: NotRequired[list[dict[str, Any]]]


class PermissionRequestDeny(TypedDict):
    """Denies the call; `interrupt` ends the turn too."""

    behavior: Literal["deny"]
    message: NotRequired[str]
    interrupt: NotRequired[bool]


class PermissionRequestHookSpecificOutput(TypedDict):
    """Decides on a tool call instead of the user."""

    hookEventName: Literal["PermissionRequest"]
    decision: PermissionRequestAllow | PermissionRequestDeny


class UserPromptExpansionHookSpecificOutput(TypedDict):
    """Adds context to the prompt of a slash command."""

    hookEventName: Literal["UserPromptExpansion"]
    additionalContext: NotRequired[str]
    suppressOriginalPrompt: NotRequired[bool]


class PostToolBatchHookSpecificOutput(TypedDict):
    """Adds context for the model."""

    hookEventName: Literal["PostToolBatch"]
    additionalContext: NotRequired[str]


class StopHookSpecificOutput(TypedDict):
    """Adds context for the model."""

    hookEventName: Literal["Stop"]
    additionalContext: NotRequired[str]


class SubagentStopHookSpecificOutput(TypedDict):
    """Adds context for the subagent."""

    hookEventName: Literal["SubagentStop"]
    additionalContext: NotRequired[str]


class PermissionDeniedHookSpecificOutput(TypedDict):
    """Tells the model whether it may try the call again."""

    hookEventName: Literal["PermissionDenied"]
    retry: NotRequired[bool]


class PreModelSwitchHookSpecificOutput(TypedDict):
    """Decides on a switch of the model."""

    hookEventName: Literal["PreModelSwitch"]
    permissionDecision: NotRequired[Literal["allow", "deny", "ask"]]
    permissionDecisionReason: NotRequired[str]


class PostModelSwitchHookSpecificOutput(TypedDict):
    """Adds context for the model."""

    hookEventName: Literal["PostModelSwitch"]
    additionalContext: NotRequired[str]


class ElicitationHookSpecificOutput(TypedDict):
    """Answers an MCP server instead of the user."""

    hookEventName: Literal["Elicitation"]
    action: NotRequired[Literal["accept", "decline", "cancel"]]
    content: NotRequired[dict[str, Any]]


class ElicitationResultHookSpecificOutput(TypedDict):
    """Replaces the user's answer to an MCP server."""

    hookEventName: Literal["ElicitationResult"]
    action: NotRequired[Literal["accept", "decline", "cancel"]]
    content: NotRequired[dict[str, Any]]


class CwdChangedHookSpecificOutput(TypedDict):
    """Sets the files to watch."""

    hookEventName: Literal["CwdChanged"]
    watchPaths: NotRequired[list[str]]


class FileChangedHookSpecificOutput(TypedDict):
    """Sets the files to watch."""

    hookEventName: Literal["FileChanged"]
    watchPaths: NotRequired[list[str]]


class WorktreeCreateHookSpecificOutput(TypedDict):
    """Names the folder of the new worktree."""

    hookEventName: Literal["WorktreeCreate"]
    worktreePath: str


class MessageDisplayHookSpecificOutput(TypedDict):
    """Replaces a text of the model for display."""

    hookEventName: Literal["MessageDisplay"]
    displayContent: NotRequired[str]


HookSpecificOutput = (
    PreToolUseHookSpecificOutput
    | PostToolUseHookSpecificOutput
    | PostToolUseFailureHookSpecificOutput
    | UserPromptSubmitHookSpecificOutput
    | SessionStartHookSpecificOutput
    | NotificationHookSpecificOutput
    | SubagentStartHookSpecificOutput
    | PermissionRequestHookSpecificOutput
    | UserPromptExpansionHookSpecificOutput
    | PostToolBatchHookSpecificOutput
    | StopHookSpecificOutput
    | SubagentStopHookSpecificOutput
    | PermissionDeniedHookSpecificOutput
    | PreModelSwitchHookSpecificOutput
    | PostModelSwitchHookSpecificOutput
    | ElicitationHookSpecificOutput
    | ElicitationResultHookSpecificOutput
    | CwdChangedHookSpecificOutput
    | FileChangedHookSpecificOutput
    | WorktreeCreateHookSpecificOutput
    | MessageDisplayHookSpecificOutput
)


class AsyncHookJSONOutput(TypedDict):
    """The hook continues in the background; the engine does not wait for it."""

    async_: Literal[True]
    asyncTimeout: NotRequired[int]


class SyncHookJSONOutput(TypedDict):
    """The answer of a hook; all keys are optional, and `{}` means no opinion.

        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}}

    A misspelled or misplaced key is a TypeError.
    """

    continue_: NotRequired[bool]
    suppressOutput: NotRequired[bool]
    stopReason: NotRequired[str]
    decision: NotRequired[Literal["block"]]
    systemMessage: NotRequired[str]
    reason: NotRequired[str]
    hookSpecificOutput: NotRequired[HookSpecificOutput]


HookJSONOutput = AsyncHookJSONOutput | SyncHookJSONOutput
"""What a hook returns. None is the same as `{}`."""
