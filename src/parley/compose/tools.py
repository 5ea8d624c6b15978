"""The tools of a session and the door they go through to disk, processes and network."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from parley.compose import memory
from parley.compose.instructions import read_text_file
from parley.compose.launch_context import LaunchContext
from parley.compose.paths import file_history, plan_file, results_folder
from parley.compose.permissions import asks_host
from parley.compose.registry import HOOKS, TOOLS, dialect_name, load
from parley.engine.agents.registry import AgentRegistry
from parley.errors import UsageError
from parley.observer import NULL_OBSERVER, Observer
from parley.settings.base import SettingsValue
from parley.settings.env_vars import is_truthy
from parley.tools.base import Context, Tool
from parley.tools.registry import ToolRegistry
from parley.tools.selection import ToolSelection, select_tools
from parley.workspace.checkpoint.store import CheckpointStore
from parley.workspace.local import LocalFiles
from parley.workspace.process.processes import Processes
from parley.workspace.search.search import LocalSearch
from parley.workspace.web import FetchPolicy, Web

if TYPE_CHECKING:
    from parley.engine.turn.client_tools import ClientToolSpec
    from parley.hooks.base import Hook
    from parley.host import Host
    from parley.protocol.messages.requests import HookMatcher
    from parley.workspace.base import Worktrees

NETWORK_TOOLS = ("WebFetch", "WebSearch")
"""The tools that lead into the network."""
EXECUTING_TOOLS = ("Bash", "WebFetch")
"""What a restricted session has only if it is asked for by name: tools that run commands, or fetch at will."""


def make_registry(launch: LaunchContext, agents: Callable[[], AgentRegistry]) -> ToolRegistry:
    """The tools the model may call, by the names they are listed under."""
    tasks = launch.environment.get("CLAUDE_CODE_ENABLE_TASKS")
    wishes = ToolSelection(
        asked=launch.options.tools,
        denied=denied_tools(launch),
        has_person=asks_host(launch),
        has_memory=memory.memory_path(launch) is not None,
        tasks=is_truthy(tasks) if tasks else None,
    )
    return ToolRegistry(select_tools(TOOLS, wishes), lambda name: make_tool(name, agents))


def make_tool(name: str, agents: Callable[[], AgentRegistry] | None = None) -> Tool:
    made: Tool = (
        load(TOOLS, name, "tool")(agents().to_json)
        if name == "Task" and agents is not None
        else load(TOOLS, name, "tool")()
    )
    return made


def client_tools(launch: LaunchContext) -> Sequence[ClientToolSpec]:
    """The tools that the client runs. Raises UsageError."""
    options = launch.options
    given = options.client_tools
    if not given:
        return ()
    spoken = dialect_name(options)
    if spoken == "jsonrpc":
        raise UsageError("option '--client-tools' does not go with JSON-RPC, in which a client can only start a run")
    if options.input_format != "stream-json" and spoken != "miriad":
        raise UsageError("option '--client-tools' needs --input-format stream-json: the client answers on stdin")
    from parley.engine.turn.client_tools import parse_client_tools_json

    inline = given.lstrip().startswith(("[", "{"))
    return parse_client_tools_json(
        given if inline else read_text_file(os.path.join(launch.cwd, given), "--client-tools")
    )


def denied_tools(launch: LaunchContext) -> tuple[str, ...]:
    """What flags, settings and `--offline` deny; rules with contents do no harm here, as no tool is called that."""
    options = launch.options
    rules = (rule.text for rule in launch.settings.merged.rules if rule.behavior == "deny")
    closed = [name for name in EXECUTING_TOOLS if launch.is_restricted and name not in (options.tools or ())]
    return (*(options.disallowed_tools or ()), *rules, *(NETWORK_TOOLS if options.offline else ()), *closed)


def tool_context(launch: LaunchContext, session_id: str, observer: Observer = NULL_OBSERVER) -> Context:
    children = launch.settings.child_environment()
    return Context(
        cwd=launch.cwd,
        environment=children,
        files=make_files(launch, session_id),
        processes=Processes(),
        results_folder=results_folder(launch, session_id),
        new_id=launch.short_id,
        web=make_web(launch),
        plan_file=str(plan_file(launch, session_id)),
        clock=launch.clock.monotonic,
        search=LocalSearch(children),
        observer=observer,
    )


def make_files(launch: LaunchContext, session_id: str) -> LocalFiles:
    forget = launch.options.no_session_persistence
    # What is forgotten at the end must not be the checkpoints of the session that was read.
    history = launch.clock.new_uuid() if forget else session_id
    checkpoints, tree = CheckpointStore(file_history(launch, history)), None
    if is_truthy(launch.environment.get("PARLEY_SNAPSHOT_TREE")):
        from parley.workspace.checkpoint.tree_snapshot import TreeSnapshot

        tree = TreeSnapshot(launch.cwd, checkpoints, [str(launch.config)])
    return LocalFiles(
        cwd=launch.cwd, checkpoints=checkpoints, new_id=launch.short_id, tree=tree, delete_history_at_end=forget
    )


def make_worktrees(context: Context) -> Worktrees:
    from parley.workspace.worktrees import GitWorktrees

    return GitWorktrees(context.processes, context.environment)


def make_web(launch: LaunchContext) -> Web:
    """The door to the network, opened as wide as the person says. Raises UsageError."""
    environment = launch.environment
    search_url = environment.get("PARLEY_SEARCH_URL") or None
    if search_url and "{query}" not in search_url:
        raise UsageError("PARLEY_SEARCH_URL must have {query} in it, where the query goes")
    private = is_truthy(environment.get("PARLEY_WEBFETCH_ALLOW_PRIVATE"))
    policy = FetchPolicy(
        allow_private=private or launch.settings.merged.get("webFetchAllowPrivate") is True,
        offline=launch.options.offline,
    )
    return Web(policy, ca_file=environment.get("NODE_EXTRA_CA_CERTS"), search_url=search_url)


def callback_hooks(host: Host, hooks: Mapping[str, Sequence[HookMatcher]]) -> Sequence[Hook]:
    """The hooks that a host registers."""
    found: Sequence[Hook] = load(HOOKS, "callback", "hook")(host, hooks)
    return found


def command_hooks(launch: LaunchContext, layers: Sequence[SettingsValue], context: Context) -> Sequence[Hook]:
    """The commands that settings have as hooks. What is wrong with them is told."""
    found, flaws = load(HOOKS, "command", "hook")(layers, context, launch.cwd)
    for error in flaws:
        launch.warn(str(error))
    hooks: Sequence[Hook] = found
    return hooks
