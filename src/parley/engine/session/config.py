"""The configuration of a session, in frozen structs: built by compose/, read by the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from parley.engine.accounting.budget import Budget
from parley.engine.agents.registry import AgentRegistry
from parley.engine.clock import Clock
from parley.engine.context.compaction import CompactionPolicy
from parley.engine.context.system_prompt import Instructions
from parley.engine.models.thinking import ThinkingOptions
from parley.engine.tasks.task import OutputDirectory
from parley.engine.turn.heartbeat import INTERVAL_SECONDS
from parley.engine.turn.result_spill import LINE_CAP_BYTES
from parley.engine.turn.structured_output import OutputSchema
from parley.mcp.base import ServerSources
from parley.models.base import Model
from parley.models.catalog import ModelInfo, ModelRef, model_info
from parley.models.prices import Prices
from parley.observer import NULL_OBSERVER, Observer
from parley.permissions.base import Policy
from parley.protocol.base import Json, Message, Struct
from parley.settings.base import DEFAULT_STYLE, PromptTemplate, SettingsAccess, SettingsValue
from parley.stores.base import AgentInfo, Log
from parley.tools.base import Context
from parley.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from parley.engine.session.memory_host import MemoryHost
    from parley.engine.turn.client_tools import ClientToolSpec
    from parley.hooks.base import Hook
    from parley.host import Host
    from parley.memory.base import MemoryWorker
    from parley.protocol.messages.requests import HookMatcher
    from parley.workspace.base import Worktrees


class SessionLimits(Struct, frozen=True, kw_only=True):
    max_turns: int | None = None
    budget: Budget = Budget()
    task_budget: int | None = None
    """Tokens for one turn: sent to models that support it, and enforced in any case."""
    max_retries: int = 8
    max_schema_attempts: int = 5
    """How often an answer may fail to match the output schema."""
    max_output_tokens: int | None = None
    max_parallel_tools: int = 10
    max_line_bytes: int = LINE_CAP_BYTES
    """The longest line; longer results go to a file."""
    fail_on_denial: bool = False
    """A turn with a denied call ends as an error."""
    allow_background_tasks: bool = True
    heartbeat_seconds: float | None = INTERVAL_SECONDS
    """How long a turn may be silent before a heartbeat is sent; None for no heartbeat."""
    background_wait_seconds: float | None = 600.0
    """How long background tasks may keep the process alive after the input has ended; None for no limit."""


class ModelConfig(Struct, frozen=True, kw_only=True):
    """Which models a session uses, and how they are called."""

    open: Callable[[ModelRef], Model]
    """Raises UsageError or ModelError."""
    name: str = "default"
    is_explicit: bool = False
    """The command line names the model, so an agent's own does not apply."""
    get_info: Callable[[ModelRef], ModelInfo] = lambda choice: model_info(choice.name)
    """What is known of a model and its server."""
    fallbacks: tuple[str, ...] = ()
    """Models that continue a turn whose own model fails, in this order."""
    small: str = "haiku"
    """The model for side queries, if the session's model is on the API."""
    thinking: ThinkingOptions = ThinkingOptions()
    effort: str | None = None
    betas: tuple[str, ...] = ()
    prices: Prices = msgspec.field(default_factory=Prices)
    api_key_source: str = "none"


class StorageConfig(Struct, frozen=True, kw_only=True):
    """Where the session and its subagents are stored."""

    log: Log
    sync: str = "off"
    """When to wait for the device: `always`, `turn` or `off`."""
    start_source: str = "startup"
    """How the session started: `startup`, `resume` or `fork`."""
    title: str | None = None
    transcript_path: Callable[[], str] = lambda: ""
    """Where hooks find the transcript; empty if it is not in a file."""
    mirror_log: Callable[[Log, Callable[[Message], None]], Log] = lambda log, send: log
    """Wraps the log for a client that stores the transcript itself."""
    mirror_agent_log: Callable[[str, Json | None, Log, Callable[[Message], None]], Log] = (
        lambda agent_id, meta, log, send: log
    )
    open_agent_log: Callable[[str, Json | None], Log]
    """Opens the log of a subagent by its id and metadata; None resumes it. Raises SessionError."""
    list_agents: Callable[[], Sequence[AgentInfo]] = tuple
    """The subagents whose logs are stored. Raises SessionError."""
    agent_transcript_path: Callable[[str], str] = lambda agent_id: ""


class PermissionConfig(Struct, frozen=True, kw_only=True):
    """The rules of a session, and who answers when they do not decide."""

    policy: Policy
    mode: str = "default"
    mode_is_explicit: bool = False
    """The command line sets the mode, so the mode of a resumed session does not apply."""
    may_bypass: bool = False
    asks_host: bool = False
    """Permission requests go to the client."""
    prompt_tool: str | None = None
    """The MCP tool that answers them instead."""
    guarded: bool = False
    """The client is asked about every call, whatever rules and mode say."""


