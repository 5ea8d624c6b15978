"""The MCP servers of a session: start, wait, list, call, replace, close.

Servers connect concurrently in the background, after `initialize` is answered; only those that the
client runs start earlier, as in recordings of Claude Code. A turn waits briefly for servers that are
still connecting, longer if the input has ended, and for a required server until it has connected or
failed. Changes are reported to the client as messages, to the user on stderr, and to the model as tools.

See also: `elicitation.py`, `notifications.py`, `prompts.py`, `server_tool.py`; one server is
`parley.mcp.server.McpServer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.session.config import SessionConfig
from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Outbox
from parley.engine.session.prompt_queue import Prompt, PromptQueue
from parley.errors import ToolError
from parley.mcp.base import PREFIX, ServerSources, ServerSpec
from parley.protocol.base import Json
from parley.protocol.messages import requests
from parley.protocol.messages.system import ServerState

if TYPE_CHECKING:
    from parley.engine.mcp.notifications import StatusNotifier
    from parley.mcp.server import McpServer

RESOURCE_TOOLS = ("ListMcpResourcesTool", "ReadMcpResourceTool")
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
    ) -> None:
        """`waiting` is entered while the user is asked for an elicitation."""
        self._config = config
        self._outbox = outbox
        self._journal = journal
        self._prompt_queue = prompt_queue
        self._waiting = waiting
        self._sources = config.extensions.mcp
        self._servers: dict[str, McpServer] = {}
        self._dynamic: set[str] = set()
        """Servers that the client added during the session."""
        self._answered: set[str] = set()
        """Servers whose errors are reported in a control response."""
        self._has_started = False
        self._notifier: StatusNotifier | None = None
        """Reports changes; None before the first server is made."""
        self._hurry = asyncio.Event()
        self._tools: frozenset[str] = frozenset()
        self._warned: set[str] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        """Servers of subagents that are closing."""
        self._error = ""
        """Why a prompt of the turn could not be expanded."""
        self._unstarted: list[ServerSpec] = list(self._sources.specs) if self._sources is not None else []
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
            from parley.mcp.naming import normalize

            # Rules use normalized names: of `a.b` and `a_b` they mean the second, whatever the order.
            specs.sort(key=lambda spec: normalize(spec.name) != spec.name)
        for spec in specs:
            if spec.name not in self._servers:
                self._add(spec)

    def _add(self, spec: ServerSpec) -> McpServer:
        from parley.engine.mcp.notifications import StatusNotifier

        self._notifier = self._notifier or StatusNotifier(self._outbox.send, self._config.warn)
        if not spec.problem and (reason := self._name_conflict(spec.name, self.names())):
            spec = msgspec.structs.replace(spec, problem=reason)
        server = self._servers[spec.name] = self.make_server(spec, self.on_change)
        return server

    def make_server(self, spec: ServerSpec, on_change: Callable[[McpServer], None]) -> McpServer:
        """Create a server that is not started and not listed here."""
        from parley.engine.mcp.elicitation import ServerRequests
        from parley.mcp.server import McpServer

        sources = self._sources
        assert sources is not None
        handler = ServerRequests(self._config.cwd, self._outbox, self._journal, self._waiting, on_change)
        capabilities = {} if spec.kind == "sdk" else handler.capabilities
        return McpServer(
            spec,
            lambda: sources.open_transport(spec, self._outbox.host),
            handler,
            sources.timeouts,
            capabilities,
        )

    def names(self) -> list[str]:
        """The names in use. A refused server does not hold its name."""
        self._load()
        return [name for name, server in self._servers.items() if not server.spec.problem]

    def _name_conflict(self, name: str, others: Iterable[str]) -> str:
        """Why a name cannot be used beside others; empty if it can."""
        from parley.mcp.naming import clash_reason, find_clash

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
        named = request.sdkMcpServers if isinstance(request.sdkMcpServers, list) else []
        configs = request.sdkMcpServerConfigs if isinstance(request.sdkMcpServerConfigs, dict) else None
        if not named and not any(spec.kind == "sdk" for spec in self._unstarted) and not self._servers:
            return False
        self._load()
        if self._sources is not None and named:
            for spec in self._sources.build_host_specs([name for name in named if name not in self._servers], configs):
                self._add(spec)
        waiting = [server for server in self if server.spec.kind == "sdk" and server.status == "pending"]
        for server in waiting:
            server.start()
        return bool(waiting)

    def start(self) -> None:
        """Start all servers."""
        for server in () if self._has_started else self:
            server.start()
        self._has_started = True

    async def wait_ready(self) -> None:
        """Wait for servers that are connecting: briefly, or without a limit if the input has ended."""
        waiting = [server for server in self if not server.settled.is_set()]
        if not waiting or self._sources is None:
            return
        self.start()
        self._hurry.clear()
        seconds = None if self._prompt_queue.is_closed else self._sources.timeouts.turn_seconds
        await wait_ready(waiting, self._hurry, seconds)
        await wait_ready([server for server in waiting if server.spec.required], self._hurry, None)

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
            f"the required MCP server {one.spec.name!r} is not there ({one.status}): {one.reason or 'no answer yet'}"
            for one in gone
        )

    # Reports.

    def states(self) -> list[ServerState]:
        return [ServerState(name=one.spec.name, status=one.status, source=one.spec.source) for one in self]

    def on_change(self, server: McpServer) -> None:
        before, sources = self._tools, self._sources
        assert sources is not None
        assert self._notifier is not None
        self._register_tools(sources)
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
        from parley.engine.mcp.notifications import instructions

        return instructions(self)

    def _register_tools(self, sources: ServerSources) -> None:
        """Offer the current tools and resources to the model."""
        from parley.engine.mcp.server_tool import make_readers, make_tools

        config = self._config
        tools = make_tools(self, sources, self._outbox.send, self._warn_once)
        self._tools = frozenset(tools)
        readers = config.tool_context.resources = make_readers(self, sources, config.tool_context)
        own = {name: config.tools.builtin(name) for name in RESOURCE_TOOLS if readers and name not in sources.denied}
        config.tools.set_external({**own, **tools}, self._explain_missing)

    def _warn_once(self, text: str) -> None:
        """Warn about a tool once, however often the tools are listed."""
        if text not in self._warned:
            self._warned.add(text)
            self._config.warn(text)

    def _explain_missing(self, name: str) -> str:
        """Why a tool is missing, if its server is not connected."""
        for server in self:
            if server.status != "connected" and name.startswith(server.prefix):
                return f"The MCP server {server.spec.name!r} is not there ({server.status}): {server.reason}"
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
        from parley.mcp.naming import qualify

        assert self._sources is not None
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
        from parley.engine.mcp.prompts import list_commands

        return list_commands(self)

    async def expand_prompt(self, prompt: Prompt) -> Prompt:
        """Expand a prompt that is a command of a server. Raises ToolError."""
        if not any(server.prompts for server in self._servers.values()):
            return prompt
        from parley.engine.mcp.prompts import expand_prompt

        return await expand_prompt(prompt, self)

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
        assert self._sources is not None
        self._load()
        found = {spec.name: spec for spec in self._sources.parse(servers).specs}
        errors = {spec.name: spec.problem for spec in found.values() if spec.problem}
        errors |= {name: "there is a server of this name already" for name in found if self._is_fixed(name)}
        held = [name for name in self.names() if self._is_fixed(name)]
        for name in found:
            if name not in errors and (reason := self._name_conflict(name, held)):
                errors[name] = reason
            elif name not in errors:
                held.append(name)
        wanted = {name: spec for name, spec in found.items() if name not in errors}
        gone = sorted(name for name in self._dynamic if wanted.get(name) != self._servers[name].spec)
        leaving = [self._servers.pop(name) for name in gone]
        self._dynamic -= set(gone)
        # The lists are final before the first await: the next request can arrive meanwhile.
        new = [self._add(spec) for name, spec in wanted.items() if name not in self._servers]
        self._dynamic |= {server.spec.name for server in new}
        self._register_tools(self._sources)
        await self._replace_running(leaving, new)
        errors |= {
            one.spec.name: one.reason for one in new if one.status in FAILED_STATES or self.find(one.spec.name) != one
        }
        return {"added": [server.spec.name for server in new], "removed": gone, "errors": errors}

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
        closing = asyncio.create_task(server.close())
        self._retiring.add(closing)
        closing.add_done_callback(self._retiring.discard)

    async def close(self) -> None:
        """Close all servers."""
        await asyncio.gather(*(server.close() for server in self), *self._retiring)


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
