"""What hook inputs say about a session, and what hook outputs can do to it."""

from __future__ import annotations

from collections.abc import Callable

from parley.protocol.base import Json, Struct


class SessionState(Struct, frozen=True, kw_only=True):
    """What hook inputs say about the session at the moment of an event."""

    mode: str
    cwd: str
    model: str
    effort: str | None
    agent: Json
    """The fields of the agent that the session runs as; empty without one."""
    title: str | None = None


class SessionActions(Struct, frozen=True, kw_only=True):
    """What outputs of hooks can do to the session."""

    set_title: Callable[[str], None]
    wake: Callable[[str], None]
    """Give the model a text, in a turn of its own if none runs."""
    reload_skills: Callable[[], None]
