"""The inputs of the delegating tools: Agent (listed as Task), SendMessage and Skill."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from parley.protocol.base import Struct

DEFAULT_AGENT = "general-purpose"
SEND = "SendMessage"


class AgentInput(Struct, frozen=True, kw_only=True):
    """Fields of other versions (team_name, mode) are ignored."""

    description: Annotated[str, Meta(description="The work in three to five words")]
    prompt: Annotated[str, Meta(min_length=1, description="All that the agent must know: it sees nothing else")]
    subagent_type: Annotated[str, Meta(description="Which kind of agent")] = DEFAULT_AGENT
    model: Annotated[
        Literal["sonnet", "opus", "haiku", "fable"] | None, Meta(description="A model other than the agent's own")
    ] = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    run_in_background: Annotated[bool | None, Meta(description="Do not wait; you are notified when it is done")] = None
    name: Annotated[str | None, Meta(description="What to call this agent")] = None
    isolation: Annotated[
        Literal["worktree", "remote"] | None, Meta(description="`worktree`: in a git worktree of its own")
    ] = None


class AgentShown(Struct, frozen=True, kw_only=True):
    """The input as the model sees it."""

    description: Annotated[str, Meta(description="The work in three to five words")]
    prompt: Annotated[str, Meta(description="All that the agent must know: it sees nothing else")]
    subagent_type: str = DEFAULT_AGENT
    model: Literal["sonnet", "opus", "haiku", "fable"] | None = None
    run_in_background: bool | None = None
    isolation: Annotated[
        Literal["worktree"] | None,
        Meta(description="`worktree`: in a git worktree of its own, which is kept if it changes anything"),
    ] = None


class MessageInput(Struct, frozen=True, kw_only=True):
    """Fields of other versions (type, recipients) are ignored."""

    to: Annotated[str, Meta(min_length=1)]
    message: Annotated[str, Meta(min_length=1)]
    summary: str | None = None


class MessageShown(Struct, frozen=True, kw_only=True):
    """The input as the model sees it."""

    to: Annotated[str, Meta(description="The agent's id, or the name it was given")]
    message: str


class SkillInput(Struct, frozen=True, kw_only=True):
    skill: Annotated[str, Meta(min_length=1, description="The skill's name")]
    args: Annotated[str | None, Meta(description="The message")] = None
