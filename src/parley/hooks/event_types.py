"""The hook events. Each is declared here, by the types of its input and of its output, and nowhere else.

Names and keys are those of the official SDK; an engine may send more keys than these. All names of this module are
exported by `parley`.

The docstring of an input says when its event fires. `hook_event` says what its hooks can do (event_spec.py).
"""

# No `from __future__ import annotations`: evaluating string annotations takes longer than all the rest of this module.
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

from parley.hooks.event_spec import hook_event

if TYPE_CHECKING:
    from parley.sdk.hooks import HookMatcher


_OF_TURN: dict[str, Any] = {"stops": "the turn", "includes_mode": True, "includes_effort": True}
_TEAM = ("teammate_name", "team_name")

# Parts of inputs.


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


class BatchedToolCall(TypedDict):
    """One call of a `PostToolBatchHookInput`."""

    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str
    tool_response: NotRequired[Any]


class BaseHookInput(TypedDict):
    """What every hook input has."""

    session_id: str
    transcript_path: str
    cwd: str
    permission_mode: NotRequired[str]
    prompt_id: NotRequired[str]
    effort: NotRequired[HookEffort]


class _OfAgent(BaseHookInput):
    agent_id: NotRequired[str]
    """Present if the event belongs to a subagent, as `agent_type`."""
    agent_type: NotRequired[str]


class _ToolCall(_OfAgent):
    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str


class _End(BaseHookInput):
    stop_hook_active: bool
    last_assistant_message: NotRequired[str]
    background_tasks: NotRequired[list[BackgroundTaskSummary]]
    session_crons: NotRequired[list[SessionCronSummary]]


class _ModelSwitch(BaseHookInput):
    from_model: str
    to_model: str
    requested_model: str | None
    context_tokens: int
    prompt_cache_warm: bool
    cache_ttl: Literal["5m", "1h"]
    estimated_cache_write_usd: float
    pricing: Literal["configured", "catalog", "default"]


class _Task(BaseHookInput):
    task_id: str
    task_subject: str
    task_description: NotRequired[str]
    teammate_name: NotRequired[str]
    team_name: NotRequired[str]


class _Context(TypedDict):
    additionalContext: NotRequired[str]


# Tool calls.


class PreToolUseHookSpecificOutput(TypedDict):
    """Decides on a tool call: allow, deny, ask or defer, with another input if given."""

    hookEventName: Literal["PreToolUse"]
    permissionDecision: NotRequired[Literal["allow", "deny", "ask", "defer"]]
    permissionDecisionReason: NotRequired[str]
    updatedInput: NotRequired[dict[str, Any]]
    additionalContext: NotRequired[str]


@hook_event(
    output=PreToolUseHookSpecificOutput,
    matched="tool_name",
    block="the call is denied",
    on_failure="block",
    block_continues=True,
    can_defer=True,
    **_OF_TURN,
)
class PreToolUseHookInput(_ToolCall):
    """Before the engine decides about a tool call and runs it."""

    hook_event_name: Literal["PreToolUse"]


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


@hook_event(
    output=PermissionRequestHookSpecificOutput,
    matched="tool_name",
    block="the call is denied",
    block_continues=True,
    **_OF_TURN,
)
class PermissionRequestHookInput(_OfAgent):
    """When a tool call needs approval, at the same time as can_use_tool is sent."""

    hook_event_name: Literal["PermissionRequest"]
    tool_name: str
    tool_input: dict[str, Any]
    permission_suggestions: NotRequired[list[Any]]


class PostToolUseHookSpecificOutput(_Context):
    """Adds context for the model, or replaces what it sees of the tool result."""

    hookEventName: Literal["PostToolUse"]
    updatedToolOutput: NotRequired[Any]
    updatedMCPToolOutput: NotRequired[Any]


@hook_event(
    output=PostToolUseHookSpecificOutput,
    inert=("classifierContext",),
    matched="tool_name",
    block="the model gets the reason",
    failure="the output is withheld",
    **_OF_TURN,
)
class PostToolUseHookInput(_ToolCall):
    """After a successful tool call."""

    hook_event_name: Literal["PostToolUse"]
    tool_response: Any
    duration_ms: NotRequired[float]


