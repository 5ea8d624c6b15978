"""The configuration of a session, in frozen structs: built by compose/, read by the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from parley.engine.agents.registry import AgentRegistry
from parley.engine.clock import Clock, SessionIdentity
from parley.engine.context.history import CompactionPolicy
from parley.engine.context.system_prompt import Instructions
from parley.engine.session.outbox import INTERVAL_SECONDS
from parley.mcp.base import ServerSources, ServerSpec
from parley.models.base import Model
from parley.models.catalog import ModelInfo, ModelRef, Prices, claude_version, model_info, resolve
from parley.observer import NULL_OBSERVER, Observer
from parley.permissions.base import Policy
from parley.protocol.base import Json, Message, Struct
from parley.protocol.options import CliOptions
from parley.settings.base import DEFAULT_STYLE, PromptTemplate, SettingsAccess, SettingsValue
from parley.stores.base import AgentInfo, Log
from parley.tools.base import ToolRegistry, Workspace
from parley.workspace.process.processes import OutputDirectory

if TYPE_CHECKING:
    from parley.engine.turn.structured_output import OutputSchema
    from parley.hooks.base import Hook, HookServices
    from parley.host import Host
    from parley.memory.base import MemoryWorker, Recall
    from parley.protocol.messages.requests import HookMatcher, PluginEntry
    from parley.workspace.base import Worktree, Worktrees

LINE_CAP_BYTES = 1_000_000
"""Clients fail on lines over one mebibyte."""
ENVELOPE_BYTES = 4_096
"""The part of a line that is not the result of a tool or the input of a callback."""
LARGE_TOKENS = 5_000
SearchMode = Literal["default", "always", "auto", "never"]


class SessionLimits(Struct, frozen=True, kw_only=True):
    """Limits that are computed from options and variables. Those that are only given are in the options."""

    max_agent_turns: int | None = None
    """The most model calls that a definition of an agent may set for one turn."""
    max_parallel_tools: int = 10
    max_line_bytes: int = LINE_CAP_BYTES
    """The longest line; longer results go to a file."""
    heartbeat_seconds: float | None = INTERVAL_SECONDS
    """How long a turn may be silent before a heartbeat is sent; None for no heartbeat."""
    silence_seconds: float = 10.0
    """How long a model's server may be silent before the client is told what is waited for."""
    summary_seconds: float = 30.0
    """The time between two summaries of what a subagent does."""
    background_wait_seconds: float | None = 600.0
    """How long background tasks may keep the process alive after the input has ended; None for no limit."""


class ToolSearchPolicy(Struct, frozen=True, kw_only=True):
    """Whether definitions of tools are deferred, so that the model searches for the tools it needs."""

    mode: SearchMode = "never"
    """`auto` defers if the definitions of MCP tools take much of the window. The default is `always` on Anthropic's own
    API; elsewhere, it defers what `auto` would, and more than LARGE_TOKENS in any window."""
    percent: int = 10
    """The share of the context window above which `auto` defers."""
    is_first_party: bool = False
    """Whether the Messages API is Anthropic's own."""
    may_refer: bool = False
    """Whether the Messages API takes `defer_loading` and `tool_reference`."""

    def max_tokens(self, model: ModelRef, window_tokens: int) -> float | None:
        """The most tokens of definitions that are not deferred; None to defer nothing."""
        if self.mode == "never":
            return None
        if self.mode == "always" or (self.mode == "default" and self.is_first_party and model.is_messages_api):
            return 0
        share = window_tokens * self.percent / 100
        return min(share, LARGE_TOKENS) if self.mode == "default" else share

    def defers_rare(self, model: ModelRef) -> bool:
        """Whether built-in tools that few tasks need are deferred, whatever servers there are.

        Only for models that are known to search for tools.
        """
        is_known = model.is_messages_api and claude_version(model.name) is not None
        return self.mode in ("default", "always") and is_known

    def uses_references(self, model: ModelRef) -> bool:
        """Whether requests mark deferred tools; other servers get the definitions as if there were no tool search."""
        return self.may_refer and model.is_messages_api


