"""What a subagent is made of: the session's setup, changed as its kind says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.agents.task import Parent
from parley.engine.context.compaction import Policy
from parley.engine.context.system_prompt import CWD, Instructions
from parley.engine.session.config import Setup
from parley.mcp.base import PREFIX
from parley.mcp.naming import normal
from parley.models.catalog import Choice, resolve
from parley.protocol.base import Struct, UnsetType
from parley.protocol.messages.requests import AgentDefinition
from parley.tools.delegation.calls import AgentInput
from parley.tools.selection import canonical
from parley.workspace.base import Worktree

if TYPE_CHECKING:
    from parley.engine.session.session import Session

NEEDS_THE_PERSON = frozenset({"AskUserQuestion", "EnterPlanMode", "ExitPlanMode"})
TOOLS_FOR_MEMORY = ("Read", "Write", "Edit")
"""Who keeps a memory can read and write it."""
NARROWER = frozenset({"plan", "dontAsk"})
"""Modes in which less may be done than in any other."""


class Made(Struct, frozen=True, kw_only=True):
    setup: Setup
    model: Choice
    mode: Callable[[], str]


def made_for(
    session: Session,
    call: AgentInput,
    kind: AgentDefinition,
    parent: Parent | None,
    worktree: Worktree | None = None,
) -> Made:
    above = session.conversation if parent is None else parent.conversation
    setup, form = above.setup, session.conversation.form
    hidden = NEEDS_THE_PERSON | ({form.name} if form is not None else set())
    wanted = kind.tools if isinstance(kind.tools, list) else None
    denied = kind.disallowedTools if isinstance(kind.disallowedTools, list) else []
    servers = [name for name in kind.mcpServers if isinstance(name, str)] if isinstance(kind.mcpServers, list) else []
    if wanted is not None and isinstance(kind.memory, str):
        wanted = [*wanted, *TOOLS_FOR_MEMORY]
    shelf = setup.tools.part(
        lambda name, server: name not in hidden and is_offered(name, wanted, denied, servers, server)
    )
    limits = msgspec.structs.replace(
        setup.limits,
        max_turns=kind.maxTurns if isinstance(kind.maxTurns, int) else session.limits.max_turns,
        fail_on_denial=False,
    )
    effort = call.effort or (kind.effort if isinstance(kind.effort, str) else setup.effort)
    wished = kind.permissionMode if isinstance(kind.permissionMode, str) else None
    context = setup.tool_context.fork()
    if worktree is not None:
        context.move(worktree)
    given = apart(session.setup.instructions, context.worktree) if context.worktree else session.setup.instructions
    return Made(
        setup=msgspec.structs.replace(
            setup,
            instructions=instructions(given, kind, memory_of(session, call, kind)),
            tools=shelf,
            tool_context=context,
            limits=limits,
            effort=effort,
            compaction=compaction(setup.compaction, above.window, kind.autoCompactWindow),
            form=None,
            partial=False,
        ),
        model=model_for(call.model or kind.model or session.setup.subagent_model, above.model),
        mode=lambda: mode_for(wished, above.mode(), may_bypass=session.may_bypass()),
    )


def compaction(policy: Policy, window: int, wanted: Any) -> Policy:
    """An agent may have less room than its caller, never more."""
    if not isinstance(wanted, int) or not 0 < wanted < window:
        return policy
    return msgspec.structs.replace(policy, window=wanted)


def memory_of(session: Session, call: AgentInput, kind: AgentDefinition) -> str:
    return session.setup.agent_memory(kind.memory, call.subagent_type) if isinstance(kind.memory, str) else ""


def instructions(session: Instructions, kind: AgentDefinition, memory: str = "") -> Instructions:
    """Its own prompt, and the facts and memory of the session behind it."""
    facts = "\n".join(f"- {fact}" for fact in session.surroundings)
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


def apart(session: Instructions, worktree: Worktree) -> Instructions:
    """The same for an agent in a worktree: memory files are those of the person's checkout."""
    facts = [fact for fact in session.surroundings if not fact.startswith(CWD)]
    what = (
        f"That is in a git worktree for you alone ({worktree.path}, on the branch {worktree.branch}). Work only there: "
        f"what you are told of files in {worktree.top} is meant of their copies in it."
    )
    return msgspec.structs.replace(
        session,
        surroundings=(f"{CWD}{worktree.cwd}", what, *facts),
        nested=lambda path: session.nested(worktree.original(path)),
    )


def is_offered(
    name: str, wanted: Sequence[str] | None, denied: Sequence[str], servers: Sequence[str], server: str = ""
) -> bool:
    """Whether a tool is for a kind that wants only some, or some not. `server` is the MCP server it is of, if any."""
    if any(is_meant(name, pattern, server) for pattern in denied):
        return False
    if wanted is None:
        return True
    if server and server in map(normal, servers):
        return True
    # As in allow rules, `mcp__a__b` is the tool `b` of the server `a` and not the server `a__b`.
    return any(is_meant(name, pattern, "" if "__" in server else server) for pattern in wanted)


def is_meant(name: str, pattern: str, server: str = "") -> bool:
    """`Read`, `Bash(git *)`, `*`, `mcp__server`, `mcp__server__*`."""
    bare = pattern.partition("(")[0].strip()
    if bare == "*" or canonical(bare) == canonical(name):
        return True
    return bool(server) and bare.removesuffix("__*") == f"{PREFIX}{server}"


def model_for(wanted: str | UnsetType | None, above: Choice) -> Choice:
    """The model of an agent. A short name means one of a backend, so it does not lead away from another backend."""
    if not wanted or wanted == "inherit" or (above.adapter != "anthropic" and ":" not in str(wanted)):
        return above
    return resolve(str(wanted))


def mode_for(wanted: str | None, above: str, *, may_bypass: bool) -> str:
    """The permission mode of an agent: never wider than its caller's, unless the person let that in."""
    if wanted is None or wanted == above:
        return above
    if wanted in NARROWER:
        return wanted
    if above != "default" or (wanted == "bypassPermissions" and not may_bypass):
        return above
    return wanted if wanted in ("acceptEdits", "bypassPermissions", "auto") else above