class PostToolUseFailureHookSpecificOutput(_Context):
    """Adds context for the model."""

    hookEventName: Literal["PostToolUseFailure"]


@hook_event(
    output=PostToolUseFailureHookSpecificOutput,
    matched="tool_name",
    block="the model gets the reason",
    **_OF_TURN,
)
class PostToolUseFailureHookInput(_ToolCall):
    """After a tool call that ran and failed."""

    hook_event_name: Literal["PostToolUseFailure"]
    error: str
    is_interrupt: NotRequired[bool]
    duration_ms: NotRequired[float]


class PostToolBatchHookSpecificOutput(_Context):
    """Adds context for the model."""

    hookEventName: Literal["PostToolBatch"]


@hook_event(
    output=PostToolBatchHookSpecificOutput,
    block="the model gets the reason",
    **_OF_TURN,
)
class PostToolBatchHookInput(_OfAgent):
    """After all tool calls of one model response."""

    hook_event_name: Literal["PostToolBatch"]
    tool_calls: list[BatchedToolCall]


# Prompts and sessions.


class UserPromptSubmitHookSpecificOutput(_Context):
    """Adds context to a prompt, or names the session."""

    hookEventName: Literal["UserPromptSubmit"]
    sessionTitle: NotRequired[str]
    suppressOriginalPrompt: NotRequired[bool]


@hook_event(
    output=UserPromptSubmitHookSpecificOutput,
    untyped=("source", "session_title"),
    block="the prompt is dropped",
    stops="the turn",
    includes_mode=True,
    accepts_text=True,
)
class UserPromptSubmitHookInput(BaseHookInput):
    """Before a prompt is accepted and system/init is sent."""

    hook_event_name: Literal["UserPromptSubmit"]
    prompt: str


class SessionStartHookSpecificOutput(_Context):
    """Adds context or a first prompt, names the session, watches files."""

    hookEventName: Literal["SessionStart"]
    initialUserMessage: NotRequired[str]
    sessionTitle: NotRequired[str]
    watchPaths: NotRequired[list[str]]
    reloadSkills: NotRequired[bool]


@hook_event(output=SessionStartHookSpecificOutput, matched="source", accepts_text=True)
class SessionStartHookInput(BaseHookInput):
    """Before the first turn (not for callbacks of the client), and after compaction."""

    hook_event_name: Literal["SessionStart"]
    source: Literal["startup", "resume", "clear", "compact", "fork"]
    agent_type: NotRequired[str]
    model: NotRequired[str]
    session_title: NotRequired[str]
    seconds_since_last_response: NotRequired[float]
    context_tokens: NotRequired[int]
    prompt_cache_likely_expired: NotRequired[bool]
    estimated_cache_write_usd: NotRequired[float]


@hook_event(matched="reason")
class SessionEndHookInput(BaseHookInput):
    """At the end of the session."""

    hook_event_name: Literal["SessionEnd"]
    reason: str


class StopHookSpecificOutput(_Context):
    """Adds context for the model."""

    hookEventName: Literal["Stop"]


@hook_event(
    output=StopHookSpecificOutput,
    block="the turn continues, and the model gets the reason",
    block_continues=True,
    failure_blocks=False,
    **_OF_TURN,
)
class StopHookInput(_End):
    """When the model has finished, before the result is sent."""

    hook_event_name: Literal["Stop"]


@hook_event(includes_mode=True, includes_effort=True)
class StopFailureHookInput(BaseHookInput):
    """When a model error ends the turn."""

    hook_event_name: Literal["StopFailure"]
    error: str
    error_details: NotRequired[str]
    last_assistant_message: NotRequired[str]


class SubagentStartHookSpecificOutput(_Context):
    """Adds context for the subagent."""

    hookEventName: Literal["SubagentStart"]


@hook_event(output=SubagentStartHookSpecificOutput, matched="agent_type")
class SubagentStartHookInput(BaseHookInput):
    """When a subagent starts."""

    hook_event_name: Literal["SubagentStart"]
    agent_id: str
    agent_type: str


class SubagentStopHookSpecificOutput(_Context):
    """Adds context for the subagent."""

    hookEventName: Literal["SubagentStop"]


