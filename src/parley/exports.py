"""The names that `parley` exports, and the module of each one. `parley` reads it when a name is first used.

find_home("Client")     ->  "parley.sdk.client"
"""

from __future__ import annotations

HOMES: dict[str, str] = {
    "parley.sdk.run": "run run_sync",
    "parley.sdk.batch": "run_many run_many_sync Batch RunOutcome RunProgress",
    "parley.sdk.client": "Client ClaudeSDKClient",
    "parley.sdk.runtime.turns": "Turn",
    "parley.sdk.options": "ClaudeAgentOptions Options",
    "parley.sdk.types.agents": "AgentDefinition",
    "parley.sdk.query": "query",
    "parley.sdk.sync": "SyncClient SyncTurn query_sync",
    "parley.sdk.tool": "tool",
    "parley.sdk.runtime.mcp_tool": "SdkMcpTool ToolAnnotations create_sdk_mcp_server FunctionTool",
    "parley.sdk.context": "RunContext",
    "parley.sdk.budget": "Budget",
    "parley.sdk.launch.in_process": "tune_gc",
    "parley.sdk.errors": (
        "CLIConnectionError CLIJSONDecodeError CLINotFoundError ClaudeSDKError ControlError ControlTimeout "
        "NotConnected OptionsError ProcessError ResultError MessageParseError BudgetExceeded"
    ),
    "parley.sdk.attach": "Attached attach",
    "parley.sdk.hooks": "HookCallback HookContext HookMatcher Hooks",
    "parley.sdk.types.messages": (
        "AssistantMessage ConversationResetMessage DeferredToolUse HookEventMessage Message MirrorErrorMessage "
        "Notice RateLimitEvent RateLimitInfo ResultMessage StreamEvent SystemMessage TERMINAL_TASK_STATUSES "
        "TaskNotificationMessage TaskProgressMessage TaskStartedMessage TaskUpdatedMessage Unknown Unreadable "
        "UserMessage RunResult ContentBlock OtherBlock ServerToolName ServerToolResultBlock ServerToolUseBlock "
        "TextBlock ThinkingBlock ToolResultBlock ToolUseBlock"
    ),
    "parley.sdk.permissions": (
        "CanUseTool CanUseToolShadowedWarning PermissionResult PermissionResultAllow PermissionResultDeny "
        "PermissionUpdate ToolPermissionContext PermissionRuleValue Signal"
    ),
    "parley.sdk.questions": "Answers Plan PlanDecision Question Questions Choice",
    "parley.sdk.sessions": (
        "list_sessions get_session_info get_session_messages list_subagents get_subagent_messages SDKSessionInfo "
        "SessionMessage project_key_for_directory rename_session tag_session delete_session fork_session "
        "ForkSessionResult"
    ),
    "parley.sdk.types.shapes": (
        "PermissionMode EffortLevel McpServerConfig McpSdkServerConfig McpServerStatus McpServerStatusConfig "
        "McpServerConnectionStatus McpServerInfo McpStatusResponse McpToolAnnotations McpToolInfo SystemInitData "
        "SystemInitMcpServer SystemInitPlugin SystemInitPluginError FastModeState FastModeDisabledReason "
        "TaskNotificationStatus TaskUpdatedStatus TaskUsage ModelUsage RateLimitStatus RateLimitType "
        "MessageOrigin MessageOriginKind TaskNotificationOriginSubkind TaskBudget ThinkingConfig "
        "ThinkingConfigAdaptive ThinkingConfigEnabled ThinkingConfigDisabled ContextUsageCategory "
        "ContextUsageResponse SettingSource SdkPluginConfig SessionKey SessionStoreEntry SessionStoreFlushMode "
        "SessionStoreListEntry SessionSummaryEntry SessionListSubkeysKey SdkBeta SandboxSettings "
        "SandboxNetworkConfig SandboxIgnoreViolations ElicitationRequest ElicitationResult UserDialogRequest "
        "UserDialogResult"
    ),
    "parley.sdk.store.interface": "SessionStore InMemorySessionStore fold_session_summary",
    "parley.sdk.store.sessions": (
        "import_session_to_store list_sessions_from_store get_session_info_from_store "
        "get_session_messages_from_store list_subagents_from_store get_subagent_messages_from_store "
        "rename_session_via_store tag_session_via_store delete_session_via_store fork_session_via_store"
    ),
    "parley.sdk.runtime.transport": "Ended Transport Wire",
    "parley.models.script": "Script ScriptedTurn ScriptedCall ScriptedError",
}
"""The exported names of each module."""
HOME_OF = {name: module for module, names in HOMES.items() for name in names.split()}
"""The module of each exported name."""
OPEN = "parley.hooks.event_types"
"""A module of types that exports every name that it defines."""


def find_home(name: str) -> str | None:
    """The module of an exported name; None if there is no such name."""
    return HOME_OF.get(name) or (OPEN if name[:1].isupper() and name in list_open() else None)


def list_names() -> list[str]:
    return ["__version__", *HOME_OF, *list_open()]


def list_open() -> list[str]:
    import typing
    from importlib import import_module

    return [
        name
        for name, value in vars(import_module(OPEN)).items()
        if not name.startswith("_")
        and not hasattr(typing, name)
        and getattr(value, "__module__", OPEN) in (OPEN, "typing", "types")
    ]
