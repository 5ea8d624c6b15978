"""The plugins that are installed in the config directory, in the layout of Claude Code.

    plugins/installed_plugins.json            {"version": 2, "plugins": {"tools@parley": [{"scope": "user", ...}]}}
    plugins/cache/MARKETPLACE/NAME/VERSION/   the files
    settings.json                             {"enabledPlugins": {"tools@parley": true}}

An id is NAME@MARKETPLACE. Plugins that Parley installs have the marketplace `parley`; those that Claude Code installed
are used too.

See also: `plugin_source.py` brings the files here.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from parley.protocol.base import Json, Struct
from parley.settings import safe_read
from parley.settings.base import SettingsWriteError

MARKETPLACE = "parley"
FOLDER = "plugins"
REGISTRY = "installed_plugins.json"
VERSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")


class InstalledPlugin(Struct, frozen=True, kw_only=True):
    """One installation. A plugin may be installed once per scope and project."""

    id: str = ""
    scope: str = "user"
    installPath: str = ""
    version: str = ""
    installedAt: str = ""
    lastUpdated: str = ""
    projectPath: str = ""

    @property
    def name(self) -> str:
        return self.id.rpartition("@")[0] or self.id

    def applies_to(self, project: str) -> bool:
        return self.scope in ("user", "managed") or self.projectPath in ("", project)

    def to_json(self) -> Json:
        fields = {key: getattr(self, key) for key in self.__struct_fields__ if key != "id"}
        return {key: value for key, value in fields.items() if value}


class PluginList(Struct, frozen=True, kw_only=True):
    """The content of the registry. Unknown fields are ignored; they are kept by edits."""

    plugins: dict[str, list[Any]] = {}


def read_installed(config: Path) -> list[InstalledPlugin]:
    """Raises UnreadableFile. Without a registry, nothing is installed."""
    try:
        data = safe_read.read_file(config / FOLDER / REGISTRY).data
    except safe_read.MissingFile:
        return []
    values = safe_read.parse_json_object(data)
    try:
        found = msgspec.convert(values, PluginList).plugins
        return [
            msgspec.structs.replace(msgspec.convert(entry, InstalledPlugin), id=id)
            for id, entries in found.items()
            for entry in entries
        ]
    except msgspec.ValidationError as exc:
        raise safe_read.UnreadableFile(f"is invalid: {exc}") from None


def find_folders(config: Path, project: str, enabled: dict[str, Any]) -> tuple[list[str], list[Json]]:
    """The folders of the enabled plugins, and an error for each that cannot be used."""
    wanted = [id for id, value in enabled.items() if value is not False]
    if not wanted:
        return [], []
    try:
        installed = read_installed(config)
    except safe_read.UnreadableFile as exc:
        text = f"{config / FOLDER / REGISTRY} {exc}; installed plugins are not used"
        return [], [{"plugin": id, "type": "registry-invalid", "message": text} for id in wanted]
    folders: list[str] = []
    errors: list[Json] = []
    for id in wanted:
        found = [plugin for plugin in installed if plugin.id == id and plugin.applies_to(project)]
        if not found:
            text = f"{id} is enabled but not installed (`parley plugin list` shows the installed plugins)"
            errors.append({"plugin": id, "type": "plugin-not-found", "message": text})
        elif (problem := find_problem(config, found[-1].installPath)) is not None:
            errors.append({"plugin": id, "type": "plugin-not-found", "message": f"{id}: {problem}"})
        else:
            folders.append(os.path.realpath(found[-1].installPath))
    return folders, errors


def find_problem(config: Path, path: str) -> str | None:
    """Why the folder of an installed plugin is not used."""
    root = os.path.realpath(config / FOLDER)
    if not os.path.isabs(path) or not safe_read.is_beneath(os.path.realpath(path), root):
        return f"its folder {path!r} is not inside {root}"
    return None if os.path.isdir(path) else f"its folder {path} does not exist"


def cache_folder(config: Path, name: str, version: str) -> Path:
    usable = version if VERSION.fullmatch(version) and ".." not in version else "unknown"
    return config / FOLDER / "cache" / MARKETPLACE / name / usable


def move_into_cache(source: Path, target: Path) -> None:
    """Replace the folder of a version. Raises SettingsWriteError."""
    old = target.with_name(f".old-{target.name}-{os.getpid()}")
    try:
        os.makedirs(target.parent, mode=0o700, exist_ok=True)
        if os.path.lexists(target):
            os.rename(target, old)
        os.rename(source, target)
    except OSError as exc:
        raise SettingsWriteError(f"cannot write to {target.parent}: {exc.strerror}") from None
    finally:
        shutil.rmtree(old, ignore_errors=True)


def record(config: Path, plugin: InstalledPlugin) -> None:
    """Add an installation, or replace that of the same scope and project. Raises SettingsWriteError."""

    def change(entries: list[Json]) -> list[Json]:
        return [*(entry for entry in entries if not is_same(entry, plugin)), plugin.to_json()]

    edit_entries(config, plugin.id, change)


def forget(config: Path, plugin: InstalledPlugin) -> None:
    """Remove an installation, and its files if no other one uses them. Raises SettingsWriteError."""
    edit_entries(config, plugin.id, lambda entries: [entry for entry in entries if not is_same(entry, plugin)])
    try:
        used = {os.path.realpath(other.installPath) for other in read_installed(config)}
    except safe_read.UnreadableFile:
        return
    if find_problem(config, plugin.installPath) is None and os.path.realpath(plugin.installPath) not in used:
        shutil.rmtree(os.path.realpath(plugin.installPath), ignore_errors=True)


def is_same(entry: Json, plugin: InstalledPlugin) -> bool:
    return (entry.get("scope", "user"), entry.get("projectPath", "")) == (plugin.scope, plugin.projectPath)


def edit_entries(config: Path, id: str, change: Callable[[list[Json]], list[Json]]) -> None:
    """Change the installations of one plugin; an empty list removes it. Raises SettingsWriteError."""
    from parley.settings.files.user_config_edit import RawObject, edit_file, edit_key
    from parley.settings.writer import encode

    path = config / FOLDER / REGISTRY

    def change_plugins(plugins: RawObject) -> RawObject:
        try:
            old = msgspec.json.decode(plugins.get(id, Raw(b"[]")), type=list[dict[str, Any]])
        except msgspec.DecodeError as exc:
            raise SettingsWriteError(f"{path}: {id} is invalid: {exc}") from None
        new = change(old)
        others = {key: value for key, value in plugins.items() if key != id}
        return {**others, id: encode(new)} if new else others

    def change_file(values: RawObject) -> RawObject:
        return edit_key({"version": encode(2), **values}, "plugins", str(path), change_plugins)

    edit_file(path, change_file)
