"""`parley mcp add`, `add-json`, `remove`, `reset-project-choices`: change the files that declare servers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from parley.cli.commands.catalog import VARIABLE
from parley.cli.commands.subcommand import GivenArgs, Subcommand, open_launch
from parley.compose.launch_context import LaunchContext
from parley.compose.mcp import server_sources
from parley.compose.plugins import PluginLoader
from parley.compose.setup.extensions import SCOPES, ServerFiles, parse_entry, pending_servers
from parley.compose.tools import make_workspace
from parley.errors import UsageError
from parley.host import NoHost
from parley.mcp.base import LoginRefused, ServerSources, ServerSpec
from parley.mcp.server_connection import McpServer, method_not_found
from parley.models.endpoint import without_userinfo
from parley.protocol.base import Json, Struct
from parley.settings.base import SettingsWriteError, printable

NAME = re.compile(r"[A-Za-z0-9_-]+")
TRANSPORTS = {"stdio": "stdio", "http": "http", "streamable-http": "http", "sse": "sse"}
CONNECTED = "✔ Connected"
MAX_REASON_CHARS = 300


class ServersCommand(Subcommand):
    """The actions that change or check what files declare. They raise UsageError, SettingsWriteError."""

    def __init__(self, given: GivenArgs) -> None:
        super().__init__(given)
        self.launch = open_launch()
        self.files = ServerFiles(self.launch.user_file, self.launch.cwd)
        self.scope = given.one("scope")

    def add(self, name: str, target: str, *args: str) -> int:
        given = self.given
        transport = given.one("transport", "stdio")
        if transport not in TRANSPORTS:
            raise UsageError(f"unknown transport {transport!r} (choose from stdio, http, sse)")
        if TRANSPORTS[transport] == "stdio":
            if not given.has("transport") and re.match(r"https?://", target):
                raise UsageError(
                    f"{target} is a URL: add `--transport http` (or sse), or `--transport stdio` for a command"
                )
            if given.has("header"):
                raise UsageError(
                    "option '--header' can be used only with servers that have a URL; for a command, use `-e KEY=VALUE`"
                )
            env = parse_variables(given.all("env"))
            entry: Json = {"type": "stdio", "command": target, "args": [*args], "env": env}
            text = f"Added stdio MCP server {name} with command: {' '.join([target, *args])}"
        else:
            if given.has("env") or args:
                what = "option '--env'" if given.has("env") else f"the argument {args[0]!r}"
                raise UsageError(
                    f"{what} can be used only with servers that are started by a command (--transport stdio)"
                )
            headers = parse_headers(given.all("header"))
            entry = {"type": TRANSPORTS[transport], "url": target, **({"headers": headers} if headers else {})}
            text = f"Added {TRANSPORTS[transport].upper()} MCP server {name} with URL: {without_userinfo(target)}"
        return self.store(name, entry, text)

    def add_json(self, name: str, text: str) -> int:
        try:
            entry = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise UsageError(f"the configuration of {name!r} is not valid JSON: {exc}") from None
        if not isinstance(entry, dict):
            raise UsageError(f"the configuration of {name!r} must be a JSON object")
        if "type" not in entry and "command" not in entry and "url" not in entry:
            raise UsageError(f"the configuration of {name!r} needs `command` or `url`")
        kind = entry.get("type") or ("stdio" if "command" in entry else "http")
        return self.store(name, entry, f"Added {kind} MCP server {name}")

    def store(self, name: str, entry: Json, text: str) -> int:
        """Check an entry and write it."""
        scope = self.scope or "local"
        if NAME.fullmatch(name) is None:
            raise UsageError(f"invalid name {name!r}: names consist of letters, digits, hyphens and underscores")
        problem = parse_entry(name, entry, scope).problem
        if problem:
            raise UsageError(f"invalid MCP server {name!r}: {problem}")
        self.files.add(scope, name, entry)
        trust = [f"The server takes effect after `parley trust {self.files.cwd}`"] if scope == "project" else []
        return self.report(name, scope, f"{text} to {scope} config", *trust)

    def report(self, name: str, scope: str, done: str, *more: str) -> int:
        lines = [done, f"File modified: {self.files.describe(scope)}", *more]
        return self.write({"name": name, "scope": scope, "file": str(self.files.path(scope))}, lines)

    def remove(self, name: str) -> int:
        wanted, known = self.scope, self.files.read()
        having = [scope for scope in SCOPES if name in known[scope] and wanted in ("", scope)]
        if not having:
            names = list_known(name for servers in known.values() for name in servers)
            raise UsageError(f'No MCP server named "{name}"{f" in {wanted} scope" if wanted else f". {names}"}')
        if len(having) > 1:
            ways = "".join(f"\n  parley mcp remove {name} -s {scope}" for scope in having)
            raise UsageError(f'MCP server "{name}" exists in several scopes; choose one:{ways}')
        (scope,) = having
        self.files.remove(scope, name)
        return self.report(name, scope, f'Removed MCP server "{name}" from {scope} config')

    def logout(self, name: str) -> int:
        workspace = make_workspace(self.launch, self.launch.clock.new_uuid())
        sources = server_sources(self.launch, workspace, PluginLoader(self.launch).plugins)
        specs = {spec.name: spec for spec in sources.specs}
        if name not in specs:
            raise UsageError(f'No MCP server named "{name}". {list_known(specs)}')
        if not specs[name].url:
            raise UsageError(f'MCP server "{name}" has no login: it is not a remote server')
        try:
            asyncio.run(forget_login(sources, specs[name]))
        except LoginRefused as exc:
            raise UsageError(f"{name}: {exc}") from None
        return self.write({"name": name}, [f'Deleted the login of MCP server "{name}"'])

    def reset_project_choices(self) -> int:
        names = self.launch.settings.forget_servers()
        self.files.forget_choices()
        shown = f": {', '.join(names)}" if names else ""
        return self.write({"reset": names}, [f"The servers of .mcp.json are no longer trusted{shown}"])

    def list(self) -> int:
        servers, _ = asyncio.run(check_servers(self.launch))
        lines = ["Checking MCP server health…", "", *(format_line(server, self.launch.cwd) for server in servers)]
        if not servers:
            lines = ["No MCP servers configured. Use `parley mcp add` to add a server."]
        return self.write([server.json() for server in servers], lines)

    def get(self, name: str) -> int:
        found, known = asyncio.run(check_servers(self.launch, name))
        if not found:
            raise UsageError(f'No MCP server named "{name}". {list_known(known)}')
        (server,) = found
        entry = self.find_entry(server.spec)
        names_only = {key: sorted(entry[key]) for key in ("env", "headers") if isinstance(entry.get(key), dict)}
        return self.write({**server.json(), **names_only}, format_details(server, entry, self.launch.cwd))

    def find_entry(self, spec: ServerSpec) -> Json:
        """The entry of a server as it is written; empty if it is in none of the three files."""
        try:
            entry = self.files.read().get(spec.source, {}).get(spec.name, {})
        except SettingsWriteError:  # it was reported when the servers were read
            return {}
        return entry if isinstance(entry, dict) else {}


async def forget_login(sources: ServerSources, spec: ServerSpec) -> None:
    """Raises LoginRefused."""
    assert sources.forget_login is not None
    await sources.forget_login(spec)


def list_known(names: Iterable[str]) -> str:
    found = ", ".join(sorted(set(names)))
    return f"Configured servers: {found}" if found else "No servers are configured"


def parse_variables(texts: Sequence[str]) -> dict[str, str]:
    """Raises UsageError."""
    wrong = [text for text in texts if re.match(VARIABLE, text) is None]
    if wrong:
        raise UsageError(f"invalid environment variable {wrong[0].partition('=')[0]!r}: write -e KEY=VALUE")
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def parse_headers(texts: Sequence[str]) -> dict[str, str]:
    """Raises UsageError."""
    pairs = [text.partition(":") for text in texts]
    wrong = [name for name, colon, _ in pairs if not colon or not name.strip()]
    if wrong:
        raise UsageError(f'invalid header {wrong[0][:20]!r}: write -H "Name: value"')
    return {name.strip(): value.strip() for name, _, value in pairs}


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


def format_line(server: CheckedServer, folder: str) -> str:
    reason = f" — {server.reason}" if server.reason else ""
    return printable(
        f"{server.spec.name}: {server.describe_target()} - {server.describe_status(folder)}{reason}", 2_000
    )


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
