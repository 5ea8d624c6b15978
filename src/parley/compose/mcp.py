"""The MCP servers of a session: their transports, their logins, and how programs of servers and hooks are started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec import structs

from parley.compose.launch_context import LaunchContext
from parley.compose.permissions import prompt_tool
from parley.compose.registry import TRANSPORTS
from parley.compose.tools import denied_tools
from parley.host import Host
from parley.mcp.base import (
    Challenge,
    ConnectionLost,
    LoginRefused,
    ServerDeclaration,
    ServerLogin,
    ServerParser,
    ServerSources,
    ServerSpec,
    ServerTransport,
    build_sources,
)
from parley.models.endpoint import is_loopback
from parley.protocol.base import Json
from parley.settings.base import Plugin, printable
from parley.settings.env_vars import read_int
from parley.tools.base import Workspace
from parley.version import how_to_install
from parley.workspace import private_files
from parley.workspace.base import Scope
from parley.workspace.process.processes import PreparedCommand, RunningCommand, Take

if TYPE_CHECKING:
    import httpx2

    from parley.compose.certificates import Trust


class ConfinedStarter:
    """Starts programs of one kind, those of the project or those of others."""

    def __init__(self, workspace: Workspace, kind: Literal["hook", "server"], *, by_project: bool) -> None:
        self._workspace = workspace
        self._kind: Literal["hook", "server"] = kind
        self._by_project = by_project

    async def find_program(self, name: str, search_path: str) -> str | None:
        return await self._workspace.processes.find_program(name, search_path)

    async def start(self, command: PreparedCommand, take: Take, take_errors: Take | None = None) -> RunningCommand:
        """Raises ToolError if it cannot be started, or must be confined and cannot be."""
        sandbox = self._workspace.find_sandbox(Scope())
        place = None if sandbox is None else await sandbox.place_program(self._kind, by_project=self._by_project)
        if place is not None:
            environment = place.adapt(command.environment)
            command = structs.replace(command, environment=environment, sandbox=place.confinement)
        return await self._workspace.processes.start(command, take, take_errors)


class ServerAccess(NamedTuple):
    """What a server at a URL is reached with."""

    proxy: str | None
    trust: Trust
    logins: LoginFile


TRANSPORT_OPENERS: dict[str, Callable[[Any, ServerSpec, Host, Workspace, str, ServerAccess], ServerTransport]] = {
    "sdk": lambda cls, spec, host, workspace, project, access: cls(spec.name, host),
    "stdio": lambda cls, spec, host, workspace, project, access: cls(
        spec, ConfinedStarter(workspace, "server", by_project=spec.by_project), project, workspace.environment
    ),
    "sse": lambda cls, spec, host, workspace, project, access: cls(spec, *access),
    "http": lambda cls, spec, host, workspace, project, access: cls(spec, *access),
}
"""The working directory is the project folder, so a restarted server is the same after the model changed directory."""

MCP_PACKAGES = ("mcp", "mcp_types")
MCP_NEEDED = f"servers reached by URL need the package mcp 2.3 or later: {how_to_install('mcp')}"


def find_server_proxy(url: str, environment: Mapping[str, str]) -> str | None:
    """The proxy for a server, if the environment names one."""
    from parley.models.http.connection import Address
    from parley.models.http.proxy import find_proxy

    try:
        return find_proxy(Address.parse(url), environment)
    except ValueError:  # opening the connection reports what is wrong
        return None


def server_sources(launch: LaunchContext, workspace: Workspace, plugins: Callable[[], list[Plugin]]) -> ServerSources:
    """Raises UsageError."""
    options = launch.options
    given = () if options.safe_mode else options.mcp_config or ()
    strict = options.strict_mcp_config or options.safe_mode
    written, problems = launch.with_facts(lambda: launch.settings.servers(given, launch.host_folder, strict=strict))
    own = {name for one in written for name in one.servers}
    of_plugins = () if options.strict_mcp_config else [plugin_servers(plugin) for plugin in plugins() if plugin.servers]
    written += of_plugins
    maker = ServerParser(launch.environment, workspace.environment, make_server_check(launch))
    found = maker.gather(written)
    for error in (*problems, *found.problems):
        launch.warn(error)

    def open_access(spec: ServerSpec) -> ServerAccess:
        """Raises ConnectionLost if the session must not reach the server."""
        if options.offline and spec.url and not is_loopback(spec.url):
            raise ConnectionLost("this session runs with --offline, and the server is not on this machine")
        from parley.compose.certificates import make_trust

        proxy = find_server_proxy(spec.url, launch.environment) if spec.url else None
        return ServerAccess(proxy, make_trust(launch.environment, launch.warn), open_login_file(launch))

    async def open_wire(spec: ServerSpec, host: Host) -> ServerTransport:
        access = open_access(spec)
        # A transport's package may take a second to load; the loop must not wait for it.
        cls = load_transport(spec.kind) if spec.kind == "sdk" else await asyncio.to_thread(load_transport, spec.kind)
        made: ServerTransport = TRANSPORT_OPENERS[spec.kind](cls, spec, host, workspace, launch.cwd, access)
        return made

    async def start_login(spec: ServerSpec, redirect_uri: str | None, challenge: Challenge | None) -> ServerLogin:
        return await begin_login(spec, redirect_uri, challenge, *open_access(spec))

    async def forget_login(spec: ServerSpec) -> None:
        await delete_login(spec, open_login_file(launch))

    # The tool that answers permission questions is not for the model.
    denied = (*denied_tools(launch), *filter(None, [prompt_tool(launch)]))
    sources = build_sources(
        maker, found.specs, open_wire, number=lambda name: read_int(launch.environment, name), denied=denied
    )
    names = frozenset(name for one in of_plugins for name in one.servers) - own
    return structs.replace(sources, plugin_servers=names, start_login=start_login, forget_login=forget_login)


def parse_plugin_servers(
    launch: LaunchContext, workspace: Workspace, plugins: Iterable[Plugin]
) -> tuple[ServerSpec, ...]:
    """The servers of plugins that are loaded into a running session."""
    if launch.options.strict_mcp_config:
        return ()
    parser = ServerParser(launch.environment, workspace.environment, make_server_check(launch))
    found = parser.gather([plugin_servers(plugin) for plugin in plugins if plugin.servers])
    for error in found.problems:
        launch.warn(error)
    return found.specs


def make_server_check(launch: LaunchContext) -> Callable[[ServerSpec], str]:
    """Return a function that says why settings forbid a server; empty if they do not."""

    def check(spec: ServerSpec) -> str:
        merged = launch.settings.merged if spec.by_project else launch.settings.without_project
        # A server that the client runs itself is not started by us.
        locked = "" if spec.kind == "sdk" or not spec.added_by else merged.find_lock("mcp")
        if locked and (spec.added_by == "client" or merged.is_locked("mcp")):
            return f"managed settings do not allow it ({locked})"
        if "allowedMcpServers" not in merged.values and "deniedMcpServers" not in merged.values:
            return ""
        from parley.settings.policy import McpServerRules

        key = McpServerRules.from_settings(merged).find_obstacle(spec)
        return f"the settings do not allow this server ({key})" if key else ""

    return check


def load_transport(kind: str) -> Any:
    """The class of a kind of transport. Raises ConnectionLost if the extra that it needs is not installed."""
    module, _, name = TRANSPORTS[kind].partition(":")
    try:
        return getattr(import_module(module), name)
    except ImportError as exc:  # also for names that an older version of the package does not have
        if (exc.name or "").partition(".")[0] not in MCP_PACKAGES:
            raise
        raise ConnectionLost(MCP_NEEDED) from None


def plugin_servers(plugin: Plugin) -> ServerDeclaration:
    if plugin.data:
        from parley.settings.files.installed_plugins import make_data_folder

        make_data_folder(plugin.data)
    return ServerDeclaration(source="dynamic", path=printable(plugin.path), servers=plugin.servers)


FILE = "mcp-logins.json"


class LoginFile:
    """The tokens of all servers, in a file that only its owner can read."""

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn

    def read(self) -> Json:
        try:
            found = msgspec.json.decode(private_files.read(self._path))
        except FileNotFoundError:
            return {}
        except (OSError, private_files.UnsafeFile, msgspec.DecodeError) as exc:
            self._warn(f"cannot read the MCP logins in {self._path}: {exc}")
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, tokens: Json) -> None:
        """Raises LoginRefused."""
        try:
            private_files.replace(self._path, msgspec.json.encode(tokens))
        except (OSError, private_files.UnsafeFile) as exc:
            raise LoginRefused(f"the tokens cannot be stored in {self._path}: {exc}") from None


def open_login_file(launch: LaunchContext) -> LoginFile:
    return LoginFile(launch.config / FILE, launch.warn)


async def begin_login(
    spec: ServerSpec,
    redirect_uri: str | None,
    challenge: Challenge | None,
    proxy: str | None,
    trust: Trust,
    file: LoginFile,
) -> ServerLogin:
    """Raises LoginRefused or ConnectionLost."""
    login_class, make_client = await asyncio.to_thread(load_login)
    try:
        context = await asyncio.to_thread(trust)
    except OSError as exc:
        raise ConnectionLost(f"cannot read the certificates in SSL_CERT_FILE or SSL_CERT_DIR: {exc}") from None

    def connect(auth: httpx2.Auth) -> httpx2.AsyncClient:
        return make_client(spec, proxy, context, auth)

    login: ServerLogin = await login_class.start(spec, connect, file, redirect_uri, challenge)
    return login


async def delete_login(spec: ServerSpec, file: LoginFile) -> None:
    """Raises LoginRefused."""
    tokens = file.read()
    # The key is that of mcp/oauth.py, which need not be loaded to delete an entry.
    if tokens.pop(f"{spec.name} {spec.url}", None) is not None:
        file.write(tokens)


def load_login() -> tuple[Any, Callable[..., httpx2.AsyncClient]]:
    """Import the package, which takes most of a second. Raises ConnectionLost if it is not installed."""
    load_transport("http")
    from parley.mcp.oauth import Login
    from parley.mcp.remote import make_login_client

    return Login, make_login_client
