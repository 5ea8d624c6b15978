"""What the definition of an agent leads to: the configuration of a subagent, or of the session that runs as the agent.

    setup = build_setup(own, call, kind, parent, worktree, open_agents)

    resources = AgentResources(conversation, commands, "reviewer", kind)
    contexts = await resources.open(agent_id, tools)     # servers are connected, hooks are registered
    resources.close()

`settings/files/agents.py` decides whether a definition may have hooks, skills and servers. An invalid one is reported
and skipped.

The client can define the agent that the session runs as (`--agent NAME`), so it is looked up at `initialize`, and at
the latest with the first prompt. If it is not defined, the session calls no model: without the agent's limits it would
be a different session. Options of the command line take precedence over the agent's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.commands.commands import Commands
from parley.engine.context.conversation import Conversation
from parley.engine.context.history import CompactionPolicy
from parley.engine.context.system_prompt import BOUNDARY, CWD, Instructions
from parley.engine.session.config import SessionConfig
from parley.errors import NotPossible, ToolError
from parley.mcp.base import PREFIX, ServerSpec
from parley.mcp.content import normalize
from parley.models.catalog import ModelRef, resolve
from parley.protocol.base import Json, Struct, UnsetType
from parley.protocol.messages.requests import AgentDefinition
from parley.protocol.options import MODES
from parley.settings.base import SettingsValue, Source
from parley.tools.agent import AgentInput
from parley.tools.base import AgentCalls, Context
from parley.tools.catalog import built_in_with, canonical_name, find_traits
from parley.workspace.base import Worktree

if TYPE_CHECKING:
    from parley.engine.session.prompts import Prompt
    from parley.engine.turn.turn import Turn
    from parley.mcp.server_connection import McpServer
    from parley.tools.base import ToolRegistry


SESSION_TOOLS = frozenset((*built_in_with(needs="person"), *built_in_with(only_main_agent=True)))
"""Tools that need the user, or change the session itself."""
MEMORY_TOOLS = ("Read", "Write", "Edit")
"""An agent with a memory can read and write it."""
RESTRICTING_MODES = frozenset({"plan", "dontAsk"})
"""Modes that allow less than any other."""


class Parent(Struct, frozen=True, kw_only=True):
    """The subagent that calls another."""

    id: str
    depth: int
    conversation: Conversation


class AgentSetup(Struct, frozen=True, kw_only=True):
    kind: AgentDefinition
    config: SessionConfig
    context: Context
    """For its tools."""
    model: ModelRef
    mode: Callable[[], str]


def build_setup(
    own: Conversation,
    call: AgentInput,
    kind: AgentDefinition,
    parent: Parent | None,
    worktree: Worktree | None,
    open_agents: Callable[[], AgentCalls],
) -> AgentSetup:
    """`own` is the conversation of the session. `open_agents` gives its tools the subagents that it calls itself."""
    above = own if parent is None else parent.conversation
    config, schema = above.config, own.output_schema
    hidden = SESSION_TOOLS | ({schema.name} if schema is not None else set())
    requested = kind.tools if isinstance(kind.tools, list) else None
    denied = kind.disallowedTools if isinstance(kind.disallowedTools, list) else []
    servers = [name for name in kind.mcpServers if isinstance(name, str)] if isinstance(kind.mcpServers, list) else []
    if requested is not None and isinstance(kind.memory, str):
        requested = [*requested, *MEMORY_TOOLS]
    registry = config.tools.subset(
        lambda name, server: name not in hidden and is_offered(name, requested, denied, servers, server)
    )
    ceiling = config.limits.max_agent_turns
    turns = kind.maxTurns if isinstance(kind.maxTurns, int) else own.config.options.max_turns
    options = config.options.replace(
        max_turns=turns if turns is None or ceiling is None else min(turns, ceiling),
        effort=call.effort or (kind.effort if isinstance(kind.effort, str) else config.options.effort),
        fail_on_denial=False,
        include_partial_messages=False,
        cache_ttl=config.options.subagent_cache_ttl,
    )
    mode = kind.permissionMode if isinstance(kind.permissionMode, str) else None
    context = above.tool_context.fork(open_agents, worktree)
    instructions = own.config.instructions
    if context.worktree:
        instructions = worktree_instructions(instructions, context.worktree)
    return AgentSetup(
        kind=kind,
        config=msgspec.structs.replace(
            config,
            instructions=agent_instructions(instructions, kind, agent_memory(own.config, call, kind)),
            tools=registry,
            options=options,
            compaction=agent_compaction(config.compaction, above.window, kind.autoCompactWindow),
            output_schema=None,
        ),
        context=context,
        model=choose_model(
            call.model or kind.model or own.config.agents.subagent_model, above.model, config.model.resolve
        ),
        mode=lambda: choose_mode(mode, above.mode(), may_bypass=own.parts.mode.may_bypass()),
    )


def agent_compaction(policy: CompactionPolicy, window: int, requested: Any) -> CompactionPolicy:
    """An agent can have a smaller window than its caller, not a larger one."""
    if not isinstance(requested, int) or not 0 < requested < window:
        return policy
    return msgspec.structs.replace(policy, window=requested)


def agent_memory(config: SessionConfig, call: AgentInput, kind: AgentDefinition) -> str:
    return config.agents.load_memory(kind.memory, call.subagent_type) if isinstance(kind.memory, str) else ""


def agent_instructions(base: Instructions, kind: AgentDefinition, memory: str = "") -> Instructions:
    """The prompt of the definition, followed by the facts and memory files of the session."""
    facts = "\n".join(f"- {fact}" for fact in base.environment)
    reminder = kind.criticalSystemReminder_EXPERIMENTAL
    parts = [
        f"Surroundings:\n{facts}" if facts else "",
        "" if kind.omitClaudeMd is True or base.replaced is not None else base.memory(),
        memory,
        reminder if isinstance(reminder, str) else "",
    ]
    appended = "\n\n".join([BOUNDARY, *filter(None, parts)])
    if kind.omitClaudeMd is True or base.replaced is not None:
        return Instructions(replaced=kind.prompt, appended=appended)
    return Instructions(replaced=kind.prompt, appended=appended, nested=base.nested)


def worktree_instructions(base: Instructions, worktree: Worktree) -> Instructions:
    """The instructions for an agent in a worktree. Memory files come from the user's checkout."""
    place = (
        f"That is in a git worktree for you alone ({worktree.path}, on the branch {worktree.branch}). Work only there: "
        f"if you are told about files in {worktree.top}, use their copies in the worktree."
    )
    facts = [fact for fact in base.environment if not fact.startswith(CWD) and fact != place]
    return msgspec.structs.replace(
        base,
        environment=(f"{CWD}{worktree.cwd}", place, *facts),
        nested=lambda path: base.nested(worktree.original(path)),
    )


