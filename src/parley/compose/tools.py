"""The tools of a session, and what gives them access to disk, processes and network."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from parley.compose import memory
from parley.compose.instructions import read_text_file
from parley.compose.launch_context import LaunchContext
from parley.compose.paths import file_history, plan_file, results_folder
from parley.compose.permissions import asks_host
from parley.compose.registry import HOOKS, dialect_name, get_profile, load, load_tool
from parley.engine.agents.registry import AgentRegistry
from parley.errors import UsageError
from parley.observer import NULL_OBSERVER, Observer
from parley.settings.base import SettingsValue
from parley.settings.env_vars import is_truthy
from parley.tools.base import Context, ListsAgents, Tool
from parley.tools.catalog import BUILT_IN, JUDGED_BY_CALL, find_traits, load_external
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


def make_registry(launch: LaunchContext, agents: Callable[[], AgentRegistry]) -> ToolRegistry:
    """The tools the model may call, by the names they are listed under."""
    tasks = launch.environment.get("CLAUDE_CODE_ENABLE_TASKS")
    known = list_tools(launch)
    selection = ToolSelection(
        asked=launch.options.tools,
        denied=denied_tools(launch, known),
        has_person=asks_host(launch),
        has_memory=memory.memory_path(launch) is not None,
        tasks=is_truthy(tasks) if tasks else None,
    )
    return ToolRegistry(select_tools(known, selection), lambda name: make_tool(name, agents))


def list_tools(launch: LaunchContext | None = None) -> tuple[str, ...]:
    """The names of all tools, those of other packages last; `--safe-mode` leaves these out."""
    if launch is not None and launch.options.safe_mode:
        return BUILT_IN
    return (*BUILT_IN, *load_external().classes)


def make_tool(name: str, agents: Callable[[], AgentRegistry] | None = None) -> Tool:
    """Raises UsageError if there is no such tool."""
    tool = load_tool(name)()
    return tool.with_agents(agents().to_json) if agents is not None and isinstance(tool, ListsAgents) else tool


def client_tools(launch: LaunchContext) -> Sequence[ClientToolSpec]:
    """The tools that the client runs. Raises UsageError."""
    options = launch.options
    given = options.client_tools
    if not given:
        return ()
    supported = get_profile(options).client_tools
    if supported == "never":
        dialect = dialect_name(options)
        raise UsageError(f"option '--client-tools' cannot be used with --dialect {dialect}, which has no such requests")
    if options.input_format != "stream-json" and supported != "always":
        raise UsageError("option '--client-tools' needs --input-format stream-json: the client answers on stdin")
    from parley.engine.turn.client_tools import parse_client_tools_json

    inline = given.lstrip().startswith(("[", "{"))
    return parse_client_tools_json(
        given if inline else read_text_file(os.path.join(launch.cwd, given), "--client-tools")
    )


def denied_tools(launch: LaunchContext, known: Iterable[str] = BUILT_IN) -> tuple[str, ...]:
    """What flags, settings and `--offline` deny. Rules with contents have no effect here: no tool has such a name."""
    options = launch.options
    rules = (rule.text for rule in launch.settings.merged.rules if rule.behavior == "deny")
    network = [name for name in known if options.offline and find_traits(name).uses_network]
    closed = [
        name for name in known if launch.is_restricted and name not in (options.tools or ()) and is_open_ended(name)
    ]
    return (*(options.disallowed_tools or ()), *rules, *network, *closed)


def is_open_ended(name: str) -> bool:
    """Whether a restricted session has a tool only on request: it runs commands, fetches, or has an unknown effect."""
    traits = find_traits(name)
    return traits.effect in JUDGED_BY_CALL or (traits.is_external and traits.effect == "unknown")


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
    # The checkpoints that are deleted at the end must not be those of the session that was resumed.
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
    """Access to the network, as far as the environment and the settings permit. Raises UsageError."""
    environment = launch.environment
    search_url = environment.get("PARLEY_SEARCH_URL") or None
    if search_url and "{query}" not in search_url:
        raise UsageError("PARLEY_SEARCH_URL must contain {query}, which is replaced by the query")
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
    """The commands that settings have as hooks. What is wrong with them is reported."""
    found, errors = load(HOOKS, "command", "hook")(layers, context, launch.cwd)
    for error in errors:
        launch.warn(str(error))
    hooks: Sequence[Hook] = found
    return hooks
