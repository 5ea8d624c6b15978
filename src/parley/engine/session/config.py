"""What a session is made of before it lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from parley.engine.accounting.budget import Budget
from parley.engine.agents.registry import Agents
from parley.engine.clock import Stamp
from parley.engine.context.compaction import Policy
from parley.engine.context.system_prompt import Instructions
from parley.engine.models.thinking import Wish
from parley.engine.tasks.task import Place
from parley.engine.turn.heartbeat import EVERY_SECONDS
from parley.engine.turn.result_spill import LINE_CAP_BYTES
from parley.engine.turn.structured_output import Form
from parley.mcp.base import Supply
from parley.models.base import Model
from parley.models.catalog import Choice, Facts, facts
from parley.models.prices import Prices
from parley.observer import NOBODY, Observer
from parley.permissions.base import Permits
from parley.protocol.base import Json, Message, Struct
from parley.settings.base import DEFAULT_STYLE, Held, Recipe, Value
from parley.stores.base import Agent, Log
from parley.tools.base import Context
from parley.tools.registry import Shelf

if TYPE_CHECKING:
    from parley.engine.turn.client_tools import Declared
    from parley.hooks.base import Hook
    from parley.host import Host
    from parley.memory.base import Keeper
    from parley.protocol.messages.requests import HookMatcher
    from parley.workspace.base import Worktrees


class Limits(Struct, frozen=True, kw_only=True):
    max_turns: int | None = None
    budget: Budget = Budget()
    task_budget: int | None = None
    """Tokens for the work of one turn: told to the model where it understands that, and kept anyway."""
    max_retries: int = 8
    max_form_attempts: int = 5
    """How often an answer may miss the form that was asked for."""
    max_output_tokens: int | None = None
    max_parallel_tools: int = 10
    line_bytes: int = LINE_CAP_BYTES
    """No line is longer; what does not fit is in a file."""
    fail_on_denial: bool = False
    """Whether a turn with a denied call ends as an error."""
    may_work_behind: bool = True
    """Whether anything may run in the background."""
    heartbeat_seconds: float | None = EVERY_SECONDS
    """How long a turn may go on without a line before a sign of life is told; None for ever."""
    background_wait_seconds: float | None = 600.0
    """How long, after the end of the input, background tasks may keep the process alive; None for ever."""


class Setup(Struct, frozen=True, kw_only=True):
    """Everything a session needs from outside. Made by compose/."""

    session_id: str
    cwd: str
    log: Log
    sync: str = "off"
    """When the device is waited for: `always`, `turn` or `off`."""
    open_model: Callable[[Choice], Model]
    """Raises UsageError or ModelError if there is no such model."""
    model_name: str = "default"
    facts_of: Callable[[Choice], Facts] = lambda choice: facts(choice.name)
    """What is known of a model, and of the server behind it."""
    fallback_models: tuple[str, ...] = ()
    """Who goes on with a turn whose own model cannot answer, in this order."""
    small_model: str = "haiku"
    """Who is asked beside the conversation, where the session's model is on the API."""
    instructions: Instructions = Instructions()
    tools: Shelf
    tool_context: Context
    client_tools: Sequence[Declared] = ()
    """The tools that the client runs."""
    task_place: Place
    """Where the output of background tasks goes."""
    permits: Permits
    asks_host: bool = False
    """Whether permission questions go to the host."""
    prompt_tool: str | None = None
    """The MCP tool that answers them instead."""
    guarded: bool = False
    """Whether the host is asked about every call, whatever rules and mode say."""
    permission_mode: str = "default"
    mode_is_given: bool = False
    """Whether the command line says the mode, so that a resumed session's own does not count."""
    may_bypass: bool = False
    may_rewind: bool = False
    """Whether the host may ask for files to be rewound. Checkpoints are kept anyway."""
    partial: bool = False
    replay: bool = False
    suggests: bool = False
    """Whether the host wants to hear what might be said next."""
    lists_schemas: bool = False
    """Whether the first line of a turn has the tools with their schemas, and not only their names."""
    extension_fields: bool = False
    """Whether assistant lines say how the model thinks, and what it has to do."""
    joint: str = "\n"
    """What stands between prompts that go into the conversation together."""
    folds: bool = True
    """Whether prompts that waited for the end of a turn make up the next one together; else each is one."""
    hook_events: bool = False
    """Whether the host is told of every run of a hook."""
    make_callbacks: Callable[[Host, Mapping[str, Sequence[HookMatcher]]], Sequence[Hook]] = lambda host, hooks: ()
    make_commands: Callable[[Sequence[Value]], Sequence[Hook]] = lambda layers: ()
    """The hooks of a host's registration, and of the layers of settings."""
    mirrored: Callable[[Log, Callable[[Message], None]], Log] = lambda log, told: log
    """The log for a client that wants to hear of its lines."""
    mirrored_agent: Callable[[str, Json | None, Log, Callable[[Message], None]], Log] = (
        lambda agent_id, meta, log, told: log
    )
    """The same for the log of a subagent."""
    transcript_path: Callable[[], str] = lambda: ""
    """Where hooks find the transcript; empty if nowhere."""
    agents: Agents = msgspec.field(default_factory=Agents)
    """The kinds of subagents there are."""
    agent: str | None = None
    """The kind that the session itself runs as, if it does."""
    model_is_given: bool = False
    """Whether the command line says the model, so that an agent's own does not count."""
    subagent_model: str | None = None
    """The model of subagents whose kind names none; else it is their caller's."""
    agent_memory: Callable[[str, str], str] = lambda scope, name: ""
    """What an agent is told of the memory that it keeps, by scope and name."""
    forwards_subagent_text: bool = False
    """Whether the host wants to hear what subagents say."""
    open_agent_log: Callable[[str, Json | None], Log]
    """The log of a subagent, by its id and what is to be known of it; None if it goes on. Raises SessionError."""
    known_agents: Callable[[], Sequence[Agent]] = tuple
    """The subagents whose logs are kept. Raises SessionError."""
    agent_transcript_path: Callable[[str], str] = lambda agent_id: ""
    make_worktrees: Callable[[], Worktrees] | None = None
    """Who makes checkouts for agents that work apart; None where there may be none."""
    begins_as: str = "startup"
    """How the session came about: `startup`, `resume` or `fork`."""
    title: str | None = None
    """What the session is to be called."""
    thinking: Wish = Wish()
    effort: str | None = None
    mcp: Supply | None = None
    """The MCP servers there are, and how more are had."""
    settings: Held | None = None
    """What is set, and how the host changes it."""
    output_style: str = "default"
    styles: Callable[[], list[str]] = lambda: [DEFAULT_STYLE]
    """The names of the output styles there are, read anew each time."""
    plugins: Callable[[bool], tuple[list[Json], list[Json]]] = lambda again: ([], [])
    """The plugins there are, and what is wrong with others; True reads them again."""
    recipes: Callable[[], Sequence[Recipe]] | None = tuple
    """The commands and skills there are, read anew each time; None where none are wanted."""
    betas: tuple[str, ...] = ()
    limits: Limits = Limits()
    compaction: Policy = Policy()
    make_keeper: Callable[[], Keeper] | None = None
    """The memory of the session, opened when it is first needed; None where there is none."""
    form: Form | None = None
    """What an answer must look like."""
    tells_quota: bool = True
    """Whether the client can bear a line about its quota."""
    state_events: str | None = None
    """Who reads session_state_changed: `sdk`, `everybody`, or None for nobody."""
    api_key_source: str = "none"
    prices: Prices = msgspec.field(default_factory=Prices)
    stamp: Stamp = Stamp()
    dice: Callable[[], float] = lambda: 0.5
    observer: Observer = NOBODY
    """Who hears when work begins and ends."""
    complain: Callable[[str], None] = lambda text: None
    """Where a complaint goes that has no place on the wire: stderr."""
