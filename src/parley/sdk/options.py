"""All options of a session.

    Options(model="sonnet", cwd="/srv/app", can_use_tool=ask, engine="local")

The names are those of the official SDK, and `ClaudeAgentOptions` is the same class. A field is the typed view of a row
of protocol/options.py with this name (or with `sdk` as this name), from which launch/args.py makes a flag, a field of
`initialize` or a variable. Options that are no flags are only here. The last group exists only in Parley.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Generic, Literal

from parley.sdk.types.generic import OutputT

# The types are for type checkers only: together they take longer to load than a program's other imports from here.
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from dataclasses import dataclass as deferred_dataclass
    from dataclasses import field as deferred_field
    from pathlib import Path

    from parley.hooks.event_types import AnyHookEvent, HookEvent
    from parley.models.script import Script
    from parley.sdk.budget import Budget
    from parley.sdk.hooks import HookMatcher, Hooks
    from parley.sdk.permissions import CanUseTool
    from parley.sdk.questions import OnPlan, OnQuestion
    from parley.sdk.store.interface import SessionStore
    from parley.sdk.types.agents import AgentDefinition
    from parley.sdk.types.shapes import (
        EffortLevel,
        McpServerConfig,
        OnElicitation,
        OnUserDialog,
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
else:
    from parley.sdk.types.deferred import deferred_dataclass, deferred_field


@deferred_dataclass
class Options(Generic[OutputT]):
    """All options of a session. All are optional.

        options = Options(model="sonnet", cwd="/srv/app", allowed_tools=["Read", "Bash(git *)"], max_turns=20)

    Names and defaults are those of the official SDK, as far as it has them. A wrong type or a misspelled name raises
    TypeError, an impossible value ValueError; a client checks again what was changed since. `output_type` is also the
    type parameter: with `Options(output_type=City)`, `turn.output()` is a `City` for type checkers too.
    """

    # Tools and permissions.
    tools: Sequence[str | Callable[..., Any]] | ToolsPreset | None = None
    """The tools that the model has: names of built-in tools, your functions, or both. Default: all built-in tools.

    `["Read", add]` is Read and your function `add`; `["default", add]` all built-in tools and `add`; `[]` none. Your
    functions run in this process as the MCP server `tools` (`mcp__tools__add`) and are allowed without asking.
    """
    allowed_tools: list[str] = deferred_field(default_factory=list)
    """Rules for calls that run without asking, such as `Read` or `Bash(git *)`. It does not restrict the tools."""
    system_prompt: str | SystemPromptPreset | SystemPromptCustom | SystemPromptFile | None = None
    """Replaces the system prompt, which is empty by default; `{"type": "preset", "preset": "claude_code"}` is the
    one of the command line."""
    mcp_servers: dict[str, McpServerConfig] | str | Path = deferred_field(default_factory=dict)
    """MCP servers by name, or the path of a configuration file."""
    strict_mcp_config: bool = False
    """Use only servers from `mcp_servers` and `tools`, none from settings."""
    permission_mode: PermissionMode | None = None
    """What happens to calls that no rule decides: `default` asks, `plan` changes nothing, and so on."""
    # The session.
    continue_conversation: bool = False
    """Continue the latest session of the working directory."""
    resume: str | None = None
    """The id of a session to continue."""
    session_id: str | None = None
    """The id of the new session, a UUID."""
    max_turns: int | None = None
    """The most model calls per turn; 0 or None for no limit."""
    max_budget_usd: float | None = None
    """The most dollars of the session. See `budget` for several sessions."""
    disallowed_tools: list[str] = deferred_field(default_factory=list)
    """Rules for calls that are denied. A plain tool name removes the tool."""
    model: str | Script | None = None
    """The model: an alias (`sonnet`), a full name, `BACKEND:NAME`, or a `Script` of answers for a test."""
    fallback_model: str | None = None
    """Models to try if the first fails, separated by commas."""
    betas: Sequence[str] = deferred_field(default_factory=list)
    """Beta features to request from the Messages API."""
    permission_prompt_tool_name: str | None = None
    """An MCP tool that decides instead of `can_use_tool`."""
    # Where and how the engine runs.
    cwd: str | Path | None = None
    """The working directory; default: the one of the program. Relative paths of other options start there."""
    cli_path: str | Path | None = None
    """The engine's executable; default: the installed `parley`."""
    settings: str | None = None
    """Additional settings: a JSON object, or the path of a file."""
    add_dirs: list[str | Path] = deferred_field(default_factory=list)
    """More directories in which tools may work."""
    env: dict[str, str] = deferred_field(default_factory=dict)
    """Variables for the engine, in addition to those of the program."""
    extra_args: dict[str, str | None] = deferred_field(default_factory=dict)
    """More command-line flags: names without dashes, and values; None for a flag without a value."""
    max_buffer_size: int | None = None
    """The longest line in bytes, 64 MiB by default. A longer one becomes `Unreadable`."""
    debug_stderr: Any = sys.stderr
    """No effect, as in the official SDK."""
    stderr: Callable[[str], None] | None = None
    """Called with each line of the engine's stderr; by default they go to the program's stderr."""
    # Callbacks.
    can_use_tool: CanUseTool | None = None
    """Called for each tool call that no rule, mode or setting decides. If it raises, the call is denied."""
    hooks: Hooks | Mapping[HookEvent, Sequence[HookMatcher]] | Mapping[AnyHookEvent, Sequence[HookMatcher]] | None = (
        None
    )
    """Hook callbacks by event: `{"PreToolUse": [HookMatcher(matcher="Bash", hooks=[check])]}`."""
    user: str | None = None
    """Run the engine as this system user."""
    include_partial_messages: bool = False
    """Receive `StreamEvent` messages while the model writes. `Turn.text_stream` uses them."""
    include_hook_events: bool = False
    """Receive a message when a hook starts and when it ends."""
    forward_subagent_text: bool = False
    """Receive the text of subagents, not only their tool calls."""
    verbatim_prompts: bool = False
    """Take prompts literally: no @path, no slash command."""
    fork_session: bool = False
    """With `resume`: continue in a copy with a new id."""
    resume_session_at: str | None = None
    """With `resume`: continue after the message with this uuid."""
    resume_drops_turn: str | None = None
    """With `resume`: drop the turn of the prompt with this uuid, and what follows; "" drops the last turn."""
    agents: dict[str, AgentDefinition] | None = None
    """Subagents by name."""
    setting_sources: list[SettingSource] | None = None
    """Which settings files to read; default: all. `[]` reads none."""
    skills: list[str] | Literal["all"] | None = None
    """The skills that the model may use."""
    sandbox: SandboxSettings | None = None
    """Settings of the sandbox in which commands run."""
    plugins: list[SdkPluginConfig] = deferred_field(default_factory=list)
    """Plugins to load, from folders."""
    max_thinking_tokens: int | None = None
    """How many tokens the model may use for thinking in an answer; 0 disables thinking."""
    thinking: ThinkingConfig | None = None
    """Whether and how the model thinks: `{"type": "adaptive"}`, `enabled` with `budget_tokens`, or `disabled`."""
    effort: EffortLevel | None = None
    """How much work the model puts into an answer."""
    output_format: dict[str, Any] | None = None
    """`{"type": "json_schema", "schema": {...}}` for structured output. `output_type` is easier."""
    enable_file_checkpointing: bool = False
    """Keep copies of files before they change, for `Client.rewind_files`."""
    session_store: SessionStore | None = None
    """Your own store, which gets a copy of every transcript line."""
    session_store_flush: SessionStoreFlushMode = "batched"
    """When lines are sent to `session_store`: in batches, or `eager` for one by one."""
    load_timeout_ms: int = 60_000
    """How long `session_store` may take to load a session."""
    task_budget: TaskBudget | None = None
    """The tokens of a turn beyond its first request; sent to models that support it."""
    client_app: str | None = None
    """The name of your program, for the User-Agent header."""
    # Only in Parley.
    engine: Literal["process", "local"] | str = "process"
    """`local`: run the engine in this process instead of a subprocess. A URL: use a session of this gateway."""
    deps: Any = None
    """What tools, hooks and `can_use_tool` find in their `RunContext`: the user, the request, connections. It stays in
    this process."""
    command_env: Mapping[str, str] | Literal["all"] | None = None
    """The variables of commands and hooks, besides `env` and what every program has (PATH, HOME, the locale). Default:
    none with `engine="local"`, otherwise `all`: those of the program, without secrets."""
    token: str | None = None
    """The token for the gateway."""
    workers: int | None = None
    """With `engine="local"`: run the engine in one of at most this many worker processes, which all clients of this
    process share. A worker runs many sessions; it starts when it is needed and ends with this process."""
    output_type: type[OutputT] | None = None
    """The type of the structured output: a msgspec Struct, dataclass, TypedDict or pydantic model."""
    on_question: OnQuestion | None = None
    """Answers questions of the model."""
    on_plan: OnPlan | None = None
    """Reviews plans of the model."""
    on_elicitation: OnElicitation | None = None
    """Answers questions of MCP servers. Without it they are declined."""
    on_user_dialog: OnUserDialog | None = None
    """Answers dialogs of the engine. Without it they are cancelled. Parley shows none; Claude Code may."""
    supported_dialog_kinds: list[str] | None = None
    """The kinds of dialogs that `on_user_dialog` handles."""
    control_timeout_seconds: float = 60.0
    """How long to wait for a reply to a control request."""
    api_key: str | None = None
    """The key of the Messages API. Passed in the environment, never on the command line."""
    agent: str | None = None
    """The agent that leads the session: one of `agents`, or of the settings."""
    mcp_servers_delivery: Literal["argv", "initialize"] = "argv"
    """How `mcp_servers` that the engine starts reach it: `argv` names a private file on the command line; `initialize`
    sends them in the first request and needs `engine="process"`. Neither shows secrets in the process list."""
    title: str | None = None
    """The title of a new session."""
    tool_aliases: dict[str, str] | None = None
    """Other names for tools: `{"Shell": "Bash"}` runs Bash for a call of Shell."""
    plan_mode_instructions: str | None = None
    """What the model is told to do in plan mode."""
    prompt_suggestions: bool | None = None
    """Suggest a next prompt after each successful turn."""
    agent_progress_summaries: bool | None = None
    """Summarize every 30 seconds what a running subagent does."""
    persist_session: bool = True
    """Whether the session is written to disk. If not, it cannot be resumed."""
    allow_dangerously_skip_permissions: bool = False
    """Allow a later switch to `bypassPermissions`."""
    debug: bool = False
    """Write a debug log."""
    debug_file: str | None = None
    """The file of the debug log."""
    replay_user_messages: bool = False
    """Receive each prompt again when it enters the conversation."""
    guard: bool = False
    """Ask `can_use_tool` about every call that is not denied."""
    fail_on_denial: bool = False
    """End the turn with an error when a call is denied."""
    store: str | None = None
    """Where sessions are stored: `claude`, `folder:PATH`, `sqlite:PATH`, `postgres://...`, `memory`."""
    database: str | None = None
    """The SQLite file of the session."""
    steal: bool = False
    """Take the session over from the process that holds it."""
    offline: bool = False
    """Offer no web tools, and connect only to the server of the model and to this machine.

    For the fake model, use `model="offline"`.
    """
    record: str | None = None
    """Record all model requests and answers in this file, for `model="replay:FILE"`."""
    faults: list[str] = deferred_field(default_factory=list)
    """Faults to inject into model calls in a test, such as `overloaded@1-3`."""
    bare: bool = False
    """Load no settings files, memory, commands or servers from the machine."""
    max_budget_tokens: int | None = None
    """The most tokens of the session, cached ones included."""
    max_budget_calls: int | None = None
    """The most model calls of the session."""
    max_budget_seconds: float | None = None
    """The most seconds of a turn."""
    autocompact: str | None = None
    """`on`, `off`, or the number of tokens at which a long conversation is compacted."""
    budget: Budget | None = None
    """A budget that this client shares with others."""

    def __post_init__(self) -> None:
        from parley.sdk.launch.validation import check_tools, check_values, warn_of_no_limit

        check_values(self)
        check_tools(self)
        warn_of_no_limit(self)


ClaudeAgentOptions = Options