def is_offered(
    name: str, requested: Sequence[str] | None, denied: Sequence[str], servers: Sequence[str], server: str = ""
) -> bool:
    """Whether an agent is offered a tool, given its allowed and denied tools. `server` is the tool's MCP server."""
    if any(matches_tool(name, pattern, server) for pattern in denied):
        return False
    if requested is None:
        return True
    if server and server in map(normalize, servers):
        return True
    # As in allow rules, `mcp__a__b` is the tool `b` of the server `a` and not the server `a__b`.
    return any(matches_tool(name, pattern, "" if "__" in server else server) for pattern in requested)


def matches_tool(name: str, pattern: str, server: str = "") -> bool:
    """`Read`, `Bash(git *)`, `*`, `mcp__server`, `mcp__server__*`."""
    bare = pattern.partition("(")[0].strip()
    if bare == "*" or canonical_name(bare) == canonical_name(name):
        return True
    return bool(server) and bare.removesuffix("__*") == f"{PREFIX}{server}"


def choose_model(
    requested: str | UnsetType | None, parent: ModelRef, resolve: Callable[[str], ModelRef] = resolve
) -> ModelRef:
    """The model of an agent. A short name belongs to one backend, so another backend keeps the caller's model."""
    if not requested or requested == "inherit" or (not parent.is_messages_api and ":" not in str(requested)):
        return parent
    return resolve(str(requested))


def choose_mode(requested: str | None, parent: str, *, may_bypass: bool) -> str:
    """The permission mode of an agent: wider than its caller's only if the user allowed it."""
    if requested is None or requested == parent:
        return parent
    if requested in RESTRICTING_MODES:
        return requested
    if parent != "default" or (requested == "bypassPermissions" and not may_bypass):
        return parent
    return requested if requested in ("acceptEdits", "bypassPermissions", "auto") else parent


RESOURCE_FIELDS = ("skills", "hooks", "mcpServers")


def has_resources(kind: AgentDefinition) -> bool:
    return any(getattr(kind, field) for field in RESOURCE_FIELDS)


