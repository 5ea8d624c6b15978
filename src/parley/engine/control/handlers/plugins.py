"""The answers to requests that read files again: skills, commands, plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.errors import NotPossible
from parley.protocol.base import Json
from parley.protocol.messages import requests as ask
from parley.protocol.messages.system import CommandsChanged

if TYPE_CHECKING:
    from parley.engine.session.session import Session


def reload_skills(session: Session, request: ask.ReloadSkills) -> Json:
    reread(session)
    skills = {recipe.name for recipe in session.commands.skills()}
    return {"skills": [command for command in session.commands.listed() if command["name"] in skills]}


def reload_plugins(session: Session, request: ask.ReloadPlugins) -> Json:
    """Commands, skills, agents and hooks of plugins are read again; their servers stay as they are."""
    if request.refuse_if_busy is True and session.is_running:
        raise NotPossible("a turn is running; plugins are not read again before its end", "busy")
    found, errors = session.setup.plugins(True)
    session.setup.agents.reload()
    if session.setup.settings is not None:
        session.listeners.settle(session, session.setup.settings.merged)
    reread(session)
    return {
        "commands": session.commands.listed(),
        "agents": session.setup.agents.listing(),
        "plugins": found,
        "mcpServers": [{"name": state.name, "status": state.status} for state in session.servers.states()],
        "error_count": len(errors),
    }


def reread(session: Session) -> None:
    """Read commands and skills again, and tell it if that changes what there is."""
    before = session.commands.listed()
    session.commands.reload()
    now = session.commands.listed()
    if now != before:
        session.tell(CommandsChanged(commands=now))