@hook_event(
    output=SubagentStopHookSpecificOutput,
    matched="agent_type",
    block="the subagent continues, and gets the reason",
    block_continues=True,
    stops="the subagent",
    failure_blocks=False,
    includes_mode=True,
    includes_effort=True,
)
class SubagentStopHookInput(_End):
    """When a subagent finishes."""

    hook_event_name: Literal["SubagentStop"]
    agent_id: str
    agent_transcript_path: str
    agent_type: str


@hook_event(matched="trigger", block="compaction is skipped", block_continues=True, stops="the compaction")
class PreCompactHookInput(BaseHookInput):
    """Before compaction."""

    hook_event_name: Literal["PreCompact"]
    trigger: Literal["manual", "auto"]
    custom_instructions: str | None


@hook_event(matched="trigger")
class PostCompactHookInput(BaseHookInput):
    """After compaction."""

    hook_event_name: Literal["PostCompact"]
    trigger: Literal["manual", "auto"]
    compact_summary: str


class NotificationHookSpecificOutput(_Context):
    """Adds context for the model."""

    hookEventName: Literal["Notification"]


@hook_event(output=NotificationHookSpecificOutput, matched="notification_type")
class NotificationHookInput(BaseHookInput):
    """When a permission request is not answered for some time."""

    hook_event_name: Literal["Notification"]
    message: str
    title: NotRequired[str]
    notification_type: str


class MessageDisplayHookSpecificOutput(TypedDict):
    """Replaces a text of the model for display."""

    hookEventName: Literal["MessageDisplay"]
    displayContent: NotRequired[str]


@hook_event(output=MessageDisplayHookSpecificOutput)
class MessageDisplayHookInput(BaseHookInput):
    """Before a text of the model is sent to the client."""

    hook_event_name: Literal["MessageDisplay"]
    turn_id: str
    message_id: str
    index: int
    final: bool
    delta: str


class PermissionDeniedHookSpecificOutput(TypedDict):
    """Tells the model whether it may try the call again."""

    hookEventName: Literal["PermissionDenied"]
    retry: NotRequired[bool]


@hook_event(output=PermissionDeniedHookSpecificOutput, matched="tool_name", includes_mode=True, includes_effort=True)
class PermissionDeniedHookInput(_ToolCall):
    """After a call was denied by a rule, the mode or a hook, or because no one could be asked."""

    hook_event_name: Literal["PermissionDenied"]
    reason: str


class UserPromptExpansionHookSpecificOutput(_Context):
    """Adds context to the prompt of a slash command."""

    hookEventName: Literal["UserPromptExpansion"]
    suppressOriginalPrompt: NotRequired[bool]


@hook_event(
    output=UserPromptExpansionHookSpecificOutput,
    matched="command_name",
    block="the command is not sent",
    stops="the turn",
    includes_mode=True,
)
class UserPromptExpansionHookInput(BaseHookInput):
    """Before a slash command of the user becomes a prompt."""

    hook_event_name: Literal["UserPromptExpansion"]
    expansion_type: Literal["slash_command", "mcp_prompt"]
    command_name: str
    command_args: str
    command_source: NotRequired[str]
    prompt: str


# MCP servers and models.


class ElicitationHookSpecificOutput(TypedDict):
    """Answers an MCP server instead of the user."""

    hookEventName: Literal["Elicitation"]
    action: NotRequired[Literal["accept", "decline", "cancel"]]
    content: NotRequired[dict[str, Any]]


@hook_event(output=ElicitationHookSpecificOutput, matched="mcp_server_name", block="the question is declined")
class ElicitationHookInput(BaseHookInput):
    """When an MCP server asks the user a question."""

    hook_event_name: Literal["Elicitation"]
    mcp_server_name: str
    message: str
    mode: NotRequired[Literal["form", "url"]]
    url: NotRequired[str]
    elicitation_id: NotRequired[str]
    requested_schema: NotRequired[dict[str, Any]]


class ElicitationResultHookSpecificOutput(TypedDict):
    """Replaces the user's answer to an MCP server."""

    hookEventName: Literal["ElicitationResult"]
    action: NotRequired[Literal["accept", "decline", "cancel"]]
    content: NotRequired[dict[str, Any]]


