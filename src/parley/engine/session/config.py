"""What a session is made of before it lives."""

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
    from parley.engine.turn.client_tools import ClientToolSpec
    from parley.hooks.base import Hook
    from parley.host import Host
    from parley.memory.base import SessionMemory
    from parley.protocol.messages.requests import HookMatcher
    from parley.workspace.base import Worktrees


class SessionLimits(Struct, frozen=True, kw_only=True):
    max_turns: int | None = None
    budget: Budget = Budget()
    task_budget: int | None = None
    """Tokens for the work of one turn: told to the model where it understands that, and kept anyway."""
    max_retries: int = 8
    max_schema_attempts: int = 5
    """How often an answer may miss the form that was asked for."""
    max_output_tokens: int | None = None
    max_parallel_tools: int = 10
    max_line_bytes: int = LINE_CAP_BYTES
    """No line is longer; what does not fit is in a file."""
    fail_on_denial: bool = False
    """Whether a turn with a denied call ends as an error."""
    allow_background_tasks: bool = True
    """Whether anything may run in the background."""
    heartbeat_seconds: float | None = INTERVAL_SECONDS
    """How long a turn may go on without a line before a sign of life is told; None for ever."""
    background_wait_seconds: float | None = 600.0
    """How long, after the end of the input, background tasks may keep the process alive; None for ever."""


class SessionConfig(Struct, frozen=True, kw_only=True):
    """Everything a session needs from outside. Made by compose/."""

    session_id: str
    cwd: str
    log: Log
    sync: str = "off"
    """When the device is waited for: `always`, `turn` or `off`."""
    open_model: Callable[[ModelRef], Model]
    """Raises UsageError or ModelError if there is no such model."""
    model_name: str = "default"
    get_model_info: Callable[[ModelRef], ModelInfo] = lambda choice: model_info(choice.name)
    """What is known of a model, and of the server behind it."""
    fallback_models: tuple[str, ...] = ()
    """Who goes on with a turn whose own model cannot answer, in this order."""
    small_model: str = "haiku"
    """Who is asked beside the conversation, where the session's model is on the API."""
    instructions: Instructions = Instructions()
    tools: ToolRegistry
    tool_context: Context
    client_tools: Sequence[ClientToolSpec] = ()
    """The tools that the client runs."""
    task_output: OutputDirectory
    """Where the output of background tasks goes."""
    policy: Policy
    asks_host: bool = False
    """Whether permission questions go to the host."""
    prompt_tool: str | None = None
    """The MCP tool that answers them instead."""
    guarded: bool = False
    """Whether the host is asked about every call, whatever rules and mode say."""
    permission_mode: str = "default"
    mode_is_explicit: bool = False
    """Whether the command line says the mode, so that a resumed session's own does not count."""
    may_bypass: bool = False
    may_rewind: bool = False
    """Whether the host may ask for files to be rewound. Checkpoints are kept anyway."""
    include_partial_messages: bool = False
    replay_user_messages: bool = False
    prompt_suggestions: bool = False
    """Whether the host wants to hear what might be said next."""
    include_tool_schemas: bool = False
    """Whether the first line of a turn has the tools with their schemas, and not only their names."""
    extension_fields: bool = False
    """Whether assistant lines say how the model thinks, and what it has to do."""
    prompt_separator: str = "\n"
    """What stands between prompts that go into the conversation together."""
    merge_prompts: bool = True
    """Whether prompts that waited for the end of a turn make up the next one together; else each is one."""
    hook_events: bool = False
    """Whether the host is told of every run of a hook."""
    make_callback_hooks: Callable[[Host, Mapping[str, Sequence[HookMatcher]]], Sequence[Hook]] = lambda host, hooks: ()
    make_command_hooks: Callable[[Sequence[SettingsValue]], Sequence[Hook]] = lambda layers: ()
    """The hooks of a host's registration, and of the layers of settings."""
    mirror_log: Callable[[Log, Callable[[Message], None]], Log] = lambda log, told: log
    """The log for a client that wants to hear of its lines."""
    mirror_agent_log: Callable[[str, Json | None, Log, Callable[[Message], None]], Log] = (
        lambda agent_id, meta, log, told: log
    )
    """The same for the log of a subagent."""
    transcript_path: Callable[[], str] = lambda: ""
    """Where hooks find the transcript; empty if nowhere."""
    agents: AgentRegistry = msgspec.field(default_factory=AgentRegistry)
    """The kinds of subagents there are."""
    agent: str | None = None
    """The kind that the session itself runs as, if it does."""
    model_is_explicit: bool = False
    """Whether the command line says the model, so that an agent's own does not count."""
    subagent_model: str | None = None
    """The model of subagents whose kind names none; else it is their caller's."""
    load_agent_memory: Callable[[str, str], str] = lambda scope, name: ""
    """What an agent is told of the memory that it keeps, by scope and name."""
    forwards_subagent_text: bool = False
    """Whether the host wants to hear what subagents say."""
    open_agent_log: Callable[[str, Json | None], Log]
    """The log of a subagent, by its id and what is to be known of it; None if it goes on. Raises SessionError."""
    list_agents: Callable[[], Sequence[AgentInfo]] = tuple
    """The subagents whose logs are kept. Raises SessionError."""
    agent_transcript_path: Callable[[str], str] = lambda agent_id: ""
    make_worktrees: Callable[[], Worktrees] | None = None
    """Who makes checkouts for agents that work apart; None where there may be none."""
    start_source: str = "startup"
    """How the session came about: `startup`, `resume` or `fork`."""
    title: str | None = None
    """What the session is to be called."""
    thinking: ThinkingOptions = ThinkingOptions()
    effort: str | None = None
    mcp: ServerSources | None = None
    """The MCP servers there are, and how more are had."""
    settings: SettingsAccess | None = None
    """What is set, and how the host changes it."""
    output_style: str = "default"
    list_styles: Callable[[], list[str]] = lambda: [DEFAULT_STYLE]
    """The names of the output styles there are, read anew each time."""
    list_plugins: Callable[[bool], tuple[list[Json], list[Json]]] = lambda again: ([], [])
    """The plugins there are, and what is wrong with others; True reads them again."""
    load_templates: Callable[[], Sequence[PromptTemplate]] | None = tuple
    """The commands and skills there are, read anew each time; None where none are wanted."""
    betas: tuple[str, ...] = ()
    limits: SessionLimits = SessionLimits()
    compaction: CompactionPolicy = CompactionPolicy()
    open_memory: Callable[[], SessionMemory] | None = None
    """The memory of the session, opened when it is first needed; None where there is none."""
    output_schema: OutputSchema | None = None
    """What an answer must look like."""
    send_rate_limits: bool = True
    """Whether the client can bear a line about its quota."""
    state_events: str | None = None
    """Who reads session_state_changed: `sdk`, `everybody`, or None for nobody."""
    api_key_source: str = "none"
    prices: Prices = msgspec.field(default_factory=Prices)
    clock: Clock = Clock()
    random: Callable[[], float] = lambda: 0.5
    observer: Observer = NULL_OBSERVER
    """Who hears when work begins and ends."""
    warn: Callable[[str], None] = lambda text: None
    """Where a complaint goes that has no place on the wire: stderr."""
