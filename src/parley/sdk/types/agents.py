"""Subagents that a program defines.

Options(agents={"reviewer": AgentDefinition(description="Reviews code.", prompt="You review code.")})
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from parley.sdk.spelling import checks_names
from parley.sdk.types.shapes import EffortLevel, PermissionMode


@checks_names
@dataclass
class AgentDefinition:
    """A subagent defined by the program. Field names are those of the protocol."""

    description: str
    """When to use the agent. The model that delegates reads it."""
    prompt: str
    """The system prompt of the agent."""
    tools: list[str] | None = None
    """The tools it has; default: all."""
    disallowedTools: list[str] | None = None
    """Tools it does not have."""
    model: str | None = None
    """Its model; default: the model of the session."""
    skills: list[str] | None = None
    """The skills it has."""
    memory: Literal["user", "project", "local"] | None = None
    """Where its memory is kept between sessions."""
    mcpServers: list[str | dict[str, Any]] | None = None
    """Its MCP servers: names of servers of the session, or configurations by name."""
    initialPrompt: str | None = None
    """A first prompt, if it is the agent of the session."""
    maxTurns: int | None = None
    """The most model calls of one run."""
    background: bool | None = None
    """Run it in the background."""
    effort: EffortLevel | int | None = None
    """How much work it puts into an answer."""
    permissionMode: PermissionMode | None = None
    """Its permission mode."""
    isolation: Literal["worktree"] | None = None
    """`worktree`: work in a git worktree of its own."""