@hook_event(output=ElicitationResultHookSpecificOutput, matched="mcp_server_name", block="the question is declined")
class ElicitationResultHookInput(BaseHookInput):
    """Before the user's answer is sent to an MCP server."""

    hook_event_name: Literal["ElicitationResult"]
    mcp_server_name: str
    elicitation_id: NotRequired[str]
    mode: NotRequired[Literal["form", "url"]]
    action: Literal["accept", "decline", "cancel"]
    content: NotRequired[dict[str, Any]]


class PreModelSwitchHookSpecificOutput(TypedDict):
    """Decides on a switch of the model."""

    hookEventName: Literal["PreModelSwitch"]
    permissionDecision: NotRequired[Literal["allow", "deny", "ask"]]
    permissionDecisionReason: NotRequired[str]


@hook_event(
    output=PreModelSwitchHookSpecificOutput,
    matched="to_model",
    block="the model is not changed",
    on_failure="block",
)
class PreModelSwitchHookInput(_ModelSwitch):
    """Before set_model or /model changes the model."""

    hook_event_name: Literal["PreModelSwitch"]
    source: Literal["command", "picker", "sdk"]


class PostModelSwitchHookSpecificOutput(_Context):
    """Adds context for the model."""

    hookEventName: Literal["PostModelSwitch"]


@hook_event(output=PostModelSwitchHookSpecificOutput, matched="to_model")
class PostModelSwitchHookInput(_ModelSwitch):
    """After the model of the session changed."""

    hook_event_name: Literal["PostModelSwitch"]
    source: Literal["command", "picker", "sdk", "auto", "resume"]


# Tasks, files and settings.


@hook_event(block="the task is not added, and the model gets the reason", includes_mode=True, unsent=_TEAM)
class TaskCreatedHookInput(_Task):
    """Before TaskCreate adds a task."""

    hook_event_name: Literal["TaskCreated"]


@hook_event(
    block="the task stays open, and the model gets the reason", failure_blocks=False, includes_mode=True, unsent=_TEAM
)
class TaskCompletedHookInput(_Task):
    """Before TaskUpdate completes a task."""

    hook_event_name: Literal["TaskCompleted"]


class WorktreeCreateHookSpecificOutput(TypedDict):
    """Names the folder of the new worktree."""

    hookEventName: Literal["WorktreeCreate"]
    worktreePath: str


@hook_event(
    output=WorktreeCreateHookSpecificOutput,
    matched="name",
    block="the agent does not start",
    accepts_text=True,
    text_field="worktreePath",
)
class WorktreeCreateHookInput(BaseHookInput):
    """When an agent or the session needs a worktree; the hook creates it instead of git."""

    hook_event_name: Literal["WorktreeCreate"]
    name: str


@hook_event()
class WorktreeRemoveHookInput(BaseHookInput):
    """After git removed a worktree, or to remove a worktree that a hook created."""

    hook_event_name: Literal["WorktreeRemove"]
    worktree_path: str


@hook_event(matched="load_reason", unsent=("globs",))
class InstructionsLoadedHookInput(BaseHookInput):
    """When a memory file is loaded."""

    hook_event_name: Literal["InstructionsLoaded"]
    file_path: str
    memory_type: Literal["User", "Project", "Local", "Managed"]
    load_reason: Literal["session_start", "nested_traversal", "path_glob_match", "include", "compact"]
    globs: NotRequired[list[str]]
    trigger_file_path: NotRequired[str]
    parent_file_path: NotRequired[str]


class CwdChangedHookSpecificOutput(TypedDict):
    """Sets the files to watch."""

    hookEventName: Literal["CwdChanged"]
    watchPaths: NotRequired[list[str]]


@hook_event(output=CwdChangedHookSpecificOutput)
class CwdChangedHookInput(BaseHookInput):
    """After a command or set_cwd changed the working directory."""

    hook_event_name: Literal["CwdChanged"]
    old_cwd: str
    new_cwd: str


@hook_event()
class DirectoryAddedHookInput(BaseHookInput):
    """After register_repo_root added a working directory."""

    hook_event_name: Literal["DirectoryAdded"]
    directory: str
    source: Literal["slash_command", "register_repo_root"]


