"""Build the configuration of a subagent: the caller's, changed by the agent definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from parley.engine.agents.task import Parent
from parley.engine.context.conversation import Conversation
from parley.engine.context.history import CompactionPolicy
from parley.engine.context.system_prompt import BOUNDARY, CWD, Instructions
from parley.engine.session.config import SessionConfig
from parley.mcp.base import PREFIX
from parley.mcp.content import normalize
from parley.models.catalog import ModelRef, resolve
from parley.protocol.base import Struct, UnsetType
from parley.protocol.messages.requests import AgentDefinition
from parley.tools.agent import AgentInput
from parley.tools.base import AgentCalls, Context
from parley.tools.catalog import built_in_with, canonical_name
from parley.workspace.base import Worktree

SESSION_TOOLS = frozenset((*built_in_with(needs="person"), *built_in_with(only_main_agent=True)))
"""Tools that need the user, or change the session itself."""
MEMORY_TOOLS = ("Read", "Write", "Edit")
"""An agent with a memory can read and write it."""
RESTRICTING_MODES = frozenset({"plan", "dontAsk"})
"""Modes that allow less than any other."""


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
