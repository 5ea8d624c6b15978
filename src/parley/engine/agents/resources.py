"""The skills, hooks and MCP servers of the definition of an agent.

    resources = AgentResources(conversation, commands, "reviewer", kind)
    contexts = await resources.open(agent_id, tools)     # servers are connected, hooks are registered
    resources.close()

`settings/files/agents.py` decides whether a definition may have them. An invalid one is reported and skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.commands.commands import Commands
from parley.engine.context.conversation import Conversation
from parley.engine.session.config import SessionConfig
from parley.errors import ToolError
from parley.mcp.base import ServerSpec
from parley.protocol.base import Json
from parley.protocol.messages.requests import AgentDefinition
from parley.settings.base import SettingsValue, Source

if TYPE_CHECKING:
    from parley.mcp.server_connection import McpServer
    from parley.tools.base import ToolRegistry

RESOURCE_FIELDS = ("skills", "hooks", "mcpServers")


def has_resources(kind: AgentDefinition) -> bool:
    return any(getattr(kind, field) for field in RESOURCE_FIELDS)


class AgentResources:
    """The resources of one running subagent."""

    def __init__(self, own: Conversation, commands: Commands, name: str, kind: AgentDefinition) -> None:
        """`own` is the conversation of the session."""
        self._own = own
        self._commands = commands
        self._name = name
        self._kind = kind
        self._agent_id = ""
        self._servers: list[McpServer] = []

    async def open(self, agent_id: str, tools: ToolRegistry) -> list[str]:
        """Register hooks, connect servers and load skills. Returns context for the agent."""
        self._agent_id = agent_id
        hooks = agent_hooks(self._own.config, self._name, self._kind, {"Stop": "SubagentStop"})
        if hooks is not None:
            self._own.hooks.add_agent(agent_id, hooks)
        missing = await self._connect(tools)
        return [*missing, *await load_skills(self._own, self._commands, self._name, self._kind)]

    async def _connect(self, tools: ToolRegistry) -> list[str]:
        """Connect the agent's own servers. Returns a text about each that failed."""
        from parley.engine.mcp.server_tool import make_tools
        from parley.mcp.content import clash_reason, find_clash

        config, manager = self._own.config, self._own.parts.servers
        sources, inherited = config.extensions.mcp, tools.external
        specs = server_specs(config, self._name, self._kind)
        if not specs:
            return []

        def changed(server: McpServer) -> None:
            own = make_tools(self._servers, sources, self._own.parts.outbox.send, config.warn)
            tools.set_external({**inherited, **own}, tools.explain_absence)

        held = manager.names()
        for spec in specs:
            other = find_clash(spec.name, held)
            error = "" if other is None else clash_reason(spec.name, other)
            self._servers.append(manager.make_server(msgspec.structs.replace(spec, problem=error), changed))
            held.append(spec.name)
        for server in self._servers:
            server.start()
        await asyncio.gather(*(server.settled.wait() for server in self._servers))
        lost = [server for server in self._servers if server.status != "connected"]
        texts = [f"the MCP server {one.spec.name!r} is not connected ({one.status}): {one.reason}" for one in lost]
        for text in texts:
            config.warn(f"agent {self._name!r}: {text}")
        return [f"Some of your own tools are missing: {text}" for text in texts]

    def close(self) -> None:
        """Remove the hooks and close the servers, without waiting: an interrupt must not block."""
        self._own.hooks.remove_agent(self._agent_id)
        servers, self._servers = self._servers, []
        for server in servers:
            self._own.parts.servers.retire(server)


def agent_hooks(
    config: SessionConfig, name: str, kind: AgentDefinition, other_names: dict[str, str]
) -> SettingsValue | None:
    """The hooks of a definition, in the form of settings. `other_names` renames events."""
    if not isinstance(kind.hooks, dict) or not kind.hooks:
        return None
    hooks = {other_names.get(event, event): entries for event, entries in kind.hooks.items()}
    source: Source = "project" if config.agents.registry.is_of_project(name) else "flag"
    return SettingsValue(value=hooks, source=source, path=f"agent {name}", root=config.cwd)


def server_entries(kind: AgentDefinition) -> list[Any]:
    return kind.mcpServers if isinstance(kind.mcpServers, list) else []


def server_specs(config: SessionConfig, name: str, kind: AgentDefinition) -> Sequence[ServerSpec]:
    """The agent's own servers. A name alone refers to a server of the session. Errors are warned about."""
    own: Json = {}
    for entry in server_entries(kind):
        if isinstance(entry, dict):
            own |= entry
    if not own:
        return ()
    found = config.extensions.mcp.parse_agent(own, f"agent {name!r}", config.agents.registry.is_of_project(name))
    for error in found.problems:
        config.warn(error)
    return [spec for spec in found.specs if not spec.problem]


async def load_skills(own: Conversation, commands: Commands, name: str, kind: AgentDefinition) -> list[str]:
    """The texts of the skills that an agent starts with."""
    found: list[str] = []
    warn = own.config.warn
    for skill in kind.skills if isinstance(kind.skills, list) else ():
        template = commands.find_usable(skill)
        if template is None:
            warn(f"agent {name!r}: there is no skill {skill!r} that a model can use")
            continue
        from parley.engine.commands.expansion import expand_template

        try:
            blocks = await expand_template(own, template, "")
        except ToolError as exc:
            warn(f"agent {name!r}: the skill {skill!r} is left out: {exc}")
            continue
        text = "\n\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")
        found.append(f"The skill {skill!r}, which you follow where it fits:\n\n{text}")
    return found
