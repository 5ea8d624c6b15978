"""Tools that hand work on: ListAgents and SendMessage for subagents, Skill, and SendUserMessage for the user.

The engine runs subagents (`AgentCalls`, in engine/agents/subagents.py) and finds the texts of skills.

See also: `agent.py` for the tool that starts a subagent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.agent import SEND
from parley.tools.base import HIDDEN, Context, NoInput, Tool, ToolOutput, open_service
from parley.workspace.base import Scope

ABOUT = (
    "Gives you the instructions of a skill: how the user, or the project, wants a certain kind of work to be done. "
    "When what was asked fits one of them, call this before anything else, and then follow what it says. Use exact "
    "names, and only these:"
)
MOST_CHARS = 15_000
"""The limit of all descriptions together; if they are longer, each is truncated to its share."""
LEAST_CHARS = 40


class MessageInput(Struct, frozen=True, kw_only=True):
    """Fields of other versions (type, recipients) are ignored."""

    to: Annotated[str, Meta(min_length=1, description="The agent's id, or the name it was given")]
    message: Annotated[str, Meta(min_length=1, description="What the agent is told")]
    summary: Annotated[str | None, HIDDEN] = None


class SkillInput(Struct, frozen=True, kw_only=True):
    skill: Annotated[str, Meta(min_length=1, description="The skill's name")]
    args: Annotated[str | None, Meta(description="The message")] = None


class ListAgents(Tool):
    name = "ListAgents"
    reads_only = True
    input = NoInput
    description = "Lists the agents that SendMessage reaches."

    async def run(self, call: NoInput, context: Context, reach: Scope) -> ToolOutput:
        agents = open_service(context.session.open_agents, "Agents").list_agents()
        listing = "\n".join(map(line_of, agents)) or "There are no agents yet."
        return ToolOutput(content=listing, detail={"listing": listing, "agents": agents})


def line_of(agent: Json) -> str:
    name = f" ({agent['name']})" if agent.get("name") else ""
    return f"{agent['id']}{name}, {agent['type']}, {agent['status']}: {agent['description']}"


class SendMessage(Tool):
    name = SEND
    # As with Agent, whatever comes of it is decided call by call.
    reads_only = True
    input = MessageInput
    description = (
        "Sends a message to an agent. A running agent reads it before its next step; a finished one resumes with it, "
        "in the background, and knows all it knew."
    )

    async def run(self, call: Any, context: Context, reach: Scope) -> ToolOutput:
        return await open_service(context.session.open_agents, "Agents").send(call.to, call.message, reach.call)


class SendUserMessageInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    message: Annotated[str, Meta(min_length=1, description="Markdown")]
    status: Annotated[Literal["normal", "proactive"], HIDDEN] = "normal"


class SendUserMessage(Tool):
    name = "SendUserMessage"
    reads_only = True
    input = SendUserMessageInput
    description = (
        "Shows the user a message. The user sees only what you send with it: answers, questions, results, and word of "
        "what takes long. Be brief."
    )

    async def run(self, call: SendUserMessageInput, context: Context, reach: Scope) -> ToolOutput:
        return ToolOutput(content="The message was shown.", detail={"message": call.message, "status": call.status})


class Skill(Tool):
    name = "Skill"
    reads_only = False
    input = SkillInput
    description = ABOUT

    def with_skills(self, skills: Sequence[tuple[str, str]]) -> Tool:
        """The tool for these skills: names and descriptions."""
        made = Skill()
        made.description = f"{ABOUT}\n{listing(skills)}"
        return made

    async def run(self, call: SkillInput, context: Context, reach: Scope) -> ToolOutput:
        if context.session.run_skill is None:
            raise ToolError("Skills are not available in this session.")
        content = await context.session.run_skill(call.skill, call.args or "")
        return ToolOutput(content=content, detail={"success": True, "commandName": call.skill})


def listing(skills: Sequence[tuple[str, str]]) -> str:
    whole = sum(len(about) for _, about in skills)
    share = max(LEAST_CHARS, MOST_CHARS // max(1, len(skills))) if whole > MOST_CHARS else MOST_CHARS
    return "\n".join(f"- {name}: {about if len(about) <= share else about[:share] + '…'}" for name, about in skills)
