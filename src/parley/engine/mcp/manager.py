"""The MCP servers of a session: start, wait, list, call, replace, close.

Servers connect concurrently in the background, after `initialize` is answered; only those that the
client runs start earlier, as in recordings of Claude Code. A turn waits briefly for servers that are
still connecting, longer if the input has ended, and for a required server until it has connected or
failed. Changes are reported to the client as messages, to the user on stderr, and to the model as tools.

See also: `requests.py`, `server_tool.py`; one server is `parley.mcp.server_connection.McpServer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.hooks.registry import HookRegistry
from parley.engine.session.config import SessionConfig
from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Outbox
from parley.engine.session.prompts import Prompt, PromptQueue
from parley.errors import ToolError
from parley.mcp.base import PREFIX, ServerSpec, ServerTransport
from parley.protocol.base import Json, UnsetType
from parley.protocol.messages import requests
from parley.protocol.messages.system import ServerState

if TYPE_CHECKING:
    from parley.engine.mcp.requests import Logins, ParkedManifests
    from parley.engine.mcp.server_tool import ResourceReader, StatusNotifier
    from parley.mcp.server_connection import McpServer

RESOURCE_TOOLS = ("ListMcpResourcesTool", "ReadMcpResourceTool")
DIRECTORY_TOOL = "ReadMcpResourceDirTool"
WAIT_TOOL = "WaitForMcpServers"
FAILED_STATES = ("failed", "needs-auth")
REFRESH_WAIT_SECONDS = 1.0


class ServerManager:
    def __init__(
        self,
        config: SessionConfig,
        outbox: Outbox,
        journal: Journal,
        prompt_queue: PromptQueue,
        waiting: Callable[[], AbstractContextManager[None]],
        hooks: HookRegistry,
    ) -> None:
        """`waiting` is entered while the user is asked for an elicitation."""
        self._config = config
        self._outbox = outbox
        self._journal = journal
        self._prompt_queue = prompt_queue
        self._waiting = waiting
        self._hooks = hooks
        self._sources = config.extensions.mcp
        self._servers: dict[str, McpServer] = {}
        self._hurry = asyncio.Event()
        self._dynamic: set[str] = set()
        """Servers that the client added during the session."""
        self._of_plugins = set(self._sources.plugin_servers)
        self._answered: set[str] = set()
        """Servers whose errors are reported in a control response."""
        self._has_started = False
        self._has_late_servers = False
        """Whether a turn has started without a server that was still connecting."""
        self.pending = ServerWaiter(self._servers, self._hurry)
        self._notifier: StatusNotifier | None = None
        """Reports changes; None before the first server is made."""
        self._tools: frozenset[str] = frozenset()
        self._readers: Mapping[str, ResourceReader] = {}
        self._warned: set[str] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        """Servers of subagents and plugins that are closing."""
        self._logins: Logins | None = None
        self._manifests: ParkedManifests | None = None
        """The handshakes that the client has performed in advance."""
        self.parked: dict[str, str] = {}
        """What became of each of them."""
        self._error = ""
        """Why a prompt of the turn could not be expanded."""
        self._unstarted = list(self._sources.specs)
        """Servers that are made when they are first needed, after `initialize` is answered."""

    def __iter__(self) -> Iterator[McpServer]:
        self._load()
        return iter(self._servers.values())

    def find(self, name: str) -> McpServer | None:
        self._load()
        return self._servers.get(name)

    def _load(self) -> None:
        specs, self._unstarted = self._unstarted, []
        if len(specs) > 1:
            from parley.mcp.content import normalize

            # Rules use normalized names: of `a.b` and `a_b` they mean the second, whatever the order.
            specs.sort(key=lambda spec: normalize(spec.name) != spec.name)
        for spec in specs:
            if spec.name not in self._servers:
                self._add(spec)

    def _add(self, spec: ServerSpec) -> McpServer:
        from parley.engine.mcp.server_tool import StatusNotifier

        self._notifier = self._notifier or StatusNotifier(self._outbox.send, self._config.warn)
        if not spec.problem and (reason := self._name_conflict(spec.name, self.names())):
            spec = msgspec.structs.replace(spec, problem=reason)
        server = self._servers[spec.name] = self.make_server(spec, self.on_change)
        return server

    def make_server(self, spec: ServerSpec, on_change: Callable[[McpServer], None]) -> McpServer:
        """Create a server that is not started and not listed here."""
        from parley.engine.mcp.requests import ServerRequests
        from parley.mcp.server_connection import McpServer

        if spec.tool_policies:
            self._add_policies(spec.name, spec.tool_policies)
        handler = ServerRequests(self._config.cwd, self._outbox, self._journal, self._waiting, self._hooks, on_change)
        return McpServer(
            spec,
            lambda: self._open_transport(spec),
            handler,
            self._sources.timeouts,
            handler.capabilities,
        )

    async def _open_transport(self, spec: ServerSpec) -> ServerTransport:
        """Raises ConnectionLost."""
        opened = await self._sources.open_transport(spec, self._outbox.host)
        return opened if self._manifests is None else self._manifests.wrap(spec.name, opened)

    def _add_policies(self, server: str, policies: Mapping[str, str]) -> None:
        """Make the client's policies for tools of a server rules of the session."""
        from parley.mcp.content import qualify

        rules = {qualify(server, tool): policy for tool, policy in policies.items()}
        self._config.permissions.policy.add_server_rules(server, rules)

    def names(self) -> list[str]:
        """The names in use. A refused server does not hold its name."""
        self._load()
        return [name for name, server in self._servers.items() if not server.spec.problem]

    def _name_conflict(self, name: str, others: Iterable[str]) -> str:
        """Why a name cannot be used beside others; empty if it can."""
        from parley.mcp.content import clash_reason, find_clash

        other = find_clash(name, others)
        return "" if other is None else clash_reason(name, other)

    def add_agent_servers(self, specs: Sequence[ServerSpec]) -> None:
        """Add the servers of the agent that the session runs as. Names that are taken are skipped."""
        self._unstarted += [spec for spec in specs if spec.name not in {one.name for one in self._unstarted}]
        if self._servers or self._has_started:
            self._load()
        if self._has_started:
            for server in self:
                server.start()

    # Start.

    def start_host_servers(self, request: requests.Initialize) -> bool:
        """Start the servers that the client runs. Returns whether there are any."""
        takes_any = self._sources.takes_host_servers
        named = request.sdkMcpServers if takes_any and isinstance(request.sdkMcpServers, list) else []
        configs = request.sdkMcpServerConfigs if isinstance(request.sdkMcpServerConfigs, dict) else None
        if not named and not any(spec.kind == "sdk" for spec in self._unstarted) and not self._servers:
            return False
        self._load()
        if named:
            known = [name for name in named if name in self._servers]
            for spec in self._sources.parser.build_host_specs([name for name in named if name not in known], configs):
                self._add(spec)
            for name in known if configs else ():
                self._add_host_policies(name, configs)
        self._park_manifests(request.sdkMcpServerManifests, named)
        waiting = [server for server in self if server.spec.kind == "sdk" and server.status == "pending"]
        for server in waiting:
            server.start()
        return bool(waiting)

    def _park_manifests(self, entries: Json | None | UnsetType, named: list[str]) -> None:
        self.parked = {}
        if not isinstance(entries, dict) and self._manifests is None:
            return
        from parley.engine.mcp.requests import ParkedManifests

        self._manifests = self._manifests or ParkedManifests()
        self.parked = self._manifests.park(entries or {}, named, self._servers)

    def _add_host_policies(self, name: str, configs: Json | None) -> None:
        """Add the policies of a repeated handshake. It never removes one."""
        from parley.mcp.config import parse_host_policies

        policies = parse_host_policies(configs, name)
        if policies:
            self._add_policies(name, policies)

    def start(self) -> None:
        """Start all servers."""
        for server in () if self._has_started else self:
            server.start()
        self._has_started = True

    async def wait_ready(self) -> None:
        """Wait for servers that are connecting: briefly, or without a limit if the input has ended."""
        waiting = [server for server in self if not server.settled.is_set()]
        if not waiting:
            return
        self.start()
        self._hurry.clear()
        seconds = None if self._prompt_queue.is_closed else self._sources.timeouts.turn_seconds
        await wait_ready(waiting, self._hurry, seconds)
        await wait_ready([server for server in waiting if server.spec.required], self._hurry, None)
        if not self._has_late_servers and self.pending.names():
            self._has_late_servers = True
            self._register_tools()

    async def wait_refreshed(self) -> None:
        """Wait briefly for lists that servers announced as changed, so that the model sees the current ones."""
        refreshes = [task for server in self._servers.values() for task in server.refresh_tasks()]
        if refreshes:
            await asyncio.wait(refreshes, timeout=REFRESH_WAIT_SECONDS)

    def stop_waiting(self) -> None:
        """End `wait_ready` early: the turn was interrupted."""
        self._hurry.set()

    def find_obstacle(self) -> str:
        """Why no model can be called: a prompt that failed, or a required server that is missing."""
        if self._error:
            return self._error
        gone = [server for server in self if server.spec.required and server.status not in ("connected", "disabled")]
        return "; ".join(
            f"the required MCP server {one.spec.name!r} is not connected ({one.status}): "
            f"{one.reason or 'no answer yet'}"
            for one in gone
        )

    # Reports.

    def states(self) -> list[ServerState]:
        return [ServerState(name=one.spec.name, status=one.status, source=one.spec.source) for one in self]

    def on_change(self, server: McpServer) -> None:
        before = self._tools
        assert self._notifier is not None
        self._register_tools()
        own = server.prefix
        added = sorted(name for name in self._tools - before if name.startswith(own))
        removed = sorted(name for name in before - self._tools if name.startswith(own))
        self._notifier.notify(server, added, removed, is_answered=server.spec.name in self._answered)

    def announce(self) -> None:
        """Send the held messages: the first message of a turn was sent."""
        if self._notifier is not None:
            self._notifier.announce()

    def news_for_model(self) -> list[str]:
        """Servers that appeared or disappeared since the model was last informed."""
        return [] if self._notifier is None else self._notifier.for_model(self)

    def instructions(self) -> str:
        """The instructions of the servers, for the system prompt."""
        if self._notifier is None:
            return ""
        from parley.engine.mcp.server_tool import instructions

        return instructions(self)

    def quoted_instructions(self) -> dict[str, str]:
        """The instructions of each server, as they are in the system prompt."""
        if self._notifier is None:
            return {}
        from parley.engine.mcp.server_tool import quote_instructions

        return {server.spec.name: quote_instructions(server) for server in self if server.instructions}

    def _register_tools(self) -> None:
        """Offer the current tools and resources to the model."""
        from parley.engine.mcp.server_tool import make_readers, make_tools

        config, sources = self._config, self._sources
        tools = make_tools(self, sources, self._outbox.send, self._warn_once)
        self._tools = frozenset(tools)
        readers = self._readers = make_readers(self, sources, config.workspace.new_result_file)
        names = [*(RESOURCE_TOOLS if readers else ()), *self._further_tools()]
        own = {name: config.tools.builtin(name) for name in names if name not in sources.denied}
        config.tools.set_external({**own, **tools}, self._explain_missing)

    def _further_tools(self) -> Iterator[str]:
        """The built-in tools that some servers need."""
        if any(server.has_directories for server in self._servers.values()):
            yield DIRECTORY_TOOL
        if self._has_late_servers and self.pending.names():
            yield WAIT_TOOL

    def resource_servers(self) -> Mapping[str, ResourceReader]:
        """The connected servers that have resources, by name."""
        return self._readers

    def _warn_once(self, text: str) -> None:
        """Warn about a tool once, however often the tools are listed."""
        if text not in self._warned:
            self._warned.add(text)
            self._config.warn(text)

    def _explain_missing(self, name: str) -> str:
        """Why a tool is missing, if its server is not connected."""
        for server in self:
            if server.status != "connected" and name.startswith(server.prefix):
                return f"The MCP server {server.spec.name!r} is not connected ({server.status}): {server.reason}"
        return ""

    # Calls.

    async def call_tool(self, name: str, arguments: Json, seconds: float | None = None) -> Json:
        """Call `mcp__server__tool`. The caller has checked permissions. Raises ToolError."""
        tool: Any = self._config.tools.get(name)
        if tool is None or not name.startswith(PREFIX):
            raise ToolError(f"There is no MCP tool {name!r}. {self._explain_missing(name)}".strip())
        limit = tool.timeout_seconds if seconds is None else seconds
        answer: Json = await tool.server.call(tool.own_name, arguments, meta={}, seconds=limit)
        return answer

    async def call_hidden_tool(self, name: str, arguments: Json) -> Json:
        """Call a tool for the engine itself, even if the model is not offered it. Raises ToolError."""
        from parley.mcp.content import qualify

        for server in self:
            for listed in server.tools if server.status == "connected" else ():
                if qualify(server.spec.name, listed["name"]) == name:
                    seconds = self._sources.timeouts.for_call(server.spec, listed["name"])
                    return await server.call(listed["name"], arguments, meta={}, seconds=seconds)
        raise ToolError(f"There is no MCP tool {name!r}. {self._explain_missing(name)}".strip())

    def receive(self, name: str, message: Json) -> bool:
        """Deliver a message from a server that the client runs. Returns False if there is no such server."""
        server = self._servers.get(name)
        if server is None or server.spec.kind != "sdk":
            return False
        receive: Callable[[Json], None] | None = getattr(server.transport, "receive", None)
        if receive is not None:
            receive(message)
        return True

    # Prompts.

    def list_commands(self) -> list[Json]:
        """The prompts of servers, as slash commands."""
        if not any(server.prompts for server in self._servers.values()):
            return []
        from parley.engine.mcp.server_tool import list_commands

        return list_commands(self)

    async def expand_prompt(self, prompt: Prompt) -> Prompt:
        """Expand a prompt that is a command of a server. Raises ToolError."""
        if not any(server.prompts for server in self._servers.values()):
            return prompt
        from parley.engine.mcp.server_tool import expand_prompt

        return await expand_prompt(prompt, self, self._hooks)

    async def expand_prompts(self, prompts: list[Prompt]) -> list[Prompt]:
        """Expand the prompts of a turn. An error is kept for `find_obstacle`."""
        self._error = ""
        try:
            return [await self.expand_prompt(prompt) for prompt in prompts]
        except ToolError as exc:
            self._error = str(exc)
            return prompts

    # Changes.

    async def replace(self, servers: Json) -> Json:
        """Replace the servers that the client added earlier."""
        self._load()
        found = {spec.name: spec for spec in self._sources.parser.parse(servers).specs}
        errors = {spec.name: spec.problem for spec in found.values() if spec.problem}
        self._report_notes(found.values())
        errors |= {name: "a server with this name already exists" for name in found if self._is_fixed(name)}
        held = [name for name in self.names() if self._is_fixed(name)]
        for name in found:
            if name not in errors and (reason := self._name_conflict(name, held)):
                errors[name] = reason
            elif name not in errors:
                held.append(name)
        wanted = {name: spec for name, spec in found.items() if name not in errors}
        gone = sorted(name for name in self._dynamic if wanted.get(name) != self._servers[name].spec)
        leaving = [self._servers.pop(name) for name in gone]
        for name in gone:
            self._config.permissions.policy.drop_server_rules(name)
        self._dynamic -= set(gone)
        # The lists are final before the first await: the next request can arrive meanwhile.
        new = [self._add(spec) for name, spec in wanted.items() if name not in self._servers]
        self._dynamic |= {server.spec.name for server in new}
        self._register_tools()
        await self._replace_running(leaving, new)
        errors |= {
            one.spec.name: one.reason for one in new if one.status in FAILED_STATES or self.find(one.spec.name) != one
        }
        return {"added": [server.spec.name for server in new], "removed": gone, "errors": errors}

    def _report_notes(self, specs: Iterable[ServerSpec]) -> None:
        """Name what has no effect in configurations of the client."""
        from parley.protocol.messages.system import Informational

        for text in (f"MCP server {spec.name!a}: {note}" for spec in specs for note in spec.notes):
            self._config.warn(text)
            self._outbox.send(Informational(content=text, level="warning"))

    def compare_plugin_servers(self, specs: Iterable[ServerSpec]) -> tuple[list[str], list[str]]:
        """Which servers of plugins would be added and removed; one that changes is in both lists."""
        self._load()
        held = {name: self._servers[name].spec for name in self._of_plugins if name in self._servers}
        wanted = {spec.name: spec for spec in specs if spec.name in held or spec.name not in self._servers}
        added = sorted(name for name, spec in wanted.items() if held.get(name) != spec)
        return added, sorted(name for name, spec in held.items() if wanted.get(name) != spec)

    def replace_plugin_servers(self, specs: Iterable[ServerSpec]) -> None:
        """Replace the servers of plugins that are not the same any more. They connect in the background."""
        specs = tuple(specs)
        added, removed = self.compare_plugin_servers(specs)
        if not (added or removed):
            return
        leaving = [self._servers.pop(name) for name in removed]
        for name in removed:
            self._config.permissions.policy.drop_server_rules(name)
        new = [self._add(spec) for spec in specs if spec.name in added]
        self._of_plugins = (self._of_plugins - set(removed)) | set(added)
        self._register_tools()
        self._keep(self._swap(leaving, new))

    async def _swap(self, leaving: list[McpServer], new: list[McpServer]) -> None:
        """Close some servers, then start others."""
        await asyncio.gather(*(server.close() for server in leaving))
        for server in new:
            server.start()

    async def _replace_running(self, leaving: list[McpServer], new: list[McpServer]) -> None:
        """Close some servers, then start others: a new one can need what the old one holds."""
        names = {server.spec.name for server in new}
        self._answered |= names
        try:
            await asyncio.gather(*(server.close() for server in leaving))
            await asyncio.gather(*(server.reconnect() for server in new))
        except asyncio.CancelledError:
            for server in new:  # the request was cancelled, but the servers are still wanted
                server.start()
            raise
        finally:
            self._answered -= names

    def _is_fixed(self, name: str) -> bool:
        return name in self._servers and name not in self._dynamic

    def retire(self, server: McpServer) -> None:
        """Close a server of a subagent in the background."""
        self._keep(server.close())

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Run in the background; `close` waits for it."""
        task = asyncio.create_task(work)
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def logins(self) -> Logins:
        """The logins to servers; loaded at the first use."""
        if self._logins is None:
            from parley.engine.mcp.requests import Logins

            self._logins = Logins(self._sources, self._config.warn)
        return self._logins

    async def close(self) -> None:
        """Close all servers."""
        if self._logins is not None:
            await self._logins.close()
        await asyncio.gather(*(server.close() for server in self), *self._retiring)


class ServerWaiter:
    """The servers that are still connecting, as tools see them."""

    def __init__(self, servers: Mapping[str, McpServer], stop_waiting: asyncio.Event) -> None:
        self._servers = servers
        self._stop_waiting = stop_waiting

    def names(self) -> list[str]:
        return [name for name, server in self._servers.items() if not server.settled.is_set()]

    async def wait(self, names: Collection[str], seconds: float) -> dict[str, str]:
        """Wait until these servers have connected or failed. Returns the states of those that exist."""
        named = {name: self._servers[name] for name in names if name in self._servers}
        await wait_ready([one for one in named.values() if not one.settled.is_set()], self._stop_waiting, seconds)
        return {name: f"{one.status}: {one.reason}" if one.reason else str(one.status) for name, one in named.items()}


async def wait_ready(servers: list[McpServer], stop_waiting: asyncio.Event, seconds: float | None) -> None:
    """Wait until every server has connected or failed, `seconds` have passed, or `stop_waiting` is set.

    Without `seconds` the wait still ends: each server has limits of its own.
    """
    waits = [asyncio.ensure_future(server.settled.wait()) for server in servers]
    if not waits:
        return
    all_settled: asyncio.Future[Any] = asyncio.gather(*waits)
    stopped: asyncio.Future[Any] = asyncio.ensure_future(stop_waiting.wait())
    try:
        await asyncio.wait({all_settled, stopped}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        all_settled.cancel()
        stopped.cancel()
        await asyncio.gather(all_settled, stopped, return_exceptions=True)