class ClientConfig(Struct, frozen=True, kw_only=True):
    """What the client wants to receive, and what it may do."""

    include_partial_messages: bool = False
    replay_user_messages: bool = False
    prompt_suggestions: bool = False
    """Send suggestions for the next prompt."""
    include_tool_schemas: bool = False
    """`system/init` lists the tools with their schemas."""
    extension_fields: bool = False
    """Assistant messages carry the fields that the editor extension shows."""
    prompt_separator: str = "\n"
    """Joins prompts that enter the conversation together."""
    merge_prompts: bool = True
    """Prompts that arrived during a turn make up the next one together; otherwise each has its own turn."""
    hook_events: bool = False
    """Send an event for every run of a hook."""
    forwards_subagent_text: bool = False
    """Send the text of subagents."""
    send_rate_limits: bool = True
    """The client understands rate limit events."""
    state_events: str | None = None
    """Who reads session_state_changed: `sdk`, `everybody`, or None."""
    may_rewind: bool = False
    """The client may rewind files. Checkpoints are stored in any case."""
    tools: Sequence[ClientToolSpec] = ()
    """Tools that the client runs."""


class AgentConfig(Struct, frozen=True, kw_only=True):
    """The agents of a session."""

    registry: AgentRegistry = msgspec.field(default_factory=AgentRegistry)
    main: str | None = None
    """The agent type that the session itself runs as."""
    subagent_model: str | None = None
    """The model of subagents whose type names none; by default their caller's."""
    load_memory: Callable[[str, str], str] = lambda scope, name: ""
    """The text about an agent's own memory, by scope and name."""
    make_worktrees: Callable[[], Worktrees] | None = None
    """Creates checkouts for agents with `isolation: worktree`; None if they are not allowed."""


class ExtensionConfig(Struct, frozen=True, kw_only=True):
    """What users add: MCP servers, hooks, plugins, commands, skills, output styles."""

    mcp: ServerSources | None = None
    make_callback_hooks: Callable[[Host, Mapping[str, Sequence[HookMatcher]]], Sequence[Hook]] = lambda host, hooks: ()
    """The hooks that a client registers."""
    make_command_hooks: Callable[[Sequence[SettingsValue]], Sequence[Hook]] = lambda layers: ()
    """The hooks in settings."""
    list_plugins: Callable[[bool], tuple[list[Json], list[Json]]] = lambda reload: ([], [])
    """The plugins, and the errors of others; True reads them again."""
    load_templates: Callable[[], Sequence[PromptTemplate]] | None = tuple
    """Reads the commands and skills; None if they are disabled."""
    output_style: str = "default"
    list_styles: Callable[[], list[str]] = lambda: [DEFAULT_STYLE]
    """Reads the names of the output styles."""


class SessionConfig(Struct, frozen=True, kw_only=True):
    """Everything a session needs from outside. Built by compose/."""

    session_id: str
    cwd: str
    model: ModelConfig
    storage: StorageConfig
    permissions: PermissionConfig
    client: ClientConfig = ClientConfig()
    agents: AgentConfig = msgspec.field(default_factory=AgentConfig)
    extensions: ExtensionConfig = ExtensionConfig()
    instructions: Instructions = Instructions()
    tools: ToolRegistry
    tool_context: Context
    task_output: OutputDirectory
    """Where background tasks write their output."""
    settings: SettingsAccess | None = None
    """The settings, and how the client changes them."""
    limits: SessionLimits = SessionLimits()
    compaction: CompactionPolicy = CompactionPolicy()
    make_memory: Callable[[MemoryHost], MemoryWorker] | None = None
    """Makes the long-term memory, which opens its files when first needed; None if the session has none."""
    output_schema: OutputSchema | None = None
    """The schema of structured output."""
    clock: Clock = Clock()
    random: Callable[[], float] = lambda: 0.5
    observer: Observer = NULL_OBSERVER
    """Is notified when work starts and ends."""
    warn: Callable[[str], None] = lambda text: None
    """Writes a warning to stderr."""

    def with_log(self, log: Log) -> SessionConfig:
        """The same session with another log."""
        return msgspec.structs.replace(self, storage=msgspec.structs.replace(self.storage, log=log))

    def with_model_opener(self, open: Callable[[ModelRef], Model]) -> SessionConfig:
        """The same session with other models."""
        return msgspec.structs.replace(self, model=msgspec.structs.replace(self.model, open=open))
