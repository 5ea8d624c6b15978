"""The plugins that are installed in the config directory, in the layout of Claude Code.

    plugins/installed_plugins.json            {"version": 2, "plugins": {"tools@parley": [{"scope": "user", ...}]}}
    plugins/cache/MARKETPLACE/NAME/VERSION/   the files
    settings.json                             {"enabledPlugins": {"tools@parley": true}}

An id is NAME@MARKETPLACE. Plugins that were installed from a folder, an archive or a repository have the marketplace
`parley`; those that Claude Code installed are used too. What Parley installs is pinned: a plugin whose files are not
those that were installed is not loaded.

See also: `plugin_source.py` brings the files here, `marketplaces.py` keeps the list of marketplaces.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from parley.protocol.base import Json, Struct
from parley.settings import safe_read
from parley.settings.base import SettingsWriteError
from parley.settings.mcp_files import RawObject, edit_file, edit_key
from parley.settings.writer import encode

MARKETPLACE = "parley"
FOLDER = "plugins"
REGISTRY = "installed_plugins.json"
SKIPPED = (".git", "__pycache__")
"""Names that are neither copied nor compared. Python writes the second beside a script that it runs."""
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
    contentHash: str = ""
    """The pin; empty if Claude Code installed the plugin."""
    source: str = ""
    """Where an update finds it, if it has no marketplace."""
    sourcePath: str = ""

    @property
    def marketplace(self) -> str:
        return self.id.rpartition("@")[2]

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


def find_folders(config: Path, project: str, enabled: Iterable[str]) -> tuple[dict[str, Path], list[Json]]:
    """The folders of enabled plugins, each with where it keeps its data, and an error for each that cannot be used."""
    wanted = list(enabled)
    if not wanted:
        return {}, []
    try:
        installed = read_installed(config)
    except safe_read.UnreadableFile as exc:
        text = f"{config / FOLDER / REGISTRY} {exc}; installed plugins are not used"
        return {}, [{"plugin": id, "type": "registry-invalid", "message": text} for id in wanted]
    folders: dict[str, Path] = {}
    errors: list[Json] = []
    for id in wanted:
        found = [plugin for plugin in installed if plugin.id == id and plugin.applies_to(project)]
        if not found:
            text = f"{id} is enabled but not installed (`parley plugin list` shows the installed plugins)"
            errors.append({"plugin": id, "type": "plugin-not-found", "message": text})
        elif (problem := find_problem(config, found[-1])) is not None:
            errors.append({"plugin": id, "type": "plugin-not-found", "message": f"{id}: {problem}"})
        else:
            folders[os.path.realpath(found[-1].installPath)] = data_folder(config, found[-1].marketplace)
    return folders, errors


def data_folder(config: Path, marketplace: str) -> Path:
    """Where the plugins of a marketplace keep what they write, each in a folder of its name."""
    return config / FOLDER / "data" / marketplace


def make_data_folder(path: str) -> None:
    """A folder that cannot be made is reported by the server that needs it."""
    with suppress(OSError):
        os.makedirs(path, mode=0o700, exist_ok=True)


def find_problem(config: Path, plugin: InstalledPlugin) -> str | None:
    """Why an installed plugin is not used."""
    path = plugin.installPath
    if not is_ours(config, path):
        return f"its folder {path!r} is not inside {os.path.realpath(config / FOLDER)}"
    if not os.path.isdir(path):
        return f"its folder {path} does not exist"
    if plugin.contentHash and hash_content(list_digests(path)) != plugin.contentHash:
        return "its files are not those that were installed, so it is not loaded; install or update it again"
    return None


def is_ours(config: Path, path: str) -> bool:
    """Whether the folder of an installed plugin is where plugins are kept. The registry may name any other."""
    return os.path.isabs(path) and safe_read.is_beneath(os.path.realpath(path), os.path.realpath(config / FOLDER))


def list_digests(folder: str | Path) -> dict[str, str]:
    """The digest of each file below a folder. Something that is neither a file nor a folder has none."""

    found: dict[str, str] = {}
    for top, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED]
        links = [name for name in folders if os.path.islink(os.path.join(top, name))]
        for name in (*files, *links):
            path = os.path.join(top, name)
            digest = "unreadable"
            with suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                with open(descriptor, "rb") as opened:
                    kind = "x" if os.fstat(descriptor).st_mode & stat.S_IXUSR else "-"
                    digest = f"{kind}{file_digest(opened, 'sha256').hexdigest()}"
            found[os.path.relpath(path, folder)] = digest
    return found


def hash_content(digests: Mapping[str, str]) -> str:
    """The pin of a folder: one digest over the names, the modes and the contents of its files."""

    lines = "".join(f"{digest} {name}\n" for name, digest in sorted(digests.items()))
    return f"sha256:{sha256(lines.encode(errors='surrogateescape')).hexdigest()}"


def cache_folder(config: Path, marketplace: str, name: str, version: str) -> Path:
    usable = version if VERSION.fullmatch(version) and ".." not in version else "unknown"
    return config / FOLDER / "cache" / marketplace / name / usable


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
    """Add an installation, or replace that of the same scope and project. Raises SettingsWriteError.

    Installations of other scopes with the same folder get its new pin."""

    def change(entries: list[Json]) -> list[Json]:
        others = [
            {**entry, "contentHash": plugin.contentHash} if entry.get("installPath") == plugin.installPath else entry
            for entry in entries
            if not is_same(entry, plugin)
        ]
        return [*others, plugin.to_json()]

    edit_entries(config, plugin.id, change)


def forget(config: Path, plugin: InstalledPlugin) -> None:
    """Remove an installation, and its files if no other one uses them. Raises SettingsWriteError."""
    edit_entries(config, plugin.id, lambda entries: [entry for entry in entries if not is_same(entry, plugin)])
    try:
        used = {os.path.realpath(other.installPath) for other in read_installed(config)}
    except safe_read.UnreadableFile:
        return
    if is_ours(config, plugin.installPath) and (real := os.path.realpath(plugin.installPath)) not in used:
        shutil.rmtree(real, ignore_errors=True)


def is_same(entry: Json, plugin: InstalledPlugin) -> bool:
    return (entry.get("scope", "user"), entry.get("projectPath", "")) == (plugin.scope, plugin.projectPath)


def edit_entries(config: Path, id: str, change: Callable[[list[Json]], list[Json]]) -> None:
    """Change the installations of one plugin; an empty list removes it. Raises SettingsWriteError."""

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