class AgentResources:
    """The resources of one running subagent."""

    def __init__(self, own: Conversation, commands: Commands, name: str, kind: AgentDefinition) -> None:
        """`own` is the conversation of the session."""
        self._own = own
        self._commands = commands
        self._name = name
        self._kind = kind
        self._agent_id = ""
        self._servers: list[McpServer] = []

    async def open(self, agent_id: str, tools: ToolRegistry) -> list[str]:
        """Register hooks, connect servers and load skills. Returns context for the agent."""
        self._agent_id = agent_id
        hooks = agent_hooks(self._own.config, self._name, self._kind, {"Stop": "SubagentStop"})
        if hooks is not None:
            self._own.hooks.add_agent(agent_id, hooks)
        missing = await self._connect(tools)
        return [*missing, *await load_skills(self._own, self._commands, self._name, self._kind)]

    async def _connect(self, tools: ToolRegistry) -> list[str]:
        """Connect the agent's own servers. Returns a text about each that failed."""
        from parley.engine.mcp.server_tool import make_tools
        from parley.mcp.content import clash_reason, find_clash

        config, manager = self._own.config, self._own.parts.servers
        sources, inherited = config.extensions.mcp, tools.external
        specs = server_specs(config, self._name, self._kind)
        if not specs:
            return []

        def changed(server: McpServer) -> None:
            own = make_tools(self._servers, sources, self._own.parts.outbox.send, config.warn)
            tools.set_external({**inherited, **own}, tools.explain_absence)

        held = manager.names()
        for spec in specs:
            other = find_clash(spec.name, held)
            error = "" if other is None else clash_reason(spec.name, other)
            self._servers.append(manager.make_server(msgspec.structs.replace(spec, problem=error), changed))
            held.append(spec.name)
        for server in self._servers:
            server.start()
        await asyncio.gather(*(server.settled.wait() for server in self._servers))
        lost = [server for server in self._servers if server.status != "connected"]
        texts = [f"the MCP server {one.spec.name!r} is not connected ({one.status}): {one.reason}" for one in lost]
        for text in texts:
            config.warn(f"agent {self._name!r}: {text}")
        return [f"Some of your own tools are missing: {text}" for text in texts]

    def close(self) -> None:
        """Remove the hooks and close the servers, without waiting: an interrupt must not block."""
        self._own.hooks.remove_agent(self._agent_id)
        servers, self._servers = self._servers, []
        for server in servers:
            self._own.parts.servers.retire(server)


def agent_hooks(
    config: SessionConfig, name: str, kind: AgentDefinition, other_names: dict[str, str]
) -> SettingsValue | None:
    """The hooks of a definition, in the form of settings. `other_names` renames events."""
    if not isinstance(kind.hooks, dict) or not kind.hooks:
        return None
    hooks = {other_names.get(event, event): entries for event, entries in kind.hooks.items()}
    source: Source = "project" if config.agents.registry.is_of_project(name) else "flag"
    return SettingsValue(value=hooks, source=source, path=f"agent {name}", root=config.cwd)


def server_entries(kind: AgentDefinition) -> list[Any]:
    return kind.mcpServers if isinstance(kind.mcpServers, list) else []


def server_specs(config: SessionConfig, name: str, kind: AgentDefinition) -> Sequence[ServerSpec]:
    """The agent's own servers. A name alone refers to a server of the session. Errors are warned about."""
    own: Json = {}
    for entry in server_entries(kind):
        if isinstance(entry, dict):
            own |= entry
    if not own:
        return ()
    found = config.extensions.mcp.parser.parse_agent(own, f"agent {name!r}", config.agents.registry.is_of_project(name))
    for error in found.problems:
        config.warn(error)
    return [spec for spec in found.specs if not spec.problem]


async def load_skills(own: Conversation, commands: Commands, name: str, kind: AgentDefinition) -> list[str]:
    """The texts of the skills that an agent starts with."""
    found: list[str] = []
    warn = own.config.warn
    for skill in kind.skills if isinstance(kind.skills, list) else ():
        template = commands.find_usable(skill)
        if template is None:
            warn(f"agent {name!r}: there is no skill {skill!r} that a model can use")
            continue
        from parley.engine.commands.expansion import expand_template

        try:
            blocks = await expand_template(own, template, "")
        except ToolError as exc:
            warn(f"agent {name!r}: the skill {skill!r} is left out: {exc}")
            continue
        text = "\n\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")
        found.append(f"The skill {skill!r}, which you follow where it fits:\n\n{text}")
    return found


