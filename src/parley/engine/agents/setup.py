"""What a subagent is made of: the session's setup, changed as its kind says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.agents.task import Parent
from parley.engine.context.compaction import CompactionPolicy
from parley.engine.context.system_prompt import CWD, Instructions
from parley.engine.session.config import SessionConfig
from parley.mcp.base import PREFIX
from parley.mcp.naming import normalize
from parley.models.catalog import ModelRef, resolve
from parley.protocol.base import Struct, UnsetType
from parley.protocol.messages.requests import AgentDefinition
from parley.tools.delegation.calls import AgentInput
from parley.tools.selection import canonical_name
from parley.workspace.base import Worktree

if TYPE_CHECKING:
    from parley.engine.session.session import Session

INTERACTIVE_TOOLS = frozenset({"AskUserQuestion", "EnterPlanMode", "ExitPlanMode"})
MEMORY_TOOLS = ("Read", "Write", "Edit")
"""Who keeps a memory can read and write it."""
RESTRICTING_MODES = frozenset({"plan", "dontAsk"})
"""Modes in which less may be done than in any other."""


class AgentSetup(Struct, frozen=True, kw_only=True):
    config: SessionConfig
    model: ModelRef
    mode: Callable[[], str]


def build_setup(
    session: Session,
    call: AgentInput,
    kind: AgentDefinition,
    parent: Parent | None,
    worktree: Worktree | None = None,
) -> AgentSetup:
    above = session.conversation if parent is None else parent.conversation
    config, schema = above.config, session.conversation.output_schema
    hidden = INTERACTIVE_TOOLS | ({schema.name} if schema is not None else set())
    wanted = kind.tools if isinstance(kind.tools, list) else None
    denied = kind.disallowedTools if isinstance(kind.disallowedTools, list) else []
    servers = [name for name in kind.mcpServers if isinstance(name, str)] if isinstance(kind.mcpServers, list) else []
    if wanted is not None and isinstance(kind.memory, str):
        wanted = [*wanted, *MEMORY_TOOLS]
    registry = config.tools.subset(
        lambda name, server: name not in hidden and is_offered(name, wanted, denied, servers, server)
    )
    limits = msgspec.structs.replace(
        config.limits,
        max_turns=kind.maxTurns if isinstance(kind.maxTurns, int) else session.limits.max_turns,
        fail_on_denial=False,
    )
    effort = call.effort or (kind.effort if isinstance(kind.effort, str) else config.model.effort)
    wished = kind.permissionMode if isinstance(kind.permissionMode, str) else None
    context = config.tool_context.fork()
    if worktree is not None:
        context.move(worktree)
    given = (
        worktree_instructions(session.config.instructions, context.worktree)
        if context.worktree
        else session.config.instructions
    )
    return AgentSetup(
        config=msgspec.structs.replace(
            config,
            instructions=agent_instructions(given, kind, agent_memory(session, call, kind)),
            tools=registry,
            tool_context=context,
            limits=limits,
            model=msgspec.structs.replace(config.model, effort=effort),
            client=msgspec.structs.replace(config.client, include_partial_messages=False),
            compaction=agent_compaction(config.compaction, above.window, kind.autoCompactWindow),
            output_schema=None,
        ),
        model=choose_model(call.model or kind.model or session.config.agents.subagent_model, above.model),
        mode=lambda: choose_mode(wished, above.mode(), may_bypass=session.may_bypass()),
    )


def agent_compaction(policy: CompactionPolicy, window: int, requested: Any) -> CompactionPolicy:
    """An agent may have less room than its caller, never more."""
    if not isinstance(requested, int) or not 0 < requested < window:
        return policy
    return msgspec.structs.replace(policy, window=requested)


def agent_memory(session: Session, call: AgentInput, kind: AgentDefinition) -> str:
    return session.config.agents.load_memory(kind.memory, call.subagent_type) if isinstance(kind.memory, str) else ""


def agent_instructions(session: Instructions, kind: AgentDefinition, memory: str = "") -> Instructions:
    """Its own prompt, and the facts and memory of the session behind it."""
    facts = "\n".join(f"- {fact}" for fact in session.environment)
    reminder = kind.criticalSystemReminder_EXPERIMENTAL
    parts = [
        f"Surroundings:\n{facts}" if facts else "",
        "" if kind.omitClaudeMd is True or session.replaced is not None else session.memory(),
        memory,
        reminder if isinstance(reminder, str) else "",
    ]
    appended = "\n\n".join(part for part in parts if part)
    if kind.omitClaudeMd is True or session.replaced is not None:
        return Instructions(replaced=kind.prompt, appended=appended)
    return Instructions(replaced=kind.prompt, appended=appended, nested=session.nested)


def worktree_instructions(session: Instructions, worktree: Worktree) -> Instructions:
    """The same for an agent in a worktree: memory files are those of the person's checkout."""
    facts = [fact for fact in session.environment if not fact.startswith(CWD)]
    what = (
        f"That is in a git worktree for you alone ({worktree.path}, on the branch {worktree.branch}). Work only there: "
        f"what you are told of files in {worktree.top} is meant of their copies in it."
    )
    return msgspec.structs.replace(
        session,
        environment=(f"{CWD}{worktree.cwd}", what, *facts),
        nested=lambda path: session.nested(worktree.original(path)),
    )


def is_offered(
    name: str, requested: Sequence[str] | None, denied: Sequence[str], servers: Sequence[str], server: str = ""
) -> bool:
    """Whether a tool is for a kind that wants only some, or some not. `server` is the MCP server it is of, if any."""
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


def choose_model(requested: str | UnsetType | None, parent: ModelRef) -> ModelRef:
    """The model of an agent. A short name means one of a backend, so it does not lead away from another backend."""
    if not requested or requested == "inherit" or (parent.adapter != "anthropic" and ":" not in str(requested)):
        return parent
    return resolve(str(requested))


def choose_mode(requested: str | None, parent: str, *, may_bypass: bool) -> str:
    """The permission mode of an agent: never wider than its caller's, unless the person let that in."""
    if requested is None or requested == parent:
        return parent
    if requested in RESTRICTING_MODES:
        return requested
    if parent != "default" or (requested == "bypassPermissions" and not may_bypass):
        return parent
    return requested if requested in ("acceptEdits", "bypassPermissions", "auto") else parent
