"""Plugins, agents and commands from files (Claude Code plugins, not the packages of `entry_points.py`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from parley.compose.launch_context import LaunchContext
from parley.compose.permissions import denies_user_files
from parley.engine.agents.registry import AgentRegistry
from parley.protocol.base import Json
from parley.protocol.messages.requests import AgentDefinition, PluginEntry
from parley.settings.base import Plugin, Plugins, PromptTemplate, printable


class PluginLoader:
    def __init__(self, launch: LaunchContext) -> None:
        self._launch = launch
        self._added: tuple[PluginEntry, ...] = ()
        """The plugins that the client added to the running session."""

    @cached_property
    def _loaded(self) -> Plugins:
        """The plugins of the session. Their hooks take effect now."""
        found = self._read(self._added)
        if found.found or found.errors:
            self._use(found)
        return found

    def _read(self, added: Sequence[PluginEntry]) -> Plugins:
        """Read the plugins of the command line, those that settings enable and those that the client added."""
        options, enabled = self._launch.options, self._launch.settings.merged.plugins
        with_servers = (*(options.plugin_dirs or ()), *(one.path for one in added if not one.skipMcpDiscovery))
        without = (*(options.plugin_dirs_no_mcp or ()), *(one.path for one in added if one.skipMcpDiscovery))
        if options.safe_mode or not (with_servers or without or enabled):
            return Plugins()
        from parley.settings.files.installed_plugins import data_folder
        from parley.settings.files.plugins import load_plugins
        from parley.settings.policy import build_block, find_marketplace_policy

        problems: list[Json] = []
        if (policy := find_marketplace_policy(self._launch.settings.merged)) is not None:
            problems += [build_block(place, policy) for place in (*with_servers, *without)]
            with_servers = without = ()
        folders, serverless = self._find_folders(with_servers, problems), self._find_folders(without, problems)
        data = data_folder(self._launch.config, "inline")
        given = load_plugins(dict.fromkeys([*folders, *serverless], data), serverless)
        found = Plugins(found=given.found, errors=(*problems, *given.errors))
        return self._add_installed(found, is_limited=policy is not None) if enabled else found

    def _use(self, found: Plugins) -> None:
        """Let the hooks of plugins take effect, and report what is wrong with plugins."""
        launch = self._launch
        launch.settings.set_plugin_hooks([plugin.hooks for plugin in found.found if plugin.hooks is not None])
        for error in found.errors:
            launch.warn(f"plugin {printable(str(error.get('path') or error['plugin']))}: {error['message']}")

    def prepare(self, added: Sequence[PluginEntry]) -> tuple[Plugins, Callable[[], None]]:
        """Read the plugins again, with further ones. The function that is returned lets them take effect."""
        every = (*self._added, *added)
        found = self._read(every)

        def apply() -> None:
            self._added = every
            self.__dict__["_loaded"] = found
            self._use(found)

        return found, apply

    def _add_installed(self, given: Plugins, *, is_limited: bool) -> Plugins:
        """Add the installed plugins. One of the command line takes the place of an installed one of the same name.

        It does not take the place of one that an administrator enables."""
        from parley.settings.files.installed_plugins import find_folders
        from parley.settings.files.plugins import load_plugins
        from parley.settings.policy import build_block, find_refused

        launch, merged = self._launch, self._launch.settings.merged
        fixed = {id.rpartition("@")[0] for id, value in merged.plugins.items() if value.source == "managed"}
        replaced = [plugin.name for plugin in given.found if plugin.name in fixed]
        given = Plugins(
            found=tuple(plugin for plugin in given.found if plugin.name not in fixed),
            errors=(*given.errors, *(build_block(name, "enabledPlugins") for name in replaced)),
        )
        names = {plugin.name for plugin in given.found}
        wanted = {id: value for id, value in merged.plugins.items() if id.rpartition("@")[0] not in names}
        enabled = {id: value.source for id, value in wanted.items() if value.value is not False}
        refused = find_refused(merged, launch.config, enabled) if is_limited else {}
        folders, problems = find_folders(launch.config, launch.started_in, [id for id in enabled if id not in refused])
        installed = load_plugins(folders)
        return Plugins(
            found=(*given.found, *installed.found),
            errors=(*given.errors, *refused.values(), *problems, *installed.errors),
        )

    def _find_folders(self, places: Sequence[str], problems: list[Json]) -> list[str]:
        """The folders of plugins: a folder with a manifest, the plugins in a folder, or those in a zip file."""
        from parley.settings.files.plugins import build_load_error, has_manifest

        found: list[str] = []
        for number, place in enumerate(places):
            folder = os.path.realpath(os.path.join(self._launch.host_folder, os.path.expanduser(place)))
            if has_manifest(Path(folder)):
                found.append(folder)
                continue
            from parley.settings.files.plugin_source import InvalidSource, expand_place

            try:
                found += expand_place(folder, self._launch.config)
            except InvalidSource as exc:
                problems.append(build_load_error(number, folder, "source-invalid", f"not used as a plugin: {exc}"))
        return found

    def plugins(self) -> list[Plugin]:
        return list(self._loaded.found)

    def list_plugins(self) -> tuple[list[Json], list[Json]]:
        """The loaded plugins, and what is wrong with the others."""
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

        def find_source(name: str) -> str:
            return "flagSettings" if name in given else self._launch.settings.agent_sources.get(name, "plugin")

        return AgentRegistry(load, find_source)

    def unused_agent_fields(self) -> list[str]:
        """A warning for every field of `--agents` that has no effect. Raises UsageError."""
        text = self._launch.options.agents
        if text is None or self._launch.options.safe_mode:
            return []
        from parley.settings.files.agents import list_unused

        return list_unused(text)

    def load_agent_memory(self, scope: str, name: str, denies: Callable[[str], bool]) -> str:
        """The text of the memory that an agent keeps."""
        denies = denies_user_files(self._launch, denies) if scope == "user" else denies
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
