"""Handlers that read skills, commands and plugins again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.errors import NotPossible
from parley.protocol.base import Json
from parley.protocol.messages import requests
from parley.protocol.messages.system import CommandsChanged

if TYPE_CHECKING:
    from parley.engine.session.session import Session


def reload_skills(session: Session, request: requests.ReloadSkills) -> Json:
    reload_templates(session)
    skills = {recipe.name for recipe in session.commands.skills()}
    return {"skills": [command for command in session.commands.list_commands() if command["name"] in skills]}


def reload_plugins(session: Session, request: requests.ReloadPlugins) -> Json:
    """Read commands, skills, agents and hooks of plugins again. Their servers are not restarted."""
    if request.refuse_if_busy is True and session.is_running:
        raise NotPossible("a turn is running; plugins are not read again before its end", "busy")
    found, errors = session.config.extensions.list_plugins(True)
    session.config.agents.registry.reload()
    if session.config.settings is not None:
        session.hooks.set_commands(session.config.settings.merged)
    reload_templates(session)
    return {
        "commands": session.commands.list_commands(),
        "agents": session.config.agents.registry.to_json(),
        "plugins": found,
        "mcpServers": [{"name": state.name, "status": state.status} for state in session.servers.states()],
        "error_count": len(errors),
    }


def reload_templates(session: Session) -> None:
    """Read commands and skills again, and report a change."""
    before = session.commands.list_commands()
    session.commands.reload()
    now = session.commands.list_commands()
    if now != before:
        session.outbox.send(CommandsChanged(commands=now))
