"""ListAgents: the agents that SendMessage reaches (engine/agents/subagents.py)."""

from __future__ import annotations

from typing import ClassVar

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, ToolOutput
from parley.workspace.base import Scope


class ListAgentsInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ListAgents:
    name: ClassVar[str] = "ListAgents"
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = ListAgentsInput
    description: ClassVar[str] = "Lists the agents that SendMessage reaches."

    async def run(self, call: ListAgentsInput, context: Context, reach: Scope) -> ToolOutput:
        if context.session.open_agents is None:
            raise ToolError("Agents are not available in this session.")
        agents = context.session.open_agents().list_agents()
        listing = "\n".join(map(line_of, agents)) or "There are no agents yet."
        return ToolOutput(content=listing, detail={"listing": listing, "agents": agents})


def line_of(agent: Json) -> str:
    name = f" ({agent['name']})" if agent.get("name") else ""
    return f"{agent['id']}{name}, {agent['type']}, {agent['status']}: {agent['description']}"