@hook_event(matched="source", block="update_settings is refused")
class ConfigChangeHookInput(BaseHookInput):
    """Before update_settings takes effect, and after a settings file or the skills changed."""

    hook_event_name: Literal["ConfigChange"]
    source: Literal["user_settings", "project_settings", "local_settings", "policy_settings", "skills"]
    file_path: NotRequired[str]


class FileChangedHookSpecificOutput(TypedDict):
    """Sets the files to watch."""

    hookEventName: Literal["FileChanged"]
    watchPaths: NotRequired[list[str]]


@hook_event(output=FileChangedHookSpecificOutput, matched="file_path")
class FileChangedHookInput(BaseHookInput):
    """After a watched file changed."""

    hook_event_name: Literal["FileChanged"]
    file_path: str
    event: Literal["change", "add", "unlink"]


@hook_event(never="there is no --init or --maintenance")
class SetupHookInput(BaseHookInput):
    """When a project is set up. Parley never fires it."""

    hook_event_name: Literal["Setup"]
    trigger: Literal["init", "maintenance"]


@hook_event(never="there are no teammates")
class TeammateIdleHookInput(BaseHookInput):
    """When a teammate has nothing to do. Parley never fires it."""

    hook_event_name: Literal["TeammateIdle"]
    teammate_name: str
    team_name: str


# All events.

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


if TYPE_CHECKING:

    class Hooks(TypedDict, total=False):
        """The hooks of a session by event, each with the input of its event."""

        PreToolUse: Sequence[HookMatcher[PreToolUseHookInput]]
        PostToolUse: Sequence[HookMatcher[PostToolUseHookInput]]
        PostToolUseFailure: Sequence[HookMatcher[PostToolUseFailureHookInput]]
        UserPromptSubmit: Sequence[HookMatcher[UserPromptSubmitHookInput]]
        Stop: Sequence[HookMatcher[StopHookInput]]
        SubagentStop: Sequence[HookMatcher[SubagentStopHookInput]]
        PreCompact: Sequence[HookMatcher[PreCompactHookInput]]
        Notification: Sequence[HookMatcher[NotificationHookInput]]
        SubagentStart: Sequence[HookMatcher[SubagentStartHookInput]]
        PermissionRequest: Sequence[HookMatcher[PermissionRequestHookInput]]
        SessionStart: Sequence[HookMatcher[SessionStartHookInput]]
        SessionEnd: Sequence[HookMatcher[SessionEndHookInput]]
        PostCompact: Sequence[HookMatcher[PostCompactHookInput]]
        PostToolBatch: Sequence[HookMatcher[PostToolBatchHookInput]]
        PermissionDenied: Sequence[HookMatcher[PermissionDeniedHookInput]]
        UserPromptExpansion: Sequence[HookMatcher[UserPromptExpansionHookInput]]
        PreModelSwitch: Sequence[HookMatcher[PreModelSwitchHookInput]]
        PostModelSwitch: Sequence[HookMatcher[PostModelSwitchHookInput]]
        Elicitation: Sequence[HookMatcher[ElicitationHookInput]]
        ElicitationResult: Sequence[HookMatcher[ElicitationResultHookInput]]
        CwdChanged: Sequence[HookMatcher[CwdChangedHookInput]]
        DirectoryAdded: Sequence[HookMatcher[DirectoryAddedHookInput]]
        FileChanged: Sequence[HookMatcher[FileChangedHookInput]]
        WorktreeCreate: Sequence[HookMatcher[WorktreeCreateHookInput]]
        WorktreeRemove: Sequence[HookMatcher[WorktreeRemoveHookInput]]
        MessageDisplay: Sequence[HookMatcher[MessageDisplayHookInput]]
        StopFailure: Sequence[HookMatcher[StopFailureHookInput]]
        Setup: Sequence[HookMatcher[SetupHookInput]]
        TeammateIdle: Sequence[HookMatcher[TeammateIdleHookInput]]
        TaskCreated: Sequence[HookMatcher[TaskCreatedHookInput]]
        TaskCompleted: Sequence[HookMatcher[TaskCompletedHookInput]]
        ConfigChange: Sequence[HookMatcher[ConfigChangeHookInput]]
        InstructionsLoaded: Sequence[HookMatcher[InstructionsLoadedHookInput]]


# What a hook returns.


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
