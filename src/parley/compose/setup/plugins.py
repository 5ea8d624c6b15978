"""Install plugins, list them, switch them on and off, and check one without installing it.

See also: `compose/plugins.py` loads the plugins of a session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from parley.compose.launch_context import LaunchContext
from parley.compose.setup.servers import parse_entry
from parley.errors import UsageError
from parley.protocol.base import Json, Struct
from parley.settings import safe_read
from parley.settings.base import Plugin, SettingsWriteError
from parley.settings.files import installed_plugins
from parley.settings.files.installed_plugins import InstalledPlugin
from parley.settings.files.plugin_source import InvalidSource, find_roots, staged
from parley.settings.files.plugins import read_plugin
from parley.settings.policy.plugins import describe_obstacle, find_marketplace_policy

DESTINATIONS = {"user": "userSettings", "project": "projectSettings", "local": "localSettings"}
NO_MARKETPLACE = "Parley uses no plugin marketplaces; install from a folder, a zip file or a git URL"


class PluginReport(Struct, frozen=True, kw_only=True):
    """What a check of a plugin found."""

    errors: list[str] = []
    warnings: list[str] = []
    contents: list[str] = []
    """What it brings, in words."""


class PluginStore:
    """The plugins that are installed in the config directory. Its methods raise UsageError."""

    def __init__(self, launch: LaunchContext) -> None:
        self._launch = launch
        self._folder = launch.config / installed_plugins.FOLDER

    def list_all(self) -> list[Json]:
        """The plugins that are installed for this directory, as `plugin list --json` prints them."""
        enabled = self._launch.settings.merged.plugins
        return [
            {
                "id": plugin.id,
                **plugin.to_json(),
                "enabled": plugin.id in enabled and enabled[plugin.id].value is not False,
                **self._find_error(plugin),
            }
            for plugin in self._installed()
        ]

    def install(self, source: str, path: str, scope: str) -> tuple[Json, PluginReport]:
        """Copy a plugin into the config directory and enable it; returns its entry and what it contains."""
        launch = self._launch
        self._check_policy()
        if not os.path.exists(os.path.expanduser(source)) and "/" not in source and ":" not in source:
            raise UsageError(f"there is no folder or file {source!r} ({NO_MARKETPLACE})")
        found: list[Json] = []
        try:
            with staged(source, self._folder) as folder:
                root = choose_root(folder, path, source)
                plugin = read_staged(root, source, found)
                contents = describe_contents(plugin, root)
                target = installed_plugins.cache_folder(launch.config, plugin.name, plugin.version)
                installed_plugins.move_into_cache(root, target)
            entry = self._make_entry(plugin, target, scope)
            installed_plugins.record(launch.config, entry)
        except (InvalidSource, SettingsWriteError) as exc:
            raise UsageError(str(exc)) from None
        self.set_enabled(scope, entry.id, True)
        warnings = [str(problem["message"]) for problem in found]
        return {"id": entry.id, **entry.to_json(), "enabled": True}, PluginReport(warnings=warnings, contents=contents)

    def switch(self, name: str, scope: str, is_enabled: bool) -> tuple[str, str]:
        """Enable or disable a plugin; returns its id and the scope whose settings changed."""
        plugin = self._find(name, scope)
        known = self._launch.settings.merged.plugins.get(plugin.id)
        if (known is not None and known.value is not False) == is_enabled:
            raise UsageError(f'Plugin "{plugin.id}" is already {"enabled" if is_enabled else "disabled"}')
        if is_enabled:
            self._check_policy()
        chosen = scope or plugin.scope
        self.set_enabled(chosen, plugin.id, is_enabled)
        return plugin.id, chosen

    def _check_policy(self) -> None:
        """Raises UsageError if an administrator limits where plugins come from."""
        if (key := find_marketplace_policy(self._launch.settings.merged)) is not None:
            raise UsageError(f"the plugin cannot be used: {describe_obstacle(key)}")

    def uninstall(self, name: str, scope: str) -> tuple[str, str]:
        """Remove a plugin; returns its id and scope."""
        plugin = self._find(name, scope)
        try:
            installed_plugins.forget(self._launch.config, plugin)
        except SettingsWriteError as exc:
            raise UsageError(str(exc)) from None
        self.set_enabled(plugin.scope, plugin.id, None)
        return plugin.id, plugin.scope

    def validate(self, source: str, path: str) -> PluginReport:
        """Check a plugin without installing it."""
        try:
            with staged(source, self._folder) as folder:
                root = choose_root(folder, path, source)
                found: list[Json] = []
                plugin = read_staged(root, source, found)
                errors = [str(problem["message"]) for problem in found if problem["type"] != "not-heeded"]
                errors += [text.replace(f"{root}/", "") for text in find_part_problems(plugin, root)]
                warnings = [str(problem["message"]) for problem in found if problem["type"] == "not-heeded"]
                return PluginReport(errors=errors, warnings=warnings, contents=describe_contents(plugin, root))
        except InvalidSource as exc:
            return PluginReport(errors=[str(exc)])

    def set_enabled(self, scope: str, id: str, is_enabled: bool | None) -> None:
        """Write the entry of a plugin in `enabledPlugins`; None removes it."""
        writer = self._launch.settings.writer
        try:
            writer.set_value(DESTINATIONS[scope], ["enabledPlugins", id], is_enabled)
        except SettingsWriteError as exc:
            raise UsageError(str(exc)) from None

    def _installed(self) -> list[InstalledPlugin]:
        config, cwd = self._launch.config, self._launch.cwd
        try:
            return [plugin for plugin in installed_plugins.read_installed(config) if plugin.applies_to(cwd)]
        except safe_read.UnreadableFile as exc:
            raise UsageError(f"{self._folder / installed_plugins.REGISTRY} {exc}") from None

    def _find(self, name: str, scope: str) -> InstalledPlugin:
        """The installed plugin of a name or id, in any scope or in this one."""
        here = self._installed()
        found = [plugin for plugin in here if name in (plugin.id, plugin.name) and scope in ("", plugin.scope)]
        if not found:
            known = ", ".join(sorted({plugin.id for plugin in here})) or "none"
            where = f" in {scope} scope" if scope else ""
            raise UsageError(f'Plugin "{name}" is not installed{where} (installed: {known})')
        if len({plugin.id for plugin in found}) > 1:
            raise UsageError(f'"{name}" is ambiguous; choose from {", ".join(plugin.id for plugin in found)}')
        return found[-1]

    def _find_error(self, plugin: InstalledPlugin) -> Json:
        """Why an installed plugin cannot be loaded."""
        problem = installed_plugins.find_problem(self._launch.config, plugin.installPath)
        if problem is None:
            try:
                read_plugin(plugin.installPath, [], with_servers=True)
            except safe_read.UnreadableFile as exc:
                problem = str(exc)
        return {} if problem is None else {"error": problem}

    def _make_entry(self, plugin: Plugin, target: Path, scope: str) -> InstalledPlugin:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return InstalledPlugin(
            id=f"{plugin.name}@{installed_plugins.MARKETPLACE}",
            scope=scope,
            installPath=str(target),
            version=plugin.version or "unknown",
            installedAt=now,
            lastUpdated=now,
            projectPath="" if scope == "user" else self._launch.cwd,
        )


def choose_root(folder: Path, path: str, source: str) -> Path:
    """The folder of the plugin in a source. Raises InvalidSource."""
    if path:
        root = folder / path
        if os.path.isabs(path) or not safe_read.is_beneath(os.path.realpath(root), os.path.realpath(folder)):
            raise InvalidSource(f"--path must name a folder inside {source}")
        return root
    roots = find_roots(folder)
    if not roots:
        raise InvalidSource(f"{source} is not a plugin: it has no .claude-plugin/plugin.json")
    if len(roots) > 1:
        names = ", ".join(root.name for root in roots)
        raise InvalidSource(f"{source} has several plugins; choose one with --path: {names}")
    return roots[0]


def read_staged(root: Path, source: str, errors: list[Json]) -> Plugin:
    """Raises InvalidSource."""
    try:
        return read_plugin(str(root), errors, with_servers=True)
    except safe_read.UnreadableFile as exc:
        raise InvalidSource(f"{source} is not a plugin: .claude-plugin/plugin.json {exc}") from None


def describe_contents(plugin: Plugin, root: Path) -> list[str]:
    """What a plugin brings, in words."""
    from parley.settings.files.commands_and_skills import command_files, skill_files

    counts = {
        "command": len(list(command_files(str(root)))),
        "skill": len(list(skill_files(str(root)))),
        "agent": len(plugin.agents),
        "hook event": len(plugin.hooks.value) if plugin.hooks is not None else 0,
        "MCP server": len(plugin.servers),
    }
    return [f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count]


def find_part_problems(plugin: Plugin, root: Path) -> Iterator[str]:
    """What is wrong with the commands, skills, hooks and servers of a plugin."""
    from parley.hooks.settings import load_entries
    from parley.settings.files.commands_and_skills import TemplateFolder, load_templates

    folder = TemplateFolder(folder=str(root), source="plugin", prefix=f"{plugin.name}:", is_trusted=True)
    yield from (f"{problem.path}: {problem.text}" for problem in load_templates([folder])[1])
    if plugin.hooks is not None:
        yield from (f"{problem.path}: {problem.text}" for problem in load_entries([plugin.hooks])[1])
    for name, entry in plugin.servers.items():
        problem = parse_entry(name, entry, "dynamic").problem
        if problem:
            yield f"MCP server {name}: {problem}"
