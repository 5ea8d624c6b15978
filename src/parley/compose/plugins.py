"""What people add by files: plugins, the agents and the commands there are."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from parley.compose.launch_context import Basis
from parley.engine.agents.registry import Agents
from parley.protocol.base import Json
from parley.settings.base import Plugin, Plugins, Recipe, shown

if TYPE_CHECKING:
    from parley.protocol.messages.requests import AgentDefinition


class Extensions:
    def __init__(self, basis: Basis) -> None:
        self._basis = basis

    @cached_property
    def _gathered(self) -> Plugins:
        """The plugins that the command line names; their hooks count from now on."""
        options, basis = self._basis.options, self._basis
        if options.safe_mode or not (options.plugin_dirs or options.plugin_dirs_no_mcp):
            return Plugins()
        from parley.settings.files.plugins import gather

        found = gather(self._located(options.plugin_dirs), self._located(options.plugin_dirs_no_mcp))
        basis.settings.bring([plugin.hooks for plugin in found.found if plugin.hooks is not None])
        for flaw in found.errors:
            basis.complain(f"plugin {shown(str(flaw.get('path') or flaw['plugin']))}: {flaw['message']}")
        return found

    def _located(self, folders: tuple[str, ...] | None) -> list[str]:
        cwd = self._basis.cwd
        return [os.path.realpath(os.path.join(cwd, os.path.expanduser(folder))) for folder in folders or ()]

    def plugins(self) -> list[Plugin]:
        return list(self._gathered.found)

    def listed_plugins(self, again: bool) -> tuple[list[Json], list[Json]]:
        """The plugins there are, and what is wrong with others."""
        if again:
            self.__dict__.pop("_gathered", None)
        return [plugin.json() for plugin in self._gathered.found], list(self._gathered.errors)

    def recipes(self) -> Sequence[Recipe]:
        """The commands and skills there are. What is wrong with their files is told."""
        if self._basis.options.safe_mode:
            return ()
        found, flaws = self._basis.settings.recipes(self._gathered.found)
        for flaw in flaws:
            self._basis.complain(str(flaw))
        return found

    @cached_property
    def agents(self) -> Agents:
        """The kinds of subagents; files are read when a session first needs them. Raises UsageError."""
        given = agents_given(self._basis.options.agents)

        def load() -> dict[str, AgentDefinition]:
            if self._basis.options.safe_mode:
                return {}
            found, flaws = self._basis.settings.agents()
            for flaw in flaws:
                self._basis.complain(str(flaw))
            of_plugins = {name: kind for plugin in self._gathered.found for name, kind in plugin.agents.items()}
            return {**of_plugins, **found, **given}

        return Agents(load)

    def agent_memory(self, scope: str, name: str, denies: Callable[[str], bool]) -> str:
        """What an agent is told of the memory that it keeps."""
        text, flaw = self._basis.settings.agent_memory(scope, name, denies)
        if flaw:
            self._basis.complain(f"agent {name!r}: {flaw}")
        return text


def agents_given(text: str | None) -> Mapping[str, AgentDefinition]:
    """What `--agents` says. Raises UsageError."""
    if text is None:
        return {}
    from parley.settings.files.agents import on_command_line

    return on_command_line(text)
