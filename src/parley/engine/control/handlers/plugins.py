"""Handlers that read skills, commands, plugins and output styles again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from parley.errors import NotPossible
from parley.protocol.base import Json
from parley.protocol.messages import panel_requests
from parley.protocol.messages.occasional import CommandsChanged

if TYPE_CHECKING:
    from parley.engine.session.config import PluginReload
    from parley.engine.session.session import Session
    from parley.protocol.messages.requests import PluginEntry


def reload_skills(session: Session, request: panel_requests.ReloadSkills) -> Json:
    reload_templates(session)
    skills = {recipe.name for recipe in session.commands.skills()}
    return {"skills": [command for command in session.commands.list_commands() if command["name"] in skills]}


def reload_plugins(session: Session, request: panel_requests.ReloadPlugins) -> Json:
    """Read plugins again, with those that the client adds. Servers are restarted only if they have changed."""
    if request.refuse_if_busy is True and is_busy(session):
        text = "the session is busy; plugins cannot be reloaded until it is idle"
        raise NotPossible(text, "reload_plugins_busy")
    prepared = session.config.extensions.prepare_plugins(parse_added(session, request))
    if request.hold_on_cache_impact is True:
        added, removed = session.servers.compare_plugin_servers(prepared.servers)
        # Nothing is cached before the first prompt.
        if (added or removed) and session.journal.history.render():
            impact = {"mcp_servers_added": added, "mcp_servers_removed": removed, "lsp_tool_change": None}
            return {**describe_parts(session), "held": True, "cache_impact": impact}
    apply_plugins(session, prepared)
    return {**describe_parts(session), **({"held": False} if request.hold_on_cache_impact is True else {})}


def parse_added(session: Session, request: panel_requests.ReloadPlugins) -> list[PluginEntry]:
    """Raises NotPossible if plugins may not be added."""
    added, settings = request.add_plugins or [], session.config.settings
    if not added:
        return []
    if settings is not None and (key := settings.merged.find_lock("plugins")):
        raise NotPossible(f"add_plugins is disabled by managed settings ({key})")
    if session.config.options.safe_mode:
        raise NotPossible("add_plugins has no effect with --safe-mode")
    for plugin in added:
        if not os.path.isabs(plugin.path):
            raise NotPossible(f"add_plugins: the path {plugin.path!r:.500} is not absolute")
    return added


def apply_plugins(session: Session, prepared: PluginReload) -> None:
    prepared.apply()
    session.forget_plugins()
    session.config.agents.registry.reload()
    if session.config.settings is not None:
        session.hooks.set_commands(session.config.settings.merged)
    reload_templates(session)
    session.servers.replace_plugin_servers(prepared.servers)


def describe_parts(session: Session) -> Json:
    """What the plugins of a session have brought."""
    found, errors = session.plugins
    return {
        "commands": session.commands.list_commands(),
        "agents": session.config.agents.registry.to_json(),
        "plugins": found,
        "mcpServers": [{"name": state.name, "status": state.status} for state in session.servers.states()],
        "error_count": len(errors),
    }


def is_busy(session: Session) -> bool:
    """Whether a turn or an agent runs, or a prompt waits. A background command alone does not count."""
    return session.is_running or len(session.prompt_queue) > 0 or session.tasks.has_agents()


def reload_output_styles(session: Session, request: panel_requests.ReloadOutputStyles) -> Json:
    return {"available_output_styles": session.config.extensions.list_styles()}


def reload_templates(session: Session) -> None:
    """Read commands and skills again, and report a change."""
    before = session.commands.list_commands()
    session.commands.reload()
    now = session.commands.list_commands()
    if now != before:
        session.outbox.send(CommandsChanged(commands=now))
