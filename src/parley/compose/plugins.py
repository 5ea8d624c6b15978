"""What people add by files: plugins, the agents and the commands there are."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from parley.compose.launch_context import LaunchContext
from parley.engine.agents.registry import AgentRegistry
from parley.protocol.base import Json
from parley.settings.base import Plugin, Plugins, PromptTemplate, printable

if TYPE_CHECKING:
    from parley.protocol.messages.requests import AgentDefinition


class PluginLoader:
    def __init__(self, launch: LaunchContext) -> None:
        self._basis = launch

    @cached_property
    def _loaded(self) -> Plugins:
        """The plugins that the command line names; their hooks count from now on."""
        options, launch = self._basis.options, self._basis
        if options.safe_mode or not (options.plugin_dirs or options.plugin_dirs_no_mcp):
            return Plugins()
        from parley.settings.files.plugins import load_plugins

        found = load_plugins(
            self._resolve_folders(options.plugin_dirs), self._resolve_folders(options.plugin_dirs_no_mcp)
        )
        launch.settings.set_plugin_hooks([plugin.hooks for plugin in found.found if plugin.hooks is not None])
        for error in found.errors:
            launch.warn(f"plugin {printable(str(error.get('path') or error['plugin']))}: {error['message']}")
        return found

    def _resolve_folders(self, folders: tuple[str, ...] | None) -> list[str]:
        cwd = self._basis.cwd
        return [os.path.realpath(os.path.join(cwd, os.path.expanduser(folder))) for folder in folders or ()]

    def plugins(self) -> list[Plugin]:
        return list(self._loaded.found)

    def list_plugins(self, again: bool) -> tuple[list[Json], list[Json]]:
        """The plugins there are, and what is wrong with others."""
        if again:
            self.__dict__.pop("_gathered", None)
        return [plugin.json() for plugin in self._loaded.found], list(self._loaded.errors)

    def load_templates(self) -> Sequence[PromptTemplate]:
        """The commands and skills there are. What is wrong with their files is told."""
        if self._basis.options.safe_mode:
            return ()
        found, flaws = self._basis.settings.templates(self._loaded.found)
        for error in flaws:
            self._basis.warn(str(error))
        return found

    @cached_property
    def agents(self) -> AgentRegistry:
        """The kinds of subagents; files are read when a session first needs them. Raises UsageError."""
        given = parse_agents(self._basis.options.agents)

        def load() -> dict[str, AgentDefinition]:
            if self._basis.options.safe_mode:
                return {}
            found, flaws = self._basis.settings.agents()
            for error in flaws:
                self._basis.warn(str(error))
            of_plugins = {name: kind for plugin in self._loaded.found for name, kind in plugin.agents.items()}
            return {**of_plugins, **found, **given}

        return AgentRegistry(load)

    def load_agent_memory(self, scope: str, name: str, denies: Callable[[str], bool]) -> str:
        """What an agent is told of the memory that it keeps."""
        text, error = self._basis.settings.agent_memory(scope, name, denies)
        if error:
            self._basis.warn(f"agent {name!r}: {error}")
        return text


def parse_agents(text: str | None) -> Mapping[str, AgentDefinition]:
    """What `--agents` says. Raises UsageError."""
    if text is None:
        return {}
    from parley.settings.files.agents import from_command_line

    return from_command_line(text)
