"""The tools of a session, and what gives them access to disk, processes and network."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

import parley.entry_points as entry_points
import parley.tools as tools
from parley.compose import memory
from parley.compose.instructions import read_text_file
from parley.compose.launch_context import LaunchContext, file_history, find_checkout, plan_file, results_folder
from parley.compose.permissions import asks_host, find_nearest
from parley.compose.registry import dialect_name, get_profile, load_tool
from parley.engine.agents.registry import AgentRegistry
from parley.engine.session.config import SearchMode, ToolSearchPolicy
from parley.errors import UsageError
from parley.host import Host
from parley.observer import NULL_OBSERVER, Observer
from parley.permissions.base import Policy
from parley.protocol.base import Json
from parley.protocol.messages.requests import HookMatcher
from parley.protocol.options import CliOptions
from parley.settings.env_vars import is_truthy
from parley.tools.base import Tool, ToolRegistry, Workspace, customize_tool
from parley.tools.catalog import (
    BUILT_IN,
    JUDGED_BY_CALL,
    ToolSelection,
    canonical_name,
    find_traits,
    load_external,
    select_tools,
)
from parley.workspace.base import FileSearch, Scope, Worktrees
from parley.workspace.checkpoints import CheckpointStore
from parley.workspace.local import LocalFiles
from parley.workspace.process.processes import Processes

if TYPE_CHECKING:
    from parley.compose.sandbox import ConfigReader
    from parley.engine.session.config import ClientToolSpec
    from parley.hooks.base import Hook
    from parley.workspace.remote.client import RemoteFiles, RemoteWorkspace
    from parley.workspace.sandbox.commands import CommandSandbox
    from parley.workspace.web import Web

TOOL_SEARCH_VARIABLE = "ENABLE_TOOL_SEARCH"
SEARCH_TOOL = "ToolSearch"
OFF_VALUES = ("0", "false", "no", "off")
ListFolders = Callable[[], Iterable[str]]


def make_registry(launch: LaunchContext, options: CliOptions, agents: Callable[[], AgentRegistry]) -> ToolRegistry:
    """The tools the model may call, by the names they are listed under."""
    tasks = launch.environment.get("CLAUDE_CODE_ENABLE_TASKS")
    known = list_tools(launch)
    selection = ToolSelection(
        asked=launch.options.tools,
        denied=denied_tools(launch, known),
        has_person=asks_host(launch),
        has_memory=memory.memory_path(launch) is not None,
        is_brief=launch.options.brief,
        in_repository=launch.with_facts(lambda: find_checkout(launch.cwd, launch.tree)) is not None,
        has_input=has_more_input(launch.options),
        tasks=is_truthy(tasks) if tasks else None,
    )
    names = select_tools(known, selection)
    return ToolRegistry(names, lambda name: make_tool(name, agents, options), find_definition)


def has_more_input(options: CliOptions) -> bool:
    """Whether the client can send prompts while the session runs."""
    return options.input_format == "stream-json" or options.stdio or get_profile(options).over_stdio


def list_unknown_tools(launch: LaunchContext) -> list[str]:
    """A sentence for every name in `--tools` that no tool has."""
    known = ("default", *list_tools(launch)) if launch.options.tools else ()
    unknown = [name for name in launch.options.tools or () if name and canonical_name(name) not in known]
    found = [(name, find_nearest(name, known)) for name in unknown]
    return [
        f"option '--tools': there is no tool {name!a:.200}" + (f" (did you mean {near}?)" if near else "")
        for name, near in found
    ]


def tool_search_policy(launch: LaunchContext, first_party: bool, on_cloud: bool) -> ToolSearchPolicy:
    """When definitions of tools are deferred: ENABLE_TOOL_SEARCH. Raises UsageError.

    Without ToolSearch nothing is deferred: the model could not get at it.
    """
    mode, percent = read_tool_search(launch.environment.get(TOOL_SEARCH_VARIABLE) or "")
    asked = launch.options.tools
    is_left_out = asked is not None and not {SEARCH_TOOL, "default"} & set(asked)
    if is_left_out or SEARCH_TOOL in denied_tools(launch):
        return ToolSearchPolicy()
    return ToolSearchPolicy(
        mode=mode,
        percent=percent,
        is_first_party=first_party and not on_cloud,
        may_refer=not on_cloud and (first_party or mode == "always"),
    )


def read_tool_search(text: str) -> tuple[SearchMode, int]:
    """The mode, and the percentage for `auto`. Raises UsageError."""
    value = text.strip().lower()
    word, colon, number = value.partition(":")
    if word == "auto" and (not colon or (number.isdecimal() and int(number) <= 100)):
        return "auto", int(number) if colon else ToolSearchPolicy().percent
    modes: dict[str, SearchMode] = {"": "default", **dict.fromkeys(OFF_VALUES, "never")}
    if is_truthy(value):
        return "always", ToolSearchPolicy().percent
    if value not in modes:
        raise UsageError(
            f"{TOOL_SEARCH_VARIABLE} must be true, false, auto or auto:N (a percentage of the context window), "
            f"not {text!r}"
        )
    return modes[value], ToolSearchPolicy().percent


def list_tools(launch: LaunchContext | None = None) -> tuple[str, ...]:
    """The names of all tools, those of other packages last; `--safe-mode` leaves these out."""
    if launch is not None and launch.options.safe_mode:
        return BUILT_IN
    return (*BUILT_IN, *load_external().classes)


def make_tool(name: str, agents: Callable[[], AgentRegistry] | None = None, options: CliOptions | None = None) -> Tool:
    """Raises UsageError if there is no such tool."""
    tool = load_tool(name)()
    if options is not None:
        tool = customize_tool(tool, "with_options", options)
    return tool if agents is None else customize_tool(tool, "with_agents", lambda: agents().to_json())


def find_definition(name: str) -> Json | None:
    """The definition of a built-in tool; its description is None if it depends on the session."""
    return load_definitions().get(name)


@functools.cache
def load_definitions() -> dict[str, Json]:
    """Written by scripts/gen_tools.py."""
    found: dict[str, Json] = msgspec.json.decode(Path(tools.__file__).with_name("definitions.json").read_bytes())
    return found


def client_tools(launch: LaunchContext) -> Sequence[ClientToolSpec]:
    """The tools that the client runs. Raises UsageError."""
    options = launch.options
    given = options.client_tools
    if not given:
        return ()
    supported = get_profile(options).client_tools
    if supported == "never":
        dialect = dialect_name(options)
        raise UsageError(
            f"option '--client-tools' cannot be used with --dialect {dialect}, which cannot ask the client to run tools"
        )
    if options.input_format != "stream-json" and supported != "always":
        raise UsageError("option '--client-tools' needs --input-format stream-json: the client answers on stdin")
    from parley.engine.turn.client_tools import parse_client_tools_json

    inline = given.lstrip().startswith(("[", "{"))
    return parse_client_tools_json(
        given if inline else read_text_file(os.path.join(launch.host_folder, given), "--client-tools")
    )


def denied_tools(launch: LaunchContext, known: Iterable[str] = BUILT_IN) -> tuple[str, ...]:
    """What flags, settings and `--offline` deny. Rules with contents have no effect here: no tool has such a name."""
    options = launch.options
    rules = (rule.text for rule in launch.settings.merged.rules if rule.behavior == "deny")
    network = [name for name in known if options.offline and find_traits(name).uses_network]
    closed = [
        name for name in known if launch.is_restricted and name not in (options.tools or ()) and is_open_ended(name)
    ]
    blocks_writes = launch.settings.merged.is_on("permissions.blockWritesOutsideWorkingDirectories")
    moving = ("EnterWorktree", "ExitWorktree") if blocks_writes else ()  # they move the working directory
    return (*(options.disallowed_tools or ()), *rules, *network, *closed, *moving)


def is_open_ended(name: str) -> bool:
    """Whether a restricted session has a tool only on request: it runs commands, fetches, or has an unknown effect."""
    traits = find_traits(name)
    return traits.effect in JUDGED_BY_CALL or (traits.is_external and traits.effect == "unknown")


def make_workspace(
    launch: LaunchContext,
    session_id: str,
    observer: Observer = NULL_OBSERVER,
    options: CliOptions | None = None,
    files: SessionFiles | None = None,
    policy: Policy | None = None,
) -> Workspace:
    """The machine, as far as the options permit. Raises UsageError, SessionError."""
    children, hands = launch.settings.child_environment(), files or make_files(launch, session_id)
    remote = hands.remote
    processes = Processes() if remote is None else remote.processes
    return Workspace(
        options=options or CliOptions(),
        environment=children,
        files=hands.files,
        processes=processes,
        results_folder=results_folder(launch, session_id),
        new_id=launch.clock.new_short_id,
        open_web=make_web(launch, policy),
        plan_file=str(plan_file(launch, session_id)),
        clock=launch.clock.monotonic,
        open_search=make_search(children, folder_lister(launch, policy)) if remote is None else remote.open_search,
        observer=observer,
        find_sandbox=make_sandbox_finder(launch, session_id, policy, processes, hands.files),
    )


def folder_lister(launch: LaunchContext, policy: Policy | None) -> ListFolders:
    """Lists the folders that the session, or a command in the sandbox, can change at the time of the call."""

    @functools.cache
    def open_reader() -> ConfigReader | None:
        from parley.compose.sandbox import ConfigReader

        if policy is None:
            return None
        settings = launch.settings
        return ConfigReader(launch, lambda: settings.merged, policy.list_paths_and_hosts, policy, asks=False)

    def list_changeable() -> list[str]:
        from parley.compose.sandbox import private_root

        reader = open_reader()
        listed = [str(launch.cwd)] if reader is None else reader.list_writable()
        return [*listed, str(private_root(launch))]

    return list_changeable


def make_sandbox_finder(
    launch: LaunchContext,
    session_id: str,
    policy: Policy | None,
    processes: Processes,
    files: LocalFiles | RemoteFiles,
) -> Callable[[Scope], CommandSandbox | None]:
    """The sandbox is loaded for the first command that may run in it. A remote workspace has none."""

    @functools.cache
    def open_sandbox() -> CommandSandbox | None:
        if policy is None or not isinstance(files, LocalFiles):
            return None
        from parley.compose.sandbox import make_sandbox

        sandbox = make_sandbox(launch, session_id, policy, asks=asks_host(launch))
        processes.closers.append(sandbox.close)
        files.on_change = sandbox.accept
        return sandbox

    def find_sandbox(scope: Scope) -> CommandSandbox | None:
        is_enabled = launch.options.require_sandbox or launch.settings.merged.is_on("sandbox.enabled")
        return open_sandbox() if is_enabled or scope.confined else None

    return find_sandbox


class SessionFiles(NamedTuple):
    """The files of a session, and the remote workspace that they are in."""

    files: LocalFiles | RemoteFiles
    remote: RemoteWorkspace | None = None


def make_files(launch: LaunchContext, session_id: str) -> SessionFiles:
    """Raises SessionError if a remote workspace does not answer."""
    forget = launch.options.no_session_persistence
    if launch.remote is not None:
        opened = launch.remote.open(session_id, keeps_history=not forget)
        return SessionFiles(opened.files, opened)
    # The checkpoints that are deleted at the end must not be those of the session that was resumed.
    history = launch.clock.new_uuid() if forget else session_id
    checkpoints, tree = CheckpointStore(file_history(launch, history)), None
    if is_truthy(launch.environment.get("PARLEY_SNAPSHOT_TREE")):
        from parley.workspace.tree_snapshot import TreeSnapshot

        tree = TreeSnapshot(launch.cwd, checkpoints, [str(launch.config)])
    files = LocalFiles(
        cwd=launch.cwd,
        checkpoints=checkpoints,
        new_id=launch.clock.new_short_id,
        tree=tree,
        delete_history_at_end=forget,
    )
    return SessionFiles(files)


def make_worktrees(
    workspace: Workspace, list_changeable: ListFolders, remote: RemoteWorkspace | None = None
) -> Worktrees:
    if remote is not None:
        return remote.worktrees
    from parley.workspace.git import Git
    from parley.workspace.worktrees import GitWorktrees

    return GitWorktrees(Git(workspace.processes, workspace.environment, list_changeable))


def make_search(environment: dict[str, str], list_changeable: ListFolders) -> Callable[[], FileSearch]:
    @functools.cache
    def open_search() -> FileSearch:
        from parley.workspace.search.search import LocalSearch

        return LocalSearch(environment, list_changeable)

    return open_search


def make_web(launch: LaunchContext, rules: Policy | None) -> Callable[[], Web]:
    """Access to the network, as far as the environment, the settings and the rules permit. Raises UsageError."""
    environment = launch.environment
    search_url = environment.get("PARLEY_SEARCH_URL") or None
    if search_url and "{query}" not in search_url:
        raise UsageError("PARLEY_SEARCH_URL must contain {query}, which is replaced by the query")
    private = is_truthy(environment.get("PARLEY_WEBFETCH_ALLOW_PRIVATE"))

    def find_rule(address: str) -> str:
        from parley.permissions.patterns import matches_rule_host
        from parley.workspace.url import list_equal_addresses, read_address

        found = None if rules is None else rules.list_paths_and_hosts()
        hosts = () if found is None else (*found.no_hosts, *found.asked_hosts)
        names = list_equal_addresses(read_address(address) or address)
        about = [host for host in hosts if host != "*" and any(matches_rule_host(host, name) for name in names)]
        return f"WebFetch(domain:{about[0]})" if about else ""

    @functools.cache
    def open_web() -> Web:
        from parley.workspace.web import FetchPolicy, Web

        policy = FetchPolicy(
            allow_private=private or launch.settings.merged.get("webFetchAllowPrivate") is True,
            offline=launch.options.offline,
            find_rule=find_rule,
        )
        return Web(policy, ca_file=environment.get("NODE_EXTRA_CA_CERTS"), search_url=search_url)

    return open_web


def callback_hooks(host: Host, hooks: Mapping[str, Sequence[HookMatcher]]) -> Sequence[Hook]:
    """The hooks that a host registers."""
    from parley.hooks.extension import build_callbacks

    return build_callbacks(host, hooks)


def extension_hooks(launch: LaunchContext) -> Sequence[Hook]:
    """The hooks of other packages. Raises UsageError if one cannot be loaded: it may be a guard."""
    if launch.options.safe_mode or not entry_points.discover("parley.hooks"):
        return ()
    from parley.hooks.extension import load_extension_hooks

    try:
        return load_extension_hooks()
    except entry_points.ExtensionError as exc:
        raise UsageError(
            f"{exc}; the session does not start, because the hook may enforce a restriction "
            "(uninstall the package, or use --safe-mode, which loads no hooks from packages)"
        ) from None
