"""Agent (listed as Task): delegate work to a subagent (engine/agents/subagents.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, Tool, ToolOutput
from parley.tools.delegation.calls import AgentInput, AgentShown
from parley.workspace.base import Scope

MOST_LISTED = 60
MOST_WORDS = 200
WHAT = (
    "Hands a piece of work to an agent with a context of its own, and gives you its report. With run_in_background "
    "you continue at once and are notified when it is done. Call several at once for work that is independent. Kinds:"
)


class Agent:
    name: ClassVar[str] = "Agent"
    # It changes nothing by itself: the calls of its agent are judged one by one. Several run at once.
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = AgentInput
    shown: ClassVar[type[Struct]] = AgentShown

    def __init__(self, kinds: Callable[[], list[Json]] = list) -> None:
        self._kinds = kinds

    def with_agents(self, kinds: Callable[[], list[Json]]) -> Tool:
        """The tool for these agents: their names and descriptions."""
        # Its description is a property, which the protocol cannot express.
        return cast(Tool, Agent(kinds))

    @property
    def description(self) -> str:
        """The description with the agents of the session, sorted by name."""
        rows = [f"- {kind['name']}: {kind['description'][:MOST_WORDS]}" for kind in self._kinds()[:MOST_LISTED]]
        return "\n".join([WHAT, *rows])

    async def run(self, call: Any, context: Context, reach: Scope) -> ToolOutput:
        if context.session.open_agents is None:
            raise ToolError("Agents are not available in this session.")
        return await context.session.open_agents().delegate(call, reach.call)
