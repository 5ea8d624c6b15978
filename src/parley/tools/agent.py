"""Agent (listed as Task): delegate work to a subagent, which the engine runs (engine/agents/subagents.py).

Every session loads it for its description. The other tools that hand work on are in `delegation.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from msgspec import Meta

from parley.protocol.base import Json, Struct
from parley.tools.base import HIDDEN, Context, Tool, ToolOutput, open_service
from parley.workspace.base import Scope

DEFAULT_AGENT = "general-purpose"
SEND = "SendMessage"
MOST_LISTED = 60
MOST_WORDS = 200
WHAT = (
    "Hands work to an agent with a context of its own, and gives you its report. In the background, you are notified "
    "when it is done. Call several at once for independent work. Kinds:"
)


class AgentInput(Struct, frozen=True, kw_only=True):
    """Fields of other versions (team_name, mode) are ignored."""

    description: Annotated[str, Meta(description="The work in three to five words")]
    prompt: Annotated[str, Meta(min_length=1, description="All that the agent must know: it sees nothing else")]
    subagent_type: Annotated[str, Meta(description="One of the kinds")] = DEFAULT_AGENT
    model: Annotated[
        Literal["sonnet", "opus", "haiku", "fable"] | None, Meta(description="Another model than the kind's own")
    ] = None
    effort: Annotated[Literal["low", "medium", "high", "xhigh", "max"] | None, HIDDEN] = None
    run_in_background: Annotated[bool | None, Meta(description="Go on without waiting for the report")] = None
    name: Annotated[str | None, HIDDEN] = None
    isolation: Annotated[
        Literal["worktree"] | None,
        Meta(description="In a git worktree of its own, which is kept if anything in it changes"),
    ] = None


class Agent(Tool):
    name = "Agent"
    # It changes nothing by itself: the calls of its agent are judged one by one. Several run at once.
    reads_only = True
    input = AgentInput

    def __init__(self, kinds: Callable[[], list[Json]] = list) -> None:
        self._kinds = kinds

    def with_agents(self, kinds: Callable[[], list[Json]]) -> Tool:
        """The tool for these agents: their names and descriptions."""
        return Agent(kinds)

    @property
    def description(self) -> str:  # type: ignore[override]  # it is never assigned
        """The description with the agents of the session, sorted by name."""
        rows = [f"- {kind['name']}: {kind['description'][:MOST_WORDS]}" for kind in self._kinds()[:MOST_LISTED]]
        return "\n".join([WHAT, *rows])

    async def run(self, call: Any, context: Context, reach: Scope) -> ToolOutput:
        return await open_service(context.session.open_agents, "Agents").delegate(call, reach.call)
