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
from parley.mcp.base import PREFIX, Spec, Supply
from parley.protocol.base import Json
from parley.protocol.messages import requests as ask
from parley.protocol.messages.system import ServerState

if TYPE_CHECKING:
    from parley.engine.mcp.notifications import News
    from parley.engine.session.session import Session
    from parley.mcp.server import Server

RESOURCE_TOOLS = ("ListMcpResourcesTool", "ReadMcpResourceTool")
TROUBLE = ("failed", "needs-auth")
LOOK_SECONDS = 1.0


class Servers:
    def __init__(self, session: Session, supply: Supply | None) -> None:
        self._session = session
        self._supply = supply
        self._servers: dict[str, Server] = {}
        self._dynamic: set[str] = set()
        """Those that the host added while the session lived."""
        self._answered: set[str] = set()
        """Those whose trouble the host hears of in the answer to its request."""
        self._begun = False
        self._news: News | None = None
        """Who tells of them; nobody before there is one."""
        self._hurry = asyncio.Event()
        self._tools: frozenset[str] = frozenset()
        self._complaints: set[str] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        """The ends of servers that agents had for themselves."""
        self._flaw = ""
        """Why a command of the turn could not be expanded."""
        self._asleep: list[Spec] = list(supply.specs) if supply is not None else []
        """Servers that nobody has asked for yet: they are made, and loaded, when `initialize` has been answered."""

    def __iter__(self) -> Iterator[Server]:
        self._wake()
        return iter(self._servers.values())

    def find(self, name: str) -> Server | None:
        self._wake()
        return self._servers.get(name)

    def _wake(self) -> None:
        asleep, self._asleep = self._asleep, []
        if len(asleep) > 1:
            from parley.mcp.naming import normal

            # Rules are spelled with normal names: of `a.b` and `a_b` they mean the second, whichever is listed first.
            asleep.sort(key=lambda spec: normal(spec.name) != spec.name)
        for spec in asleep:
            if spec.name not in self._servers:
                self._add(spec)

    def _add(self, spec: Spec) -> Server:
        from parley.engine.mcp.elicitation import made
        from parley.engine.mcp.notifications import News

        session, supply = self._session, self._supply
        assert supply is not None
        self._news = self._news or News(session.tell, session.setup.complain)
        if not spec.flaw and (reason := self._clash(spec.name, self.names())):
            spec = msgspec.structs.replace(spec, flaw=reason)
        server = self._servers[spec.name] = made(session, supply, spec, self.changed)
        return server

    def names(self) -> list[str]:
        """Those that hold their names: a server that is refused holds none."""
        self._wake()
        return [name for name, server in self._servers.items() if not server.spec.flaw]

    def _clash(self, name: str, others: Iterable[str]) -> str:
        """Why a server may not be called so beside others; nothing if it may."""
        from parley.mcp.naming import clash_reason, find_clash

        other = find_clash(name, others)
        return "" if other is None else clash_reason(name, other)

    def bring(self, specs: Sequence[Spec]) -> None:
        """More servers, those of the agent that the session runs as; one of a name that is taken does not count."""
        self._asleep += [spec for spec in specs if spec.name not in {one.name for one in self._asleep}]
        if self._servers or self._begun:
            self._wake()
        if self._begun:
            for server in self:
                server.start()

    # Beginning.

    def greet(self, request: ask.Initialize) -> bool:
        """Begin with the servers that the host runs; True if there are any to begin with."""
        named = request.sdkMcpServers if isinstance(request.sdkMcpServers, list) else []
        configs = request.sdkMcpServerConfigs if isinstance(request.sdkMcpServerConfigs, dict) else None
        if not named and not any(spec.kind == "sdk" for spec in self._asleep) and not self._servers:
            return False
        self._wake()
        if self._supply is not None and named:
            for spec in self._supply.hosted([name for name in named if name not in self._servers], configs):
                self._add(spec)
        waiting = [server for server in self if server.spec.kind == "sdk" and server.status == "pending"]
        for server in waiting:
            server.start()
        return bool(waiting)

    def start(self) -> None:
        """Begin with all of them."""
        for server in () if self._begun else self:
            server.start()
        self._begun = True

    async def settle(self) -> None:
        """Wait for servers on their way: a moment, or as long as it takes if nothing comes after this turn."""
        waiting = [server for server in self if not server.settled.is_set()]
        if not waiting or self._supply is None:
            return
        from parley.engine.mcp.readiness import settled

        self.start()
        self._hurry.clear()
        seconds = None if self._session.inbox.is_closed else self._supply.patience.turn
        await settled(waiting, self._hurry, seconds)
        await settled([server for server in waiting if server.spec.required], self._hurry, None)

    async def catch_up(self) -> None:
        """Wait a moment for lists that servers say are others now: the model is to see what there is."""
        looks = [look for server in self._servers.values() for look in server.looks()]
        if looks:
            await asyncio.wait(looks, timeout=LOOK_SECONDS)

    def hurry(self) -> None:
        """The turn that waits is interrupted."""
        self._hurry.set()

    def obstacle(self) -> str:
        """What stands against asking a model: a command that failed, a required server that is not there."""
        if self._flaw:
            return self._flaw
        gone = [server for server in self if server.spec.required and server.status not in ("connected", "disabled")]
        return "; ".join(
            f"the required MCP server {one.spec.name!r} is not there ({one.status}): {one.reason or 'no answer yet'}"
            for one in gone
        )

    # What is told of them.

    def states(self) -> list[ServerState]:
        return [ServerState(name=one.spec.name, status=one.status, source=one.spec.source) for one in self]

    def changed(self, server: Server) -> None:
        before, supply = self._tools, self._supply
        assert supply is not None
        assert self._news is not None
        self._shelve(supply)
        own = server.prefix
        added = sorted(name for name in self._tools - before if name.startswith(own))
        removed = sorted(name for name in before - self._tools if name.startswith(own))
        self._news.tell(server, added, removed, is_answered=server.spec.name in self._answered)

    def announce(self) -> None:
        """The first line of a turn was told."""
        if self._news is not None:
            self._news.announce()

    def news_for_model(self) -> list[str]:
        """What has become of servers since the model was last told."""
        return [] if self._news is None else self._news.for_model(self)

    def instructions(self) -> str:
        """What servers say about the use of their tools."""
        if self._news is None:
            return ""
        from parley.engine.mcp.notifications import instructions

        return instructions(self)

    def _shelve(self, supply: Supply) -> None:
        """Show the model what is there now."""
        from parley.engine.mcp.server_tool import libraries_of, tools_of

        setup = self._session.setup
        tools = tools_of(self, supply, self._session.tell, self._complain_once)
        self._tools = frozenset(tools)
        libraries = setup.tool_context.resources = libraries_of(self, supply, setup.tool_context)
        own = {name: setup.tools.own(name) for name in RESOURCE_TOOLS if libraries and name not in supply.denied}
        setup.tools.lend({**own, **tools}, self._absence)

    def _complain_once(self, complaint: str) -> None:
        """What is wrong with a tool stays so, however often all of them are looked at."""
        if complaint not in self._complaints:
            self._complaints.add(complaint)
            self._session.setup.complain(complaint)

    def _absence(self, name: str) -> str:
        """Why a tool is not there, if that is a server's fault."""
        for server in self:
            if server.status != "connected" and name.startswith(server.prefix):
                return f"The MCP server {server.spec.name!r} is not there ({server.status}): {server.reason}"
        return ""

    # What they do.

    async def call(self, name: str, arguments: Json, seconds: float | None = None) -> Json:
        """What the tool `mcp__server__tool` answers. Who calls has decided that it may. Raises ToolError."""
        tool: Any = self._session.setup.tools.get(name)
        if tool is None or not name.startswith(PREFIX):
            raise ToolError(f"There is no MCP tool {name!r}. {self._absence(name)}".strip())
        limit = tool.seconds if seconds is None else seconds
        answer: Json = await tool.server.call(tool.own_name, arguments, meta={}, seconds=limit)
        return answer

    async def consult(self, name: str, arguments: Json) -> Json:
        """What a tool answers that the engine itself asks, whether the model is shown it or not. Raises ToolError."""
        from parley.mcp.naming import qualified

        assert self._supply is not None
        for server in self:
            for listed in server.tools if server.status == "connected" else ():
                if qualified(server.spec.name, listed["name"]) == name:
                    seconds = self._supply.patience.of_call(server.spec, listed["name"])
                    return await server.call(listed["name"], arguments, meta={}, seconds=seconds)
        raise ToolError(f"There is no MCP tool {name!r}. {self._absence(name)}".strip())

    def hear(self, name: str, message: Json) -> bool:
        """A message that a server of the host sends of its own accord; False if there is no such server."""
        server = self._servers.get(name)
        if server is None or server.spec.kind != "sdk":
            return False
        hear: Callable[[Json], None] | None = getattr(server.wire, "hear", None)
        if hear is not None:
            hear(message)
        return True

    # Their prompts.

    def commands(self) -> list[Json]:
        """The slash commands that the prompts of servers are."""
        if not any(server.prompts for server in self._servers.values()):
            return []
        from parley.engine.mcp.prompts import commands

        return commands(self)

    async def expand(self, prompt: Prompt) -> Prompt:
        """A prompt as what a server makes of it, if it is a command of one. Raises ToolError."""
        if not any(server.prompts for server in self._servers.values()):
            return prompt
        from parley.engine.mcp.prompts import expanded

        return await expanded(prompt, self)

    async def expanded(self, prompts: list[Prompt]) -> list[Prompt]:
        """Prompts with the commands in them as what servers make of them."""
        self._flaw = ""
        try:
            return [await self.expand(prompt) for prompt in prompts]
        except ToolError as flaw:
            self._flaw = str(flaw)
            return prompts

    # Changing them.

    async def replace(self, servers: Json) -> Json:
        """Make these the servers that the host added, in the place of those it added before."""
        assert self._supply is not None
        self._wake()
        found = {spec.name: spec for spec in self._supply.read(servers).specs}
        errors = {spec.name: spec.flaw for spec in found.values() if spec.flaw}
        errors |= {name: "there is a server of this name already" for name in found if self._is_fixed(name)}
        held = [name for name in self.names() if self._is_fixed(name)]
        for name in found:
            if name not in errors and (reason := self._clash(name, held)):
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
        self._shelve(self._supply)
        await self._exchange(leaving, new)
        errors |= {one.spec.name: one.reason for one in new if one.status in TROUBLE or self.find(one.spec.name) != one}
        return {"added": [server.spec.name for server in new], "removed": gone, "errors": errors}

    async def _exchange(self, leaving: list[Server], new: list[Server]) -> None:
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

    def retire(self, server: Server) -> None:
        """End one that is not of our own, beside everything else."""
        ending = asyncio.create_task(server.close())
        self._retiring.add(ending)
        ending.add_done_callback(self._retiring.discard)

    async def close(self) -> None:
        """The end of all of them."""
        await asyncio.gather(*(server.close() for server in self), *self._retiring)
