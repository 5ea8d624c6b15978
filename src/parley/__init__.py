"""Parley: an open engine and SDK for the agent wire protocol of the Claude Code CLI and its SDKs.

    from parley import Client, Options, run, run_sync, tool

Names are loaded when they are first used: importing this module loads nothing else. The names of the
official Python SDK are exported too, so you can port a program by changing its import line (docs/sdk.md).

Our own code imports a whole module as `import parley.tools as tools`: for `from parley import tools`, Python would
first look for an exported name, and load the table of all of them.
"""

from parley.version import __version__ as __version__

TYPE_CHECKING = False  # importing it from typing would take longer than everything else here

if TYPE_CHECKING:
    # fmt: off
    # isort: off
    from parley.sdk.run import run as run, run_sync as run_sync
    from parley.sdk.batch import (
        run_many as run_many, run_many_sync as run_many_sync, Batch as Batch, RunOutcome as RunOutcome,
        RunProgress as RunProgress,
    )
    from parley.sdk.types.messages import RunResult as RunResult
    from parley.sdk.client import Client as Client, ClaudeSDKClient as ClaudeSDKClient
    from parley.sdk.runtime.turns import Turn as Turn
    from parley.sdk.options import ClaudeAgentOptions as ClaudeAgentOptions, Options as Options
    from parley.sdk.types.agents import AgentDefinition as AgentDefinition
    from parley.sdk.query import query as query
    from parley.sdk.sync import SyncClient as SyncClient, SyncTurn as SyncTurn, query_sync as query_sync
    from parley.sdk.tool import tool as tool
    from parley.sdk.runtime.mcp_tool import (
        SdkMcpTool as SdkMcpTool, ToolAnnotations as ToolAnnotations, create_sdk_mcp_server as create_sdk_mcp_server,
        FunctionTool as FunctionTool,
    )
    from parley.sdk.context import RunContext as RunContext
    from parley.sdk.budget import Budget as Budget
    from parley.sdk.launch.in_process import tune_gc as tune_gc
    from parley.sdk.errors import (
        CLIConnectionError as CLIConnectionError, CLIJSONDecodeError as CLIJSONDecodeError,
        CLINotFoundError as CLINotFoundError, ClaudeSDKError as ClaudeSDKError, ControlError as ControlError,
        ControlTimeout as ControlTimeout, NotConnected as NotConnected, OptionsError as OptionsError,
        ProcessError as ProcessError, ResultError as ResultError, MessageParseError as MessageParseError,
        BudgetExceeded as BudgetExceeded,
    )
    from parley.sdk.attach import Attached as Attached, attach as attach
    from parley.sdk.types.messages import (
        ContentBlock as ContentBlock, OtherBlock as OtherBlock, ServerToolName as ServerToolName,
        ServerToolResultBlock as ServerToolResultBlock, ServerToolUseBlock as ServerToolUseBlock,
        TextBlock as TextBlock, ThinkingBlock as ThinkingBlock, ToolResultBlock as ToolResultBlock,
        ToolUseBlock as ToolUseBlock,
    )
    from parley.hooks.event_types import *  # noqa: F403
    from parley.sdk.hooks import (
        HookCallback as HookCallback, HookContext as HookContext, HookMatcher as HookMatcher, Hooks as Hooks,
    )
    from parley.sdk.types.messages import (
        AssistantMessage as AssistantMessage, ConversationResetMessage as ConversationResetMessage,
        DeferredToolUse as DeferredToolUse, HookEventMessage as HookEventMessage, Message as Message,
        MirrorErrorMessage as MirrorErrorMessage, Notice as Notice, RateLimitEvent as RateLimitEvent,
        RateLimitInfo as RateLimitInfo, ResultMessage as ResultMessage, StreamEvent as StreamEvent,
        SystemMessage as SystemMessage, TERMINAL_TASK_STATUSES as TERMINAL_TASK_STATUSES,
        TaskNotificationMessage as TaskNotificationMessage, TaskProgressMessage as TaskProgressMessage,
        TaskStartedMessage as TaskStartedMessage, TaskUpdatedMessage as TaskUpdatedMessage, Unknown as Unknown,
        Unreadable as Unreadable, UserMessage as UserMessage,
    )
    from parley.sdk.permissions import (
        CanUseTool as CanUseTool, CanUseToolShadowedWarning as CanUseToolShadowedWarning,
        PermissionResult as PermissionResult, PermissionResultAllow as PermissionResultAllow,
        PermissionResultDeny as PermissionResultDeny, PermissionUpdate as PermissionUpdate,
        ToolPermissionContext as ToolPermissionContext, PermissionRuleValue as PermissionRuleValue, Signal as Signal,
    )
    from parley.sdk.questions import (
        Answers as Answers, Plan as Plan, PlanDecision as PlanDecision, Question as Question, Questions as Questions,
        Choice as Choice,
    )
    from parley.sdk.sessions import (
        list_sessions as list_sessions, get_session_info as get_session_info,
        get_session_messages as get_session_messages, list_subagents as list_subagents,
        get_subagent_messages as get_subagent_messages, SDKSessionInfo as SDKSessionInfo,
        SessionMessage as SessionMessage, project_key_for_directory as project_key_for_directory,
        rename_session as rename_session, tag_session as tag_session, delete_session as delete_session,
        fork_session as fork_session, ForkSessionResult as ForkSessionResult,
    )
    from parley.sdk.types.shapes import (
        PermissionMode as PermissionMode, EffortLevel as EffortLevel, McpServerConfig as McpServerConfig,
        McpSdkServerConfig as McpSdkServerConfig, McpServerStatus as McpServerStatus,
        McpServerStatusConfig as McpServerStatusConfig, McpServerConnectionStatus as McpServerConnectionStatus,
        McpServerInfo as McpServerInfo, McpStatusResponse as McpStatusResponse,
        McpToolAnnotations as McpToolAnnotations, McpToolInfo as McpToolInfo, SystemInitData as SystemInitData,
        SystemInitMcpServer as SystemInitMcpServer, SystemInitPlugin as SystemInitPlugin,
        SystemInitPluginError as SystemInitPluginError, FastModeState as FastModeState,
        FastModeDisabledReason as FastModeDisabledReason, TaskNotificationStatus as TaskNotificationStatus,
        TaskUpdatedStatus as TaskUpdatedStatus, TaskUsage as TaskUsage, ModelUsage as ModelUsage,
        RateLimitStatus as RateLimitStatus, RateLimitType as RateLimitType, MessageOrigin as MessageOrigin,
        MessageOriginKind as MessageOriginKind, TaskNotificationOriginSubkind as TaskNotificationOriginSubkind,
        TaskBudget as TaskBudget, ThinkingConfig as ThinkingConfig, ThinkingConfigAdaptive as ThinkingConfigAdaptive,
        ThinkingConfigEnabled as ThinkingConfigEnabled, ThinkingConfigDisabled as ThinkingConfigDisabled,
        ContextUsageCategory as ContextUsageCategory, ContextUsageResponse as ContextUsageResponse,
        SettingSource as SettingSource, SdkPluginConfig as SdkPluginConfig, SessionKey as SessionKey,
        SessionStoreEntry as SessionStoreEntry, SessionStoreFlushMode as SessionStoreFlushMode,
        SessionStoreListEntry as SessionStoreListEntry, SessionSummaryEntry as SessionSummaryEntry,
        SessionListSubkeysKey as SessionListSubkeysKey, SdkBeta as SdkBeta, SandboxSettings as SandboxSettings,
        SandboxNetworkConfig as SandboxNetworkConfig, SandboxIgnoreViolations as SandboxIgnoreViolations,
        ElicitationRequest as ElicitationRequest, ElicitationResult as ElicitationResult,
        UserDialogRequest as UserDialogRequest, UserDialogResult as UserDialogResult,
    )
    from parley.sdk.store.interface import (
        SessionStore as SessionStore, InMemorySessionStore as InMemorySessionStore,
        fold_session_summary as fold_session_summary,
    )
    from parley.sdk.store.sessions import (
        import_session_to_store as import_session_to_store, list_sessions_from_store as list_sessions_from_store,
        get_session_info_from_store as get_session_info_from_store,
        get_session_messages_from_store as get_session_messages_from_store,
        list_subagents_from_store as list_subagents_from_store,
        get_subagent_messages_from_store as get_subagent_messages_from_store,
        rename_session_via_store as rename_session_via_store, tag_session_via_store as tag_session_via_store,
        delete_session_via_store as delete_session_via_store, fork_session_via_store as fork_session_via_store,
    )
    from parley.sdk.runtime.transport import Ended as Ended, Transport as Transport, Wire as Wire
    from parley.models.script import (
        Script as Script, ScriptedTurn as ScriptedTurn, ScriptedCall as ScriptedCall, ScriptedError as ScriptedError,
    )
    # isort: on
    # fmt: on
    __all__: list[str]


def __getattr__(name: str) -> object:
    from parley.exports import find_home, list_names

    if name == "__all__":
        value: object = list_names()
    elif (home := find_home(name)) is not None:
        from importlib import import_module

        value = getattr(import_module(home), name)
    else:
        raise AttributeError(f"module 'parley' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from parley.exports import list_names

    return sorted({*globals(), *list_names()})
