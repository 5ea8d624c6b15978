"""What an agent brings along beside its prompt: skills it knows from the start, hooks, and MCP servers of its own.

    outfit = Outfit(session, "reviewer", kind)
    contexts = await outfit.put_on(agent_id, shelf)      # its servers are there, its hooks listen
    outfit.take_off()                                    # nothing of it is left

Whether it may bring them is decided where it is read (settings/files/agents.py). What is wrong with one of them costs
that one, and is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from parley.errors import ToolError
from parley.mcp.base import Spec
from parley.protocol.base import Json
from parley.protocol.messages.requests import AgentDefinition
from parley.settings.base import Value

if TYPE_CHECKING:
    from parley.engine.session.session import Session
    from parley.mcp.server import Server
    from parley.tools.registry import Shelf

BROUGHT = ("skills", "hooks", "mcpServers")


def brings_anything(kind: AgentDefinition) -> bool:
    return any(getattr(kind, field) for field in BROUGHT)


class Outfit:
    """Of a subagent, while it runs."""

    def __init__(self, session: Session, name: str, kind: AgentDefinition) -> None:
        self._session = session
        self._name = name
        self._kind = kind
        self._agent_id = ""
        self._servers: list[Server] = []

    async def put_on(self, agent_id: str, shelf: Shelf) -> list[str]:
        """Make it all ready; what the agent is to hear of it."""
        self._agent_id = agent_id
        hooks = hooks_of(self._session, self._name, self._kind, {"Stop": "SubagentStop"})
        if hooks is not None:
            self._session.listeners.dress(self._session, agent_id, hooks)
        missing = await self._connect(shelf)
        return [*missing, *await preloaded(self._session, self._name, self._kind)]

    async def _connect(self, shelf: Shelf) -> list[str]:
        """Wait for its servers, each as long as a server is waited for; what is to be said of those that failed."""
        from parley.engine.mcp.elicitation import made
        from parley.engine.mcp.server_tool import tools_of
        from parley.mcp.naming import clash_reason, find_clash

        session = self._session
        supply, inherited = session.setup.mcp, shelf.lent
        specs = specs_of(session, self._name, self._kind)
        if supply is None or not specs:
            return []

        def changed(server: Server) -> None:
            own = tools_of(self._servers, supply, session.tell, session.setup.complain)
            shelf.lend({**inherited, **own}, shelf.absence)

        held = session.servers.names()
        for spec in specs:
            other = find_clash(spec.name, held)
            flaw = "" if other is None else clash_reason(spec.name, other)
            self._servers.append(made(session, supply, msgspec.structs.replace(spec, flaw=flaw), changed))
            held.append(spec.name)
        for server in self._servers:
            server.start()
        await asyncio.gather(*(server.settled.wait() for server in self._servers))
        lost = [server for server in self._servers if server.status != "connected"]
        said = [f"the MCP server {one.spec.name!r} is not there ({one.status}): {one.reason}" for one in lost]
        for words in said:
            session.setup.complain(f"agent {self._name!r}: {words}")
        return [f"Of your own tools some are missing: {words}" for words in said]

    def take_off(self) -> None:
        """Nobody waits for the end of its servers: an interrupt must not."""
        self._session.listeners.undress(self._agent_id)
        servers, self._servers = self._servers, []
        for server in servers:
            self._session.servers.retire(server)


def hooks_of(session: Session, name: str, kind: AgentDefinition, other_names: dict[str, str]) -> Value | None:
    """Its hooks as those of settings; `other_names` are the events that go by other names where it runs."""
    if not isinstance(kind.hooks, dict) or not kind.hooks:
        return None
    hooks = {other_names.get(event, event): entries for event, entries in kind.hooks.items()}
    return Value(value=hooks, source="flag", path=f"agent {name}", root=session.setup.cwd)


def entries_of(kind: AgentDefinition) -> list[Any]:
    return kind.mcpServers if isinstance(kind.mcpServers, list) else []


def specs_of(session: Session, name: str, kind: AgentDefinition) -> Sequence[Spec]:
    """The servers that are its own: a name alone means one of the session's. What is wrong with one is told."""
    own: Json = {}
    for entry in entries_of(kind):
        if isinstance(entry, dict):
            own |= entry
    if not own or session.setup.mcp is None:
        return ()
    found = session.setup.mcp.of_agent(own, f"agent {name!r}")
    for flaw in found.flaws:
        session.setup.complain(flaw)
    return [spec for spec in found.specs if not spec.flaw]


async def preloaded(session: Session, name: str, kind: AgentDefinition) -> list[str]:
    """The texts of the skills that it knows from the start."""
    found: list[str] = []
    for wanted in kind.skills if isinstance(kind.skills, list) else ():
        recipe = session.commands.usable(wanted)
        if recipe is None:
            session.setup.complain(f"agent {name!r}: there is no skill {wanted!r} that a model may use")
            continue
        from parley.engine.commands.expansion import expand

        try:
            blocks = await expand(session, recipe, "")
        except ToolError as flaw:
            session.setup.complain(f"agent {name!r}: the skill {wanted!r} is left out: {flaw}")
            continue
        text = "\n\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")
        found.append(f"The skill {wanted!r}, which you follow where it fits:\n\n{text}")
    return found