class ModelConfig(Struct, frozen=True, kw_only=True):
    """Which models a session uses, and how they are called."""

    open: Callable[[ModelRef], Model]
    """Raises UsageError or ModelError."""
    name: str = "default"
    is_explicit: bool = False
    """The command line names the model, so an agent's own does not apply."""
    get_info: Callable[[ModelRef], ModelInfo] = lambda choice: model_info(choice.name)
    """What is known of a model and its server."""
    discover: Callable[[ModelRef], None] = lambda choice: None
    """Asks a server of the user for the limits of a model, for `get_info`. Blocks."""
    is_allowed: Callable[[ModelRef], bool] = lambda choice: True
    """Whether the settings permit a model; `open` refuses the others."""
    list_served: Callable[[], list[Json]] = list
    """The models of the user's own server. Blocks."""
    fallbacks: tuple[str, ...] = ()
    """Models that continue a turn whose own model fails, in this order."""
    small: str = "haiku"
    """The model for side queries, if the session's model is on the API."""
    prices: Prices = msgspec.field(default_factory=Prices)
    api_key_source: str = "none"
    aliases: Mapping[str, str] = {}
    """Short names of models that the environment redefines."""

    def resolve(self, name: str) -> ModelRef:
        """What the name of a model stands for."""
        return resolve(name, self.aliases)


class StorageConfig(Struct, frozen=True, kw_only=True):
    """Where the session and its subagents are stored."""

    log: Log
    start_source: str = "startup"
    """How the session started: `startup`, `resume` or `fork`."""
    begin_session: Callable[[], Log] | None = None
    """Changes the id of the session and returns a log for it; None if the id never changes. Raises SessionError."""
    transcript_path: Callable[[], str] = lambda: ""
    """Where hooks find the transcript; empty if it is not in a file."""
    mirror_log: Callable[[Log, Callable[[Message], None], str, Json | None], Log] = lambda log, send, agent_id, meta: (
        log
    )
    """Wraps the log of the session, or of a subagent, for a client that stores the transcript itself."""
    open_agent_log: Callable[[str, Json | None], Log]
    """Opens the log of a subagent by its id and metadata; None resumes it. Raises SessionError."""
    list_agents: Callable[[], Sequence[AgentInfo]] = tuple
    """The subagents whose logs are stored. Raises SessionError."""
    agent_transcript_path: Callable[[str], str] = lambda agent_id: ""
    sync_in_background: bool = False
    """Wait for the disk in the background, because other sessions share the event loop."""


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
    refuses_unapproved: bool = False
    """Calls that need approval are refused, unless a hook of managed settings approves them."""


class ClientToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as a client declares it. Names follow the rules of the model API."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
    description: str = ""
    input_schema: Json = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})


class ClientConfig(Struct, frozen=True, kw_only=True):
    """What the client understands, and its tools."""

    include_tool_schemas: bool = False
    """`system/init` lists the tools with their schemas."""
    prompt_separator: str = "\n"
    """Joins prompts that enter the conversation together."""
    merge_prompts: bool = True
    """Prompts that arrived during a turn make up the next one together; otherwise each has its own turn."""
    sends_more_prompts: bool = True
    """False for a run of one prompt."""
    send_rate_limits: bool = True
    """The client understands rate limit events."""
    needs_costs: bool = False
    """The client expects a number for every cost; an unknown one is reported as 0."""
    state_events: str | None = None
    """Who reads session_state_changed: `sdk`, `everybody`, or None."""
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


class PluginReload(Struct, frozen=True, kw_only=True):
    """The plugins as they are now on disk. Nothing changes before `apply`."""

    servers: tuple[ServerSpec, ...] = ()
    """The MCP servers of the plugins."""
    apply: Callable[[], None] = lambda: None


