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
from parley.mcp.base import ServerSpec
from parley.protocol.base import Json
from parley.protocol.messages.requests import AgentDefinition
from parley.settings.base import SettingsValue

if TYPE_CHECKING:
    from parley.engine.session.session import Session
    from parley.mcp.server import McpServer
    from parley.tools.registry import ToolRegistry

RESOURCE_FIELDS = ("skills", "hooks", "mcpServers")


def has_resources(kind: AgentDefinition) -> bool:
    return any(getattr(kind, field) for field in RESOURCE_FIELDS)


class AgentResources:
    """Of a subagent, while it runs."""

    def __init__(self, session: Session, name: str, kind: AgentDefinition) -> None:
        self._session = session
        self._name = name
        self._kind = kind
        self._agent_id = ""
        self._servers: list[McpServer] = []

    async def open(self, agent_id: str, tools: ToolRegistry) -> list[str]:
        """Make it all ready; what the agent is to hear of it."""
        self._agent_id = agent_id
        hooks = agent_hooks(self._session, self._name, self._kind, {"Stop": "SubagentStop"})
        if hooks is not None:
            self._session.hooks.add_agent(agent_id, hooks)
        missing = await self._connect(tools)
        return [*missing, *await load_skills(self._session, self._name, self._kind)]

    async def _connect(self, tools: ToolRegistry) -> list[str]:
        """Wait for its servers, each as long as a server is waited for; what is to be said of those that failed."""
        from parley.engine.mcp.server_tool import make_tools
        from parley.mcp.naming import clash_reason, find_clash

        session = self._session
        supply, inherited = session.config.extensions.mcp, tools.external
        specs = server_specs(session, self._name, self._kind)
        if supply is None or not specs:
            return []

        def changed(server: McpServer) -> None:
            own = make_tools(self._servers, supply, session.send, session.config.warn)
            tools.set_external({**inherited, **own}, tools.explain_absence)

        held = session.servers.names()
        for spec in specs:
            other = find_clash(spec.name, held)
            error = "" if other is None else clash_reason(spec.name, other)
            self._servers.append(session.servers.make_server(msgspec.structs.replace(spec, problem=error), changed))
            held.append(spec.name)
        for server in self._servers:
            server.start()
        await asyncio.gather(*(server.settled.wait() for server in self._servers))
        lost = [server for server in self._servers if server.status != "connected"]
        said = [f"the MCP server {one.spec.name!r} is not there ({one.status}): {one.reason}" for one in lost]
        for words in said:
            session.config.warn(f"agent {self._name!r}: {words}")
        return [f"Of your own tools some are missing: {words}" for words in said]

    def close(self) -> None:
        """Nobody waits for the end of its servers: an interrupt must not."""
        self._session.hooks.remove_agent(self._agent_id)
        servers, self._servers = self._servers, []
        for server in servers:
            self._session.servers.retire(server)


def agent_hooks(
    session: Session, name: str, kind: AgentDefinition, other_names: dict[str, str]
) -> SettingsValue | None:
    """Its hooks as those of settings; `other_names` are the events that go by other names where it runs."""
    if not isinstance(kind.hooks, dict) or not kind.hooks:
        return None
    hooks = {other_names.get(event, event): entries for event, entries in kind.hooks.items()}
    return SettingsValue(value=hooks, source="flag", path=f"agent {name}", root=session.config.cwd)


def server_entries(kind: AgentDefinition) -> list[Any]:
    return kind.mcpServers if isinstance(kind.mcpServers, list) else []


def server_specs(session: Session, name: str, kind: AgentDefinition) -> Sequence[ServerSpec]:
    """The servers that are its own: a name alone means one of the session's. What is wrong with one is told."""
    own: Json = {}
    for entry in server_entries(kind):
        if isinstance(entry, dict):
            own |= entry
    if not own or session.config.extensions.mcp is None:
        return ()
    found = session.config.extensions.mcp.parse_agent(own, f"agent {name!r}")
    for error in found.problems:
        session.config.warn(error)
    return [spec for spec in found.specs if not spec.problem]


async def load_skills(session: Session, name: str, kind: AgentDefinition) -> list[str]:
    """The texts of the skills that it knows from the start."""
    found: list[str] = []
    for wanted in kind.skills if isinstance(kind.skills, list) else ():
        template = session.commands.find_usable(wanted)
        if template is None:
            session.config.warn(f"agent {name!r}: there is no skill {wanted!r} that a model may use")
            continue
        from parley.engine.commands.expansion import expand_template

        try:
            blocks = await expand_template(session.conversation, template, "")
        except ToolError as exc:
            session.config.warn(f"agent {name!r}: the skill {wanted!r} is left out: {exc}")
            continue
        text = "\n\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")
        found.append(f"The skill {wanted!r}, which you follow where it fits:\n\n{text}")
    return found
