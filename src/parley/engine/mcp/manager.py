"""The MCP servers of a session: all of them, from the first word to the last.

They connect side by side in the background and never before `initialize` is answered; only
those that the host runs are greeted before, as recorded. A turn waits a moment for servers
that are still connecting, longer if nothing can be said later, and for a required one until
it is there or not. Every change is told: to the host as a line, to people on stderr, and to
the model by the tools it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.session.prompt_queue import Prompt
from parley.errors import ToolError
from parley.mcp.base import PREFIX, ServerSources, ServerSpec
from parley.protocol.base import Json
from parley.protocol.messages import requests
from parley.protocol.messages.system import ServerState

if TYPE_CHECKING:
    from parley.engine.mcp.notifications import StatusNotifier
    from parley.engine.session.session import Session
    from parley.mcp.server import McpServer

RESOURCE_TOOLS = ("ListMcpResourcesTool", "ReadMcpResourceTool")
FAILED_STATES = ("failed", "needs-auth")
REFRESH_WAIT_SECONDS = 1.0


class ServerManager:
    def __init__(self, session: Session, supply: ServerSources | None) -> None:
        self._session = session
        self._supply = supply
        self._servers: dict[str, McpServer] = {}
        self._dynamic: set[str] = set()
        """Those that the host added while the session lived."""
        self._answered: set[str] = set()
        """Those whose trouble the host hears of in the answer to its request."""
        self._has_started = False
        self._notifier: StatusNotifier | None = None
        """Who tells of them; nobody before there is one."""
        self._hurry = asyncio.Event()
        self._tools: frozenset[str] = frozenset()
        self._warned: set[str] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        """The ends of servers that agents had for themselves."""
        self._error = ""
        """Why a command of the turn could not be expanded."""
        self._unstarted: list[ServerSpec] = list(supply.specs) if supply is not None else []
        """Servers that nobody has asked for yet: they are made, and loaded, when `initialize` has been answered."""

    def __iter__(self) -> Iterator[McpServer]:
        self._load()
        return iter(self._servers.values())

    def find(self, name: str) -> McpServer | None:
        self._load()
        return self._servers.get(name)

    def _load(self) -> None:
        asleep, self._unstarted = self._unstarted, []
        if len(asleep) > 1:
            from parley.mcp.naming import normalize

            # Rules are spelled with normal names: of `a.b` and `a_b` they mean the second, whichever is listed first.
            asleep.sort(key=lambda spec: normalize(spec.name) != spec.name)
        for spec in asleep:
            if spec.name not in self._servers:
                self._add(spec)

    def _add(self, spec: ServerSpec) -> McpServer:
        from parley.engine.mcp.elicitation import make_server
        from parley.engine.mcp.notifications import StatusNotifier

        session, supply = self._session, self._supply
        assert supply is not None
        self._notifier = self._notifier or StatusNotifier(session.send, session.config.warn)
        if not spec.problem and (reason := self._name_conflict(spec.name, self.names())):
            spec = msgspec.structs.replace(spec, problem=reason)
        server = self._servers[spec.name] = make_server(session, supply, spec, self.on_change)
        return server

    def names(self) -> list[str]:
        """Those that hold their names: a server that is refused holds none."""
        self._load()
        return [name for name, server in self._servers.items() if not server.spec.problem]

    def _name_conflict(self, name: str, others: Iterable[str]) -> str:
        """Why a server may not be called so beside others; nothing if it may."""
        from parley.mcp.naming import clash_reason, find_clash

        other = find_clash(name, others)
        return "" if other is None else clash_reason(name, other)

    def add_agent_servers(self, specs: Sequence[ServerSpec]) -> None:
        """More servers, those of the agent that the session runs as; one of a name that is taken does not count."""
        self._unstarted += [spec for spec in specs if spec.name not in {one.name for one in self._unstarted}]
        if self._servers or self._has_started:
            self._load()
        if self._has_started:
            for server in self:
                server.start()

    # Beginning.

    def start_host_servers(self, request: requests.Initialize) -> bool:
        """Begin with the servers that the host runs; True if there are any to begin with."""
        named = request.sdkMcpServers if isinstance(request.sdkMcpServers, list) else []
        configs = request.sdkMcpServerConfigs if isinstance(request.sdkMcpServerConfigs, dict) else None
        if not named and not any(spec.kind == "sdk" for spec in self._unstarted) and not self._servers:
            return False
        self._load()
        if self._supply is not None and named:
            for spec in self._supply.build_host_specs([name for name in named if name not in self._servers], configs):
                self._add(spec)
        waiting = [server for server in self if server.spec.kind == "sdk" and server.status == "pending"]
        for server in waiting:
            server.start()
        return bool(waiting)

    def start(self) -> None:
        """Begin with all of them."""
        for server in () if self._has_started else self:
            server.start()
        self._has_started = True

    async def wait_ready(self) -> None:
        """Wait for servers on their way: a moment, or as long as it takes if nothing comes after this turn."""
        waiting = [server for server in self if not server.settled.is_set()]
        if not waiting or self._supply is None:
            return
        from parley.engine.mcp.readiness import wait_ready

        self.start()
        self._hurry.clear()
        seconds = None if self._session.prompt_queue.is_closed else self._supply.timeouts.turn_seconds
        await wait_ready(waiting, self._hurry, seconds)
        await wait_ready([server for server in waiting if server.spec.required], self._hurry, None)

    async def wait_refreshed(self) -> None:
        """Wait a moment for lists that servers say are others now: the model is to see what there is."""
        looks = [look for server in self._servers.values() for look in server.refresh_tasks()]
        if looks:
            await asyncio.wait(looks, timeout=REFRESH_WAIT_SECONDS)

    def stop_waiting(self) -> None:
        """The turn that waits is interrupted."""
        self._hurry.set()

    def find_obstacle(self) -> str:
        """What stands against asking a model: a command that failed, a required server that is not there."""
        if self._error:
            return self._error
        gone = [server for server in self if server.spec.required and server.status not in ("connected", "disabled")]
        return "; ".join(
            f"the required MCP server {one.spec.name!r} is not there ({one.status}): {one.reason or 'no answer yet'}"
            for one in gone
        )

    # What is told of them.

    def states(self) -> list[ServerState]:
        return [ServerState(name=one.spec.name, status=one.status, source=one.spec.source) for one in self]

    def on_change(self, server: McpServer) -> None:
        before, supply = self._tools, self._supply
        assert supply is not None
        assert self._notifier is not None
        self._register_tools(supply)
        own = server.prefix
        added = sorted(name for name in self._tools - before if name.startswith(own))
        removed = sorted(name for name in before - self._tools if name.startswith(own))
        self._notifier.notify(server, added, removed, is_answered=server.spec.name in self._answered)

    def announce(self) -> None:
        """The first line of a turn was told."""
        if self._notifier is not None:
            self._notifier.announce()

    def news_for_model(self) -> list[str]:
        """What has become of servers since the model was last told."""
        return [] if self._notifier is None else self._notifier.for_model(self)

    def instructions(self) -> str:
        """What servers say about the use of their tools."""
        if self._notifier is None:
            return ""
        from parley.engine.mcp.notifications import instructions

        return instructions(self)

    def _register_tools(self, supply: ServerSources) -> None:
        """Show the model what is there now."""
        from parley.engine.mcp.server_tool import make_readers, make_tools

        config = self._session.config
        tools = make_tools(self, supply, self._session.send, self._warn_once)
        self._tools = frozenset(tools)
        libraries = config.tool_context.resources = make_readers(self, supply, config.tool_context)
        own = {name: config.tools.builtin(name) for name in RESOURCE_TOOLS if libraries and name not in supply.denied}
        config.tools.set_external({**own, **tools}, self._explain_missing)

    def _warn_once(self, complaint: str) -> None:
        """What is wrong with a tool stays so, however often all of them are looked at."""
        if complaint not in self._warned:
            self._warned.add(complaint)
            self._session.config.warn(complaint)

    def _explain_missing(self, name: str) -> str:
        """Why a tool is not there, if that is a server's fault."""
        for server in self:
            if server.status != "connected" and name.startswith(server.prefix):
                return f"The MCP server {server.spec.name!r} is not there ({server.status}): {server.reason}"
        return ""

    # What they do.

    async def call_tool(self, name: str, arguments: Json, seconds: float | None = None) -> Json:
        """What the tool `mcp__server__tool` answers. Who calls has decided that it may. Raises ToolError."""
        tool: Any = self._session.config.tools.get(name)
        if tool is None or not name.startswith(PREFIX):
            raise ToolError(f"There is no MCP tool {name!r}. {self._explain_missing(name)}".strip())
        limit = tool.timeout_seconds if seconds is None else seconds
        answer: Json = await tool.server.call(tool.own_name, arguments, meta={}, seconds=limit)
        return answer

    async def call_hidden_tool(self, name: str, arguments: Json) -> Json:
        """What a tool answers that the engine itself asks, whether the model is shown it or not. Raises ToolError."""
        from parley.mcp.naming import qualify

        assert self._supply is not None
        for server in self:
            for listed in server.tools if server.status == "connected" else ():
                if qualify(server.spec.name, listed["name"]) == name:
                    seconds = self._supply.timeouts.for_call(server.spec, listed["name"])
                    return await server.call(listed["name"], arguments, meta={}, seconds=seconds)
        raise ToolError(f"There is no MCP tool {name!r}. {self._explain_missing(name)}".strip())

    def receive(self, name: str, message: Json) -> bool:
        """A message that a server of the host sends of its own accord; False if there is no such server."""
        server = self._servers.get(name)
        if server is None or server.spec.kind != "sdk":
            return False
        hear: Callable[[Json], None] | None = getattr(server.transport, "receive", None)
        if hear is not None:
            hear(message)
        return True

    # Their prompts.

    def list_commands(self) -> list[Json]:
        """The slash commands that the prompts of servers are."""
        if not any(server.prompts for server in self._servers.values()):
            return []
        from parley.engine.mcp.prompts import list_commands

        return list_commands(self)

    async def expand_prompt(self, prompt: Prompt) -> Prompt:
        """A prompt as what a server makes of it, if it is a command of one. Raises ToolError."""
        if not any(server.prompts for server in self._servers.values()):
            return prompt
        from parley.engine.mcp.prompts import expand_prompt

        return await expand_prompt(prompt, self)

    async def expand_prompts(self, prompts: list[Prompt]) -> list[Prompt]:
        """Prompts with the commands in them as what servers make of them."""
        self._error = ""
        try:
            return [await self.expand_prompt(prompt) for prompt in prompts]
        except ToolError as exc:
            self._error = str(exc)
            return prompts

    # Changing them.

    async def replace(self, servers: Json) -> Json:
        """Make these the servers that the host added, in the place of those it added before."""
        assert self._supply is not None
        self._load()
        found = {spec.name: spec for spec in self._supply.parse(servers).specs}
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
        # All of it is settled before anything is waited for: the next request may come meanwhile.
        new = [self._add(spec) for name, spec in wanted.items() if name not in self._servers]
        self._dynamic |= {server.spec.name for server in new}
        self._register_tools(self._supply)
        await self._replace_running(leaving, new)
        errors |= {
            one.spec.name: one.reason for one in new if one.status in FAILED_STATES or self.find(one.spec.name) != one
        }
        return {"added": [server.spec.name for server in new], "removed": gone, "errors": errors}

    async def _replace_running(self, leaving: list[McpServer], new: list[McpServer]) -> None:
        """End some, then begin with others: one may want what another of its name still holds."""
        names = {server.spec.name for server in new}
        self._answered |= names
        try:
            await asyncio.gather(*(server.close() for server in leaving))
            await asyncio.gather(*(server.reconnect() for server in new))
        except asyncio.CancelledError:
            for server in new:  # the answer is not wanted any more, but they are
                server.start()
            raise
        finally:
            self._answered -= names

    def _is_fixed(self, name: str) -> bool:
        return name in self._servers and name not in self._dynamic

    def retire(self, server: McpServer) -> None:
        """End one that is not of our own, beside everything else."""
        ending = asyncio.create_task(server.close())
        self._retiring.add(ending)
        ending.add_done_callback(self._retiring.discard)

    async def close(self) -> None:
        """The end of all of them."""
        await asyncio.gather(*(server.close() for server in self), *self._retiring)
