"""Plugins, agents and commands from files (Claude Code plugins, not the packages of `entry_points.py`)."""

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
        self._launch = launch

    @cached_property
    def _loaded(self) -> Plugins:
        """The plugins that the command line names. Their hooks take effect now."""
        options, launch = self._launch.options, self._launch
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
        cwd = self._launch.cwd
        return [os.path.realpath(os.path.join(cwd, os.path.expanduser(folder))) for folder in folders or ()]

    def plugins(self) -> list[Plugin]:
        return list(self._loaded.found)

    def list_plugins(self, again: bool) -> tuple[list[Json], list[Json]]:
        """The loaded plugins, and what is wrong with the others."""
        if again:
            self.__dict__.pop("_gathered", None)
        return [plugin.json() for plugin in self._loaded.found], list(self._loaded.errors)

    def load_templates(self) -> Sequence[PromptTemplate]:
        """The commands and skills. What is wrong with their files is reported."""
        if self._launch.options.safe_mode:
            return ()
        found, errors = self._launch.settings.templates(self._loaded.found)
        for error in errors:
            self._launch.warn(str(error))
        return found

    @cached_property
    def agents(self) -> AgentRegistry:
        """The kinds of subagents; files are read when a session first needs them. Raises UsageError."""
        given = parse_agents(self._launch.options.agents)

        def load() -> dict[str, AgentDefinition]:
            if self._launch.options.safe_mode:
                return {}
            found, errors = self._launch.settings.agents()
            for error in errors:
                self._launch.warn(str(error))
            of_plugins = {name: kind for plugin in self._loaded.found for name, kind in plugin.agents.items()}
            return {**of_plugins, **found, **given}

        return AgentRegistry(load)

    def load_agent_memory(self, scope: str, name: str, denies: Callable[[str], bool]) -> str:
        """The text of the memory that an agent keeps."""
        text, error = self._launch.settings.agent_memory(scope, name, denies)
        if error:
            self._launch.warn(f"agent {name!r}: {error}")
        return text


def parse_agents(text: str | None) -> Mapping[str, AgentDefinition]:
    """The agents of `--agents`. Raises UsageError."""
    if text is None:
        return {}
    from parley.settings.files.agents import from_command_line

    return from_command_line(text)
