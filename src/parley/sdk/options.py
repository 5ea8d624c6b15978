"""All options of a session.

    Options(model="sonnet", cwd="/srv/app", can_use_tool=ask, engine="local")

The names are those of the official SDK, and `ClaudeAgentOptions` is the same class. An option that
is a command-line flag has a row of the same name in protocol/options.py, which launch/args.py reads.
The last group exists only in Parley.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from parley.protocol.base import Json
from parley.sdk.hooks import HookMatcher
from parley.sdk.permissions import CanUseTool
from parley.sdk.questions import OnPlan, OnQuestion
from parley.sdk.types.shapes import (
    EffortLevel,
    McpServerConfig,
    PermissionMode,
    SandboxSettings,
    SdkPluginConfig,
    SessionStoreFlushMode,
    SettingSource,
    SystemPromptCustom,
    SystemPromptFile,
    SystemPromptPreset,
    TaskBudget,
    ThinkingConfig,
    ToolsPreset,
)

Callback = Callable[[Json], Awaitable[Json] | Json]


@dataclass
class AgentDefinition:
    """A subagent defined by the program. Field names are those of the protocol."""

    description: str
    prompt: str
    tools: list[str] | None = None
    disallowedTools: list[str] | None = None
    model: str | None = None
    skills: list[str] | None = None
    memory: Literal["user", "project", "local"] | None = None
    mcpServers: list[str | dict[str, Any]] | None = None
    initialPrompt: str | None = None
    maxTurns: int | None = None
    background: bool | None = None
    effort: EffortLevel | int | None = None
    permissionMode: PermissionMode | None = None
    isolation: Literal["worktree"] | None = None


@dataclass
class Options:
    """Most options are the flag of the same name (docs/cli.md). From `engine` on, they are not in the official SDK."""

    # Tools and permissions.
    tools: list[str] | ToolsPreset | None = None
    allowed_tools: list[str] = field(default_factory=list)
    system_prompt: str | SystemPromptPreset | SystemPromptCustom | SystemPromptFile | None = None
    mcp_servers: dict[str, McpServerConfig] | str | Path = field(default_factory=dict)
    strict_mcp_config: bool = False
    permission_mode: PermissionMode | None = None
    # The session.
    continue_conversation: bool = False
    resume: str | None = None
    session_id: str | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    disallowed_tools: list[str] = field(default_factory=list)
    model: str | None = None
    fallback_model: str | None = None
    betas: Sequence[str] = field(default_factory=list)
    permission_prompt_tool_name: str | None = None
    # Where and how the engine runs.
    cwd: str | Path | None = None
    cli_path: str | Path | None = None
    settings: str | None = None
    add_dirs: list[str | Path] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    extra_args: dict[str, str | None] = field(default_factory=dict)
    max_buffer_size: int | None = None
    """Longest line in bytes, 64 MiB by default. A longer one becomes `Unreadable`."""
    debug_stderr: Any = sys.stderr
    """No effect, as in the official SDK."""
    stderr: Callable[[str], None] | None = None
    """Called with each line of the engine's stderr; by default they go to the program's stderr."""
    # Callbacks.
    can_use_tool: CanUseTool | None = None
    hooks: Mapping[Any, list[HookMatcher]] | None = None
    user: str | None = None
    include_partial_messages: bool = False
    include_hook_events: bool = False
    forward_subagent_text: bool = False
    verbatim_prompts: bool = False
    """Take prompts literally: no @path, no slash command."""
    fork_session: bool = False
    resume_session_at: str | None = None
    resume_drops_turn: str | None = None
    agents: dict[str, AgentDefinition] | None = None
    setting_sources: list[SettingSource] | None = None
    skills: list[str] | Literal["all"] | None = None
    sandbox: SandboxSettings | None = None
    plugins: list[SdkPluginConfig] = field(default_factory=list)
    max_thinking_tokens: int | None = None
    thinking: ThinkingConfig | None = None
    effort: EffortLevel | None = None
    output_format: dict[str, Any] | None = None
    enable_file_checkpointing: bool = False
    session_store: Any = None
    session_store_flush: SessionStoreFlushMode = "batched"
    load_timeout_ms: int = 60_000
    task_budget: TaskBudget | None = None
    client_app: str | None = None
    # Only in Parley.
    engine: Literal["process", "local"] = "process"
    """`local`: run the engine in this process."""
    output_type: Any = None
    """Type of the structured output: a msgspec Struct, dataclass, TypedDict or pydantic model."""
    on_question: OnQuestion | None = None
    on_plan: OnPlan | None = None
    on_elicitation: Callback | None = None
    on_user_dialog: Callback | None = None
    supported_dialog_kinds: list[str] | None = None
    control_timeout_seconds: float = 60.0
    """How long to wait for a reply to a control request."""
    api_key: str | None = None
    """Passed in the environment, never on the command line."""
    agent: str | None = None
    title: str | None = None
    tool_aliases: Any = None
    plan_mode_instructions: str | None = None
    prompt_suggestions: bool | None = None
    agent_progress_summaries: bool | None = None
    persist_session: bool = True
    allow_dangerously_skip_permissions: bool = False
    debug: bool = False
    debug_file: str | None = None
    replay_user_messages: bool = False
    guard: bool = False
    """Ask `can_use_tool` about every call that is not denied."""
    fail_on_denial: bool = False
    store: str | None = None
    database: str | None = None
    steal: bool = False
    offline: bool = False
    record: str | None = None
    faults: list[str] = field(default_factory=list)
    bare: bool = False
    max_budget_tokens: int | None = None
    max_budget_calls: int | None = None
    max_budget_seconds: float | None = None
    autocompact: str | None = None


ClaudeAgentOptions = Options