class MainAgent:
    def __init__(self, conversation: Conversation, commands: Commands, name: str) -> None:
        self._conversation = conversation
        self._commands = commands
        self._name = name
        self._kind: AgentDefinition | None = None
        self._initial_prompt = ""
        """Text that is put before the first prompt."""
        self._has_started = False
        self.error = ""
        """Why the session cannot run as this agent."""

    def activate(self) -> None:
        """Apply the definition, if it is known."""
        if self._kind is not None:
            return
        agents = self._conversation.config.agents.registry
        kind = agents.find(self._name)
        if kind is None:
            known = ", ".join(agents.definitions)
            self.error = f"There is no agent {self._name!r} (--agent, or agent in settings). The agents are: {known}"
            return
        self._kind, self.error = kind, ""
        self._conversation.hooks.main_agent["agent_type"] = self._name
        self._set_prompt(kind)
        self._set_tools(kind)
        self._set_options(kind)

    def _set_prompt(self, kind: AgentDefinition) -> None:
        conversation, config = self._conversation, self._conversation.config
        reminder = kind.criticalSystemReminder_EXPERIMENTAL
        memory = config.agents.load_memory(kind.memory, self._name) if isinstance(kind.memory, str) else ""
        parts = [kind.prompt, memory, reminder if isinstance(reminder, str) else ""]
        role = "\n\n".join(part for part in parts if part)
        conversation.instructions = msgspec.structs.replace(conversation.instructions, role=role)
        if isinstance(kind.initialPrompt, str) and conversation.journal.is_empty:
            self._initial_prompt = kind.initialPrompt.strip()

    def _set_tools(self, kind: AgentDefinition) -> None:
        """Apply the tools, servers and hooks."""
        conversation = self._conversation
        config = conversation.config
        requested = kind.tools if isinstance(kind.tools, list) else None
        denied = kind.disallowedTools if isinstance(kind.disallowedTools, list) else []
        named = [name for entry in server_entries(kind) for name in ([entry] if isinstance(entry, str) else entry)]
        schema = conversation.output_schema

        def keeps(name: str, server: str = "") -> bool:
            return (schema is not None and name == schema.name) or is_offered(name, requested, denied, named, server)

        config.tools.restrict(keeps)
        if not keeps("Skill"):
            self._commands.disable_for_model()
        if allowed := allowed_agents(requested or []):
            config.agents.registry.restrict(allowed)
        hooks = agent_hooks(config, self._name, kind, {})
        if hooks is not None:
            conversation.hooks.add_main_agent(hooks)
        conversation.parts.servers.add_agent_servers(server_specs(config, self._name, kind))

    def _set_options(self, kind: AgentDefinition) -> None:
        """Apply model, mode, effort and turn limit, unless the command line sets them."""
        conversation, config = self._conversation, self._conversation.config
        if isinstance(kind.model, str) and not config.model.is_explicit:
            choice = choose_model(kind.model, conversation.model, config.model.resolve)
            try:
                if choice != conversation.model:
                    conversation.use_model(kind.model)
            except NotPossible as exc:
                self.error = f"The model of the agent {self._name!r} cannot be used: {exc}"
        mode = kind.permissionMode
        if (
            isinstance(mode, str)
            and not config.permissions.mode_is_explicit
            and conversation.journal.grants.mode is None
        ):
            if mode in MODES and (mode != "bypassPermissions" or conversation.parts.mode.may_bypass()):
                conversation.parts.mode.current = mode
            else:
                config.warn(f"agent {self._name!r}: permissionMode {mode!r} is not allowed in this session")
        if isinstance(kind.effort, str) and config.options.effort is None:
            conversation.effort = kind.effort
        if isinstance(kind.maxTurns, int) and conversation.options.max_turns is None:
            conversation.options = conversation.options.replace(max_turns=kind.maxTurns)

    def with_initial_prompt(self, prompt: Prompt) -> Prompt:
        """Put the agent's initial prompt before the first prompt."""
        self.activate()
        opening, self._initial_prompt = self._initial_prompt, ""
        if not opening:
            return prompt
        first, rest = (prompt.content or [{}])[0], prompt.content[1:]
        if first.get("type") != "text":
            return msgspec.structs.replace(prompt, content=[{"type": "text", "text": opening}, *prompt.content])
        return msgspec.structs.replace(prompt, content=[{**first, "text": f"{opening}\n\n{first['text']}"}, *rest])

    async def start_turn(self, turn: Turn) -> None:
        """Add the agent's skills to the first turn."""
        if self._kind is not None and not self._has_started:
            turn.hook_feedback.contexts += await load_skills(self._conversation, self._commands, self._name, self._kind)
            self._has_started = True


def allowed_agents(tools: list[str]) -> list[str]:
    """The agent types that `Agent(a, b)` in a list of tools allows; empty for all."""
    found: list[str] = []
    for tool in tools:
        name, opened, inner = tool.partition("(")
        if opened and find_traits(name.strip()).effect == "delegates":
            found += [kind.strip() for kind in inner.removesuffix(")").split(",") if kind.strip() not in ("", "*")]
    return found
