"""The tools of a session and the door they go through to disk, processes and network."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from parley.compose import memory
from parley.compose.instructions import text_file
from parley.compose.launch_context import Basis
from parley.compose.paths import file_history, plan_file, results_folder
from parley.compose.permissions import asks_host
from parley.compose.registry import HOOKS, TOOLS, dialect_name, variety
from parley.engine.agents.registry import Agents
from parley.errors import UsageError
from parley.observer import NOBODY, Observer
from parley.settings.base import Value
from parley.settings.env_vars import truthy
from parley.tools.base import Context, Tool
from parley.tools.registry import Shelf
from parley.tools.selection import Wishes, offered
from parley.workspace.checkpoint.store import Checkpoints
from parley.workspace.local import LocalFiles
from parley.workspace.process.processes import Processes
from parley.workspace.search.search import LocalSearch
from parley.workspace.web import Web

if TYPE_CHECKING:
    from parley.engine.turn.client_tools import Declared
    from parley.hooks.base import Hook
    from parley.host import Host
    from parley.protocol.messages.requests import HookMatcher
    from parley.workspace.base import Worktrees

OUTWARD = ("WebFetch", "WebSearch")
"""The tools that lead into the network."""
RUNNING = ("Bash", "WebFetch")
"""What a restricted session has only if it is asked for by name: tools that run commands, or fetch at will."""


def shelf(basis: Basis, agents: Callable[[], Agents]) -> Shelf:
    """The tools the model may call, by the names they are listed under."""
    tasks = basis.environment.get("CLAUDE_CODE_ENABLE_TASKS")
    wishes = Wishes(
        asked=basis.options.tools,
        denied=denied_tools(basis),
        has_person=asks_host(basis),
        has_memory=memory.place(basis) is not None,
        tasks=truthy(tasks) if tasks else None,
    )
    return Shelf(offered(TOOLS, wishes), lambda name: make_tool(name, agents))


def make_tool(name: str, agents: Callable[[], Agents] | None = None) -> Tool:
    made: Tool = (
        variety(TOOLS, name, "tool")(agents().listing)
        if name == "Task" and agents is not None
        else variety(TOOLS, name, "tool")()
    )
    return made


def client_tools(basis: Basis) -> Sequence[Declared]:
    """The tools that the client runs. Raises UsageError."""
    options = basis.options
    given = options.client_tools
    if not given:
        return ()
    spoken = dialect_name(options)
    if spoken == "jsonrpc":
        raise UsageError("option '--client-tools' does not go with JSON-RPC, in which a client can only start a run")
    if options.input_format != "stream-json" and spoken != "miriad":
        raise UsageError("option '--client-tools' needs --input-format stream-json: the client answers on stdin")
    from parley.engine.turn.client_tools import declared_in

    inline = given.lstrip().startswith(("[", "{"))
    return declared_in(given if inline else text_file(os.path.join(basis.cwd, given), "--client-tools"))


def denied_tools(basis: Basis) -> tuple[str, ...]:
    """What flags, settings and `--offline` deny; rules with contents do no harm here, as no tool is called that."""
    options = basis.options
    rules = (rule.text for rule in basis.settings.merged.rules if rule.behavior == "deny")
    closed = [name for name in RUNNING if basis.is_restricted and name not in (options.tools or ())]
    return (*(options.disallowed_tools or ()), *rules, *(OUTWARD if options.offline else ()), *closed)


def tool_context(basis: Basis, session_id: str, observer: Observer = NOBODY) -> Context:
    children = basis.settings.child_environment()
    return Context(
        cwd=basis.cwd,
        environment=children,
        files=files(basis, session_id),
        processes=Processes(),
        results_folder=results_folder(basis, session_id),
        new_id=basis.short_id,
        web=web(basis),
        plan_file=str(plan_file(basis, session_id)),
        clock=basis.stamp.monotonic,
        search=LocalSearch(children),
        observer=observer,
    )


def files(basis: Basis, session_id: str) -> LocalFiles:
    forget = basis.options.no_session_persistence
    # What is forgotten at the end must not be the checkpoints of the session that was read.
    history = basis.stamp.new_uuid() if forget else session_id
    checkpoints, tree = Checkpoints(file_history(basis, history)), None
    if truthy(basis.environment.get("PARLEY_SNAPSHOT_TREE")):
        from parley.workspace.checkpoint.tree_snapshot import Tree

        tree = Tree(basis.cwd, checkpoints, [str(basis.config)])
    return LocalFiles(cwd=basis.cwd, checkpoints=checkpoints, new_id=basis.short_id, tree=tree, forget_at_end=forget)


def worktrees(context: Context) -> Worktrees:
    from parley.workspace.worktrees import GitWorktrees

    return GitWorktrees(context.processes, context.environment)


def web(basis: Basis) -> Web:
    """The door to the network, opened as wide as the person says. Raises UsageError."""
    environment = basis.environment
    search_url = environment.get("PARLEY_SEARCH_URL") or None
    if search_url and "{query}" not in search_url:
        raise UsageError("PARLEY_SEARCH_URL must have {query} in it, where the query goes")
    private = truthy(environment.get("PARLEY_WEBFETCH_ALLOW_PRIVATE"))
    return Web(
        allow_private=private or basis.settings.merged.get("webFetchAllowPrivate") is True,
        ca_file=environment.get("NODE_EXTRA_CA_CERTS"),
        search_url=search_url,
        closed=basis.options.offline,
    )


def callback_hooks(host: Host, hooks: Mapping[str, Sequence[HookMatcher]]) -> Sequence[Hook]:
    """The hooks that a host registers."""
    found: Sequence[Hook] = variety(HOOKS, "callback", "hook")(host, hooks)
    return found


def command_hooks(basis: Basis, layers: Sequence[Value], context: Context) -> Sequence[Hook]:
    """The commands that settings have as hooks. What is wrong with them is told."""
    found, flaws = variety(HOOKS, "command", "hook")(layers, context, basis.cwd)
    for flaw in flaws:
        basis.complain(str(flaw))
    hooks: Sequence[Hook] = found
    return hooks
