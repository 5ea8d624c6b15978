"""The names that `import parley` exports, and the modules that it loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import parley
from parley.exports import HOME_OF, OPEN

SOURCE = Path(parley.__file__)
OFFICIAL = """
AgentDefinition AssistantMessage BackgroundTaskSummary BaseHookInput CLIConnectionError CLIJSONDecodeError
CLINotFoundError CanUseTool CanUseToolShadowedWarning ClaudeAgentOptions ClaudeSDKClient ClaudeSDKError
ContentBlock ContextUsageCategory ContextUsageResponse ConversationResetMessage CwdChangedHookSpecificOutput
DeferredToolUse EffortLevel ElicitationHookSpecificOutput ElicitationResultHookSpecificOutput
FastModeDisabledReason FastModeState FileChangedHookSpecificOutput ForkSessionResult HookCallback HookContext
HookEffort HookEventMessage HookInput HookJSONOutput HookMatcher InMemorySessionStore McpSdkServerConfig
McpServerConfig McpServerConnectionStatus McpServerInfo McpServerStatus McpServerStatusConfig
McpStatusResponse McpToolAnnotations McpToolInfo Message MessageDisplayHookSpecificOutput MessageOrigin
MessageOriginKind MirrorErrorMessage ModelUsage NotificationHookInput NotificationHookSpecificOutput
PermissionDeniedHookSpecificOutput PermissionMode PermissionRequestHookInput
PermissionRequestHookSpecificOutput PermissionResult PermissionResultAllow PermissionResultDeny
PermissionUpdate PostModelSwitchHookSpecificOutput PostToolBatchHookSpecificOutput PostToolUseFailureHookInput
PostToolUseFailureHookSpecificOutput PostToolUseHookInput PostToolUseHookSpecificOutput PreCompactHookInput
PreModelSwitchHookSpecificOutput PreToolUseHookInput PreToolUseHookSpecificOutput ProcessError RateLimitEvent
RateLimitInfo RateLimitStatus RateLimitType ResultError ResultMessage SDKSessionInfo SandboxIgnoreViolations
SandboxNetworkConfig SandboxSettings SdkBeta SdkMcpTool SdkPluginConfig ServerToolName ServerToolResultBlock
ServerToolUseBlock SessionCronSummary SessionKey SessionListSubkeysKey SessionMessage
SessionStartHookSpecificOutput SessionStore SessionStoreEntry SessionStoreFlushMode SessionStoreListEntry
SessionSummaryEntry SettingSource StopHookInput StopHookSpecificOutput StreamEvent SubagentStartHookInput
SubagentStartHookSpecificOutput SubagentStopHookInput SubagentStopHookSpecificOutput SystemInitData
SystemInitMcpServer SystemInitPlugin SystemInitPluginError SystemMessage TERMINAL_TASK_STATUSES TaskBudget
TaskNotificationMessage TaskNotificationOriginSubkind TaskNotificationStatus TaskProgressMessage
TaskStartedMessage TaskUpdatedMessage TaskUpdatedStatus TaskUsage TextBlock ThinkingBlock ThinkingConfig
ThinkingConfigAdaptive ThinkingConfigDisabled ThinkingConfigEnabled ToolAnnotations ToolPermissionContext
ToolResultBlock ToolUseBlock Transport UserMessage UserPromptExpansionHookSpecificOutput
UserPromptSubmitHookInput UserPromptSubmitHookSpecificOutput WorktreeCreateHookSpecificOutput __version__
create_sdk_mcp_server delete_session delete_session_via_store fold_session_summary fork_session
fork_session_via_store get_session_info get_session_info_from_store get_session_messages
get_session_messages_from_store get_subagent_messages get_subagent_messages_from_store import_session_to_store
list_sessions list_sessions_from_store list_subagents list_subagents_from_store project_key_for_directory
query rename_session rename_session_via_store tag_session tag_session_via_store tool
"""
"""The public names of the official SDK, 0.2.184."""
FROM_TYPES = """
PermissionRuleValue PermissionUpdateDestination PermissionBehavior HookEvent HookSpecificOutput
SystemPromptPreset SystemPromptCustom SystemPromptFile ToolsPreset McpStdioServerConfig McpSSEServerConfig
McpHttpServerConfig McpSdkServerConfigStatus SyncHookJSONOutput AsyncHookJSONOutput ThinkingDisplay
"""
"""Names that programs import from its `types`, in addition to the public names."""
LIGHT = frozenset({"parley", "parley.version"})
USUAL = LIGHT | {
    *("parley.errors", "parley.exports"),
    *("parley.sdk", "parley.sdk.client", "parley.sdk.controls", "parley.sdk.types.deferred", "parley.sdk.errors"),
    *("parley.sdk.options", "parley.sdk.query", "parley.sdk.tool", "parley.sdk.types", "parley.sdk.types.generic"),
}
"""What `from parley import Client, Options, query, tool` loads: no msgspec, asyncio or dataclasses, which take longer
than all of it. A connection loads the rest."""


def test_importing_the_package_loads_nothing_else() -> None:
    script = "import sys; before = set(sys.modules); import parley; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert set(loaded) - {"typing", "__future__"} - standard(loaded) == LIGHT


def test_the_usual_names_load_light_modules_of_ours_and_only_typing_besides() -> None:
    usual = modules_after("from parley import Client, Options, query, tool")
    bare = modules_after("import __future__, importlib, typing")

    assert {name for name in usual - bare if name.split(".")[0] != "parley"} == set()
    assert {name for name in usual if name.split(".")[0] == "parley"} == USUAL


def modules_after(statement: str) -> set[str]:
    script = f"import sys; {statement}; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def standard(modules: list[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] in sys.stdlib_module_names}


@pytest.mark.parametrize("name", parley.__all__)
def test_every_name_can_be_imported(name: str) -> None:
    assert getattr(parley, name) is not None


def test_type_checkers_see_the_names_that_programs_get() -> None:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    declared = {
        alias.asname or alias.name: statement.module
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }

    assert declared.pop("*") == OPEN
    assert declared == HOME_OF


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = parley.no_such_name


def test_every_name_of_the_official_sdk_is_here() -> None:
    assert [name for name in OFFICIAL.split() if not hasattr(parley, name)] == []


def test_the_modules_that_programs_reach_into_are_here() -> None:
    types, errors = import_module("parley.types"), import_module("parley._errors")

    in_types = [name for name in OFFICIAL.split() if name.endswith(("Message", "Block", "HookInput", "Result"))]
    assert [name for name in (*FROM_TYPES.split(), *in_types) if not hasattr(types, name)] == []
    assert issubclass(errors.MessageParseError, parley.ClaudeSDKError)
