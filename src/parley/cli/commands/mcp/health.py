"""`parley mcp list` and `get`: show the configured servers, and connect to them to check that they work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from parley.cli.commands.launch import open_launch
from parley.cli.commands.mcp.edit import list_known, open_files
from parley.cli.commands.subcommand import GivenArgs, write_json, write_lines
from parley.compose.launch_context import LaunchContext
from parley.compose.mcp import server_sources
from parley.compose.plugins import PluginLoader
from parley.compose.setup.servers import SCOPES, pending_servers
from parley.compose.tools import make_workspace
from parley.errors import UsageError
from parley.host import HostGone
from parley.mcp.base import ServerSources, ServerSpec
from parley.mcp.server_connection import McpServer, method_not_found
from parley.models.endpoint import without_userinfo
from parley.protocol.base import Json, Struct
from parley.settings.base import SettingsWriteError, printable

CONNECTED = "✔ Connected"
MAX_REASON_CHARS = 300


class CheckedServer(Struct, frozen=True, kw_only=True):
    """A configured server and what connecting to it showed."""

    spec: ServerSpec
    status: str
    """`connected`, `failed`, `needs-auth`, or `pending-approval`, which is not connected to."""
    reason: str = ""
    tools: tuple[str, ...] = ()

    def describe_status(self, folder: str) -> str:
        texts = {
            "connected": CONNECTED,
            "needs-auth": "! Needs authentication",
            "pending-approval": f"⏸ Pending approval (run `parley trust {folder}` to approve)",
        }
        return texts.get(self.status, "✘ Failed to connect")

    def describe_target(self) -> str:
        shown = self.spec.shown
        if "url" in shown:
            return f"{without_userinfo(str(shown['url']))} ({self.spec.kind.upper()})"
        return " ".join([str(shown.get("command", "")), *shown.get("args", [])])

    def json(self) -> Json:
        shown = dict(self.spec.shown)
        if "url" in shown:
            shown["url"] = without_userinfo(str(shown["url"]))
        return {
            "name": self.spec.name,
            "scope": self.spec.source,
            **shown,
            "status": self.status,
            **({"error": self.reason} if self.reason else {}),
            **({"tools": list(self.tools)} if self.status == "connected" else {}),
        }


def list_servers(given: GivenArgs) -> int:
    """Raises UsageError."""
    launch = open_launch()
    servers, _ = asyncio.run(check_servers(launch))
    if given.has("json"):
        return write_json([server.json() for server in servers])
    if not servers:
        return write_lines(["No MCP servers configured. Use `parley mcp add` to add a server."])
    return write_lines(["Checking MCP server health…", "", *(format_line(server, launch.cwd) for server in servers)])


def format_line(server: CheckedServer, folder: str) -> str:
    reason = f" — {server.reason}" if server.reason else ""
    return printable(
        f"{server.spec.name}: {server.describe_target()} - {server.describe_status(folder)}{reason}", 2_000
    )


def get(given: GivenArgs) -> int:
    """Raises UsageError."""
    (name,) = given.words
    launch = open_launch()
    found, known = asyncio.run(check_servers(launch, name))
    if not found:
        raise UsageError(f'No MCP server named "{name}". {list_known(known)}')
    (server,) = found
    entry = find_entry(launch, server.spec)
    if given.has("json"):
        names_only = {key: sorted(entry[key]) for key in ("env", "headers") if isinstance(entry.get(key), dict)}
        return write_json({**server.json(), **names_only})
    return write_lines(format_details(server, entry, launch.cwd))


def format_details(server: CheckedServer, entry: Json, folder: str) -> Iterable[str]:
    """Values of variables and headers are not shown: they may be secrets."""
    spec = server.spec
    yield f"{spec.name}:"
    yield f"  Scope: {SCOPES.get(spec.source, spec.source)}"
    yield f"  Status: {server.describe_status(folder)}"
    if server.reason:
        yield f"  Issue: {printable(server.reason, MAX_REASON_CHARS)}"
    yield f"  Type: {spec.kind}"
    if "url" in spec.shown:
        yield f"  URL: {printable(without_userinfo(str(spec.shown['url'])), 2_000)}"
        yield from format_names("Headers", entry.get("headers"), ": ")
    else:
        yield f"  Command: {printable(str(spec.shown.get('command', '')), 2_000)}"
        yield f"  Args: {printable(' '.join(spec.shown.get('args', [])), 2_000)}"
        yield from format_names("Environment", entry.get("env"), "=")
    if server.tools:
        yield f"  Tools: {printable(', '.join(server.tools), 2_000)}"
    if spec.source in SCOPES:
        yield ""
        yield f"To remove this server, run: parley mcp remove {spec.name} -s {spec.source}"


def format_names(title: str, values: Any, separator: str) -> Iterable[str]:
    yield f"  {title}:"
    for name in values if isinstance(values, dict) else ():
        yield f"    {printable(name)}{separator}***"


def find_entry(launch: LaunchContext, spec: ServerSpec) -> Json:
    """The entry of a server as it is written; empty if it is in none of the three files."""
    try:
        entry = open_files(launch).read().get(spec.source, {}).get(spec.name, {})
    except SettingsWriteError:  # it was reported when the servers were read
        return {}
    return entry if isinstance(entry, dict) else {}


async def check_servers(launch: LaunchContext, name: str | None = None) -> tuple[list[CheckedServer], list[str]]:
    """Connect to the servers that a session here would have, or to one; returns them and all names.

    Raises UsageError.
    """
    workspace = make_workspace(launch, launch.clock.new_uuid())
    sources = server_sources(launch, workspace, PluginLoader(launch).plugins)
    pending = pending_servers(launch)
    names = [spec.name for spec in (*sources.specs, *pending)]
    try:
        wanted = [spec for spec in sources.specs if name in (None, spec.name)]
        checked = await asyncio.gather(*(check_server(sources, spec) for spec in wanted))
    finally:
        await workspace.processes.close()
    known = {server.spec.name for server in checked}
    waiting = [spec for spec in pending if spec.name not in known and name in (None, spec.name)]
    return [*checked, *(CheckedServer(spec=spec, status="pending-approval") for spec in waiting)], names


async def check_server(sources: ServerSources, spec: ServerSpec) -> CheckedServer:
    if spec.kind == "sdk":
        return CheckedServer(
            spec=spec,
            status="failed",
            reason="the server runs in the client of a session, so it cannot be checked here",
        )
    server = McpServer(spec, lambda: sources.open_transport(spec, NoHost()), NoListener(), sources.timeouts, {})
    server.start()
    await server.settled.wait()
    result = CheckedServer(
        spec=spec,
        status=server.status,
        reason=" ".join(server.reason.split())[:MAX_REASON_CHARS],
        tools=tuple(str(tool["name"]) for tool in server.tools),
    )
    await server.close()
    return result


class NoListener:
    """A `ServerListener` that answers no requests of servers."""

    def on_change(self, server: McpServer) -> None:
        pass

    async def on_request(self, server: McpServer, method: str, params: Json) -> Json:
        raise method_not_found(method)

    def on_notification(self, server: McpServer, method: str, params: Json) -> None:
        pass


class NoHost:
    """A `Host` without a client."""

    def send(self, *messages: object) -> None:
        pass

    async def request(self, request: object, request_id: str | None = None) -> Any:
        raise HostGone("there is no client that could answer requests")

    async def drain(self) -> bool:
        return True

    def pending_requests(self) -> list[Any]:
        return []
