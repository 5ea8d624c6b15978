"""What an earlier engine left of a session. Empty for a new session, which never loads `recover.py`."""

from __future__ import annotations

from parley.protocol.base import Json, Struct
from parley.protocol.blocks import ToolUse


class ResumedTurnItem(Struct, frozen=True, kw_only=True):
    """A turn of an earlier engine that continues with its open calls, or with the model. It goes first."""

    uuid: str
    calls: list[ToolUse] = []
    prompt_ids: list[str] = []
    """The prompts that its result is for, if they are known."""
    answer: tuple[str, str | None] | None = None
    """The last text and the stop reason, if only the result is missing."""
    is_given_up: bool = False
    """It was continued too often."""
    priority: int = -1


class Recovery(Struct, frozen=True, kw_only=True):
    """What is to be done before the session is as it was."""

    turn: ResumedTurnItem | None = None
    """The turn that continues when the client is there."""
    lost_tasks: list[Json] = []
    """The records of background tasks without an end: they ended with their engine."""
    undelivered: list[Json] = []
    """The records of ends whose messages may not have reached the client (tasks/manager.py)."""
    unread: list[str] = []
    """The notifications that the model has not read."""
    elicitations: list[Json] = []
    """The questions of MCP servers without an answer. A server ends with its engine, so they are not asked again."""