class ExtensionConfig(Struct, frozen=True, kw_only=True):
    """What users add: MCP servers, hooks, plugins, commands, skills, output styles."""

    mcp: ServerSources
    make_callback_hooks: Callable[[Host, Mapping[str, Sequence[HookMatcher]]], Sequence[Hook]] = lambda host, hooks: ()
    """The hooks that a client registers."""
    make_command_hooks: Callable[[Sequence[SettingsValue], HookServices], tuple[Sequence[Hook], Sequence[str]]] = (
        lambda layers, services: ((), ())
    )
    """The hooks in settings, and what is wrong with them."""
    hooks: Sequence[Hook] = ()
    """The hooks of other installed packages."""
    list_plugins: Callable[[], tuple[list[Json], list[Json]]] = lambda: ([], [])
    """The plugins, and the errors of others."""
    prepare_plugins: Callable[[Sequence[PluginEntry]], PluginReload] = lambda added: PluginReload()
    """Reads the plugins again, with further ones."""
    load_templates: Callable[[], Sequence[PromptTemplate]] | None = tuple
    """Reads the commands and skills; None if they are disabled."""
    output_style: str = "default"
    list_styles: Callable[[], list[str]] = lambda: [DEFAULT_STYLE]
    """Reads the names of the output styles."""


class SessionConfig(Struct, frozen=True, kw_only=True):
    """Everything a session needs from outside. Built by compose/."""

    identity: SessionIdentity
    cwd: str
    options: CliOptions = msgspec.field(default_factory=CliOptions)
    """What flags, variables and settings say. An option that nothing is computed from is read here."""
    model: ModelConfig
    storage: StorageConfig
    permissions: PermissionConfig
    client: ClientConfig = ClientConfig()
    agents: AgentConfig = msgspec.field(default_factory=AgentConfig)
    extensions: ExtensionConfig
    instructions: Instructions = Instructions()
    tools: ToolRegistry
    tool_search: ToolSearchPolicy = ToolSearchPolicy()
    workspace: Workspace
    task_output: OutputDirectory
    """Where background tasks write their output."""
    settings: SettingsAccess
    """The settings, and how the client changes them."""
    limits: SessionLimits = SessionLimits()
    compaction: CompactionPolicy = CompactionPolicy()
    open_memory: Callable[[], Recall] | None = None
    """Opens the long-term memory for the tools; None if the session has none."""
    make_memory: Callable[[Any], MemoryWorker] | None = None
    """Makes the long-term memory of a `Conversation`. Its files are opened when first needed. None if there is none."""
    output_schema: OutputSchema | None = None
    """The schema of structured output."""
    clock: Clock = Clock()
    random: Callable[[], float] = lambda: 0.5
    observer: Observer = NULL_OBSERVER
    """Is notified when work starts and ends."""
    warn: Callable[[str], None] = lambda text: None
    """Writes a warning to stderr."""
    worktree: Worktree | None = None
    """The git worktree that the session works in, in place of the checkout that it was started in."""
    notices: tuple[str, ...] = ()
    """Warnings about the configuration for the client, which has not seen stderr."""
    is_remote: bool = False
    """Whether the files are on another machine: then a path must not be looked up on this one."""

    def with_log(self, log: Log) -> SessionConfig:
        """The same session with another log."""
        return msgspec.structs.replace(self, storage=msgspec.structs.replace(self.storage, log=log))

    def with_wrapped_log(self, wrap: Callable[[Log], Log]) -> SessionConfig:
        """The same session with something around its log, and around the logs of sessions that follow it."""
        begin = self.storage.begin_session
        storage = msgspec.structs.replace(
            self.storage,
            log=wrap(self.storage.log),
            begin_session=None if begin is None else lambda: wrap(begin()),
        )
        return msgspec.structs.replace(self, storage=storage)

    def with_mirrors(self, send: Callable[[Message], None]) -> SessionConfig:
        """The same session with logs that are mirrored to a client which stores the transcript itself."""
        storage = self.storage

        def open_agent_log(agent_id: str, meta: Json | None) -> Log:
            return storage.mirror_log(storage.open_agent_log(agent_id, meta), send, agent_id, meta)

        config = msgspec.structs.replace(self, storage=msgspec.structs.replace(storage, open_agent_log=open_agent_log))
        return config.with_wrapped_log(lambda log: storage.mirror_log(log, send, "", None))

    def with_shared_loop(self) -> SessionConfig:
        """The same session on an event loop that it must not block, because others use it."""
        return msgspec.structs.replace(self, storage=msgspec.structs.replace(self.storage, sync_in_background=True))

    def with_model_opener(self, open: Callable[[ModelRef], Model]) -> SessionConfig:
        """The same session with other models."""
        return msgspec.structs.replace(self, model=msgspec.structs.replace(self.model, open=open))
