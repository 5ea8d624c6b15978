"""What users install and declare: plugins, marketplaces and MCP servers.

Whatever is fetched for a plugin is staged, read and compared with the managed settings before it takes its place, and
pinned by the digest of its files. Nothing of it runs here.

See also: `compose/plugins.py` loads the plugins of a session, `compose/mcp.py` its servers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from parley.compose.launch_context import LaunchContext
from parley.errors import UsageError
from parley.hooks.settings import load_hooks
from parley.mcp.base import ServerSpec
from parley.mcp.config import parse_server
from parley.protocol.base import Json, Struct
from parley.settings import mcp_files, safe_read
from parley.settings.base import MCP_FILE, Plugin, SettingsWriteError
from parley.settings.files import installed_plugins, marketplaces
from parley.settings.files.commands_and_skills import command_files, load_templates, plugin_folder, skill_files
from parley.settings.files.installed_plugins import InstalledPlugin, hash_content, list_digests
from parley.settings.files.marketplaces import Catalog, KnownMarketplace
from parley.settings.files.plugin_source import CATALOG, InvalidSource, PluginSource, find_roots, parse_place, staged
from parley.settings.files.plugins import has_manifest, read_plugin
from parley.settings.mcp_files import list_pending
from parley.settings.policy import describe_obstacle, find_marketplace_policy
from parley.settings.writer import encode

SCOPES = {
    "local": "Local config (private to you in this project)",
    "project": f"Project config (shared via {MCP_FILE})",
    "user": "User config (available in all your projects)",
}
CHOICES = ("enabledMcpjsonServers", "disabledMcpjsonServers")


class AnyVariable(dict[str, str]):
    """Gives every variable a value: whether it is set does not matter before the server is started."""

    def get(self, name: str, default: Any = None) -> Any:
        return "x"


def parse_entry(name: str, entry: Any, source: str) -> ServerSpec:
    """The server that an entry declares, whether its variables are set or not. `problem` says what is wrong with it."""
    return parse_server(name, entry, source, AnyVariable())


def pending_servers(launch: LaunchContext) -> list[ServerSpec]:
    """The servers of `.mcp.json` that have no effect until the folder is trusted."""
    pending = list_pending(os.path.join(launch.cwd, MCP_FILE), launch.settings.trust)
    return [parse_entry(name, entry, "project") for name, entry in pending.items()]


class ServerFiles:
    """Reads and changes the declarations. Its methods raise SettingsWriteError."""

    def __init__(self, user_file: Path, cwd: str) -> None:
        self._user_file = user_file
        self.cwd = cwd
        self._folders = mcp_files.project_folders(cwd)
        self._root = mcp_files.project_root(cwd)

    def path(self, scope: str) -> Path:
        return Path(self.cwd, MCP_FILE) if scope == "project" else self._user_file

    def describe(self, scope: str) -> str:
        """The file of a scope, as messages name it."""
        return f"{self.path(scope)} [project: {self._root}]" if scope == "local" else str(self.path(scope))

    def read(self) -> dict[str, Json]:
        """The entries of each scope."""
        config = self._read_user_file()
        return {
            "local": self._read_project(config, self._folders),
            "project": self._read_mcp_file(),
            "user": config.mcpServers,
        }

    def add(self, scope: str, name: str, entry: Json) -> None:
        def insert(servers: dict[str, Raw]) -> dict[str, Raw]:
            if name in servers:
                raise SettingsWriteError(f"MCP server {name} already exists in {scope} config")
            return {**servers, name: encode(entry)}

        if scope == "local":
            mcp_files.edit_project_servers(self._user_file, self._root, insert)
        else:
            mcp_files.edit_servers(self.path(scope), insert)

    def remove(self, scope: str, name: str) -> None:
        def drop(servers: dict[str, Raw]) -> dict[str, Raw]:
            return {key: value for key, value in servers.items() if key != name}

        if scope != "local":
            mcp_files.edit_servers(self.path(scope), drop)
            return
        config = self._read_user_file()
        for folder in self._folders:
            if name in self._read_project(config, (folder,)):
                mcp_files.edit_project_servers(self._user_file, folder, drop)

    def forget_choices(self) -> None:
        """Empty the lists of servers of `.mcp.json` that the user accepted or rejected in Claude Code."""
        projects = self._read_user_file().projects
        for folder in self._folders:
            if folder in projects:
                mcp_files.edit_project_entry(
                    self._user_file,
                    folder,
                    lambda entry: entry | {key: encode([]) for key in CHOICES if key in entry},
                )

    def _read_user_file(self) -> mcp_files.UserConfig:
        try:
            return mcp_files.read_user_config(self._user_file)
        except safe_read.MissingFile:
            return mcp_files.UserConfig()
        except safe_read.UnreadableFile as exc:
            raise SettingsWriteError(f"{self._user_file} {exc}") from None

    def _read_project(self, config: mcp_files.UserConfig, folders: tuple[str, ...]) -> Json:
        try:
            return config.project(folders).mcpServers
        except safe_read.UnreadableFile as exc:
            raise SettingsWriteError(f"{self._user_file} {exc}") from None

    def _read_mcp_file(self) -> Json:
        path = os.path.join(self.cwd, MCP_FILE)
        try:
            values = safe_read.parse_json_object(safe_read.read_file(path, beneath=(self.cwd,)).data)
        except safe_read.MissingFile:
            return {}
        except safe_read.UnreadableFile as exc:
            raise SettingsWriteError(f"{path} {exc}") from None
        servers = values.get("mcpServers", {})
        if not isinstance(servers, dict):
            raise SettingsWriteError(f"{path}: `mcpServers` must be an object")
        return servers


DESTINATIONS = {"user": "userSettings", "project": "projectSettings", "local": "localSettings"}


class PluginFailure(UsageError):
    """A failure with the code that programs know it by."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class PluginReport(Struct, frozen=True, kw_only=True):
    """What a check of a plugin or a marketplace found."""

    kind: str = "plugin"
    errors: list[str] = []
    warnings: list[str] = []
    contents: list[str] = []
    """What it brings, in words."""
    provides: dict[str, list[str]] = {}
    """What it brings, by kind and name."""


class PluginUpdate(Struct, frozen=True, kw_only=True):
    """What an update changed."""

    id: str
    scope: str
    old_version: str
    new_version: str
    content_hash: str
    changes: list[str] = []
    """`+ path`, `- path` and `~ path`; empty if the plugin is the same."""


class Candidate(NamedTuple):
    """A plugin that is here, but not installed."""

    plugin: Plugin
    root: Path
    problems: list[Json]


class PluginStore:
    """The plugins and marketplaces in the config directory. Its methods raise UsageError."""

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

    def list_available(self) -> list[Json]:
        """The plugins of all marketplaces that are not installed."""
        installed = {plugin.id for plugin in self._installed()}
        return [
            {"pluginId": id, "name": entry.name, "description": entry.description, "marketplaceName": market}
            for market, known in sorted(self._known().items())
            for entry in self._read_catalog(market, known).plugins
            if (id := f"{entry.name}@{market}") not in installed
        ]

    def install(self, source: str, path: str, scope: str) -> tuple[Json, PluginReport]:
        """Copy a plugin into the config directory and enable it; returns its entry and what it contains."""
        name, market, found = self._find_source(source, path)
        self._check_policy(market, f"{name}@{market}")
        with self._stage(found, source, name) as candidate:
            plugin, root, problems = candidate
            self._check_policy(market, f"{plugin.name}@{market}")
            report = PluginReport(
                warnings=[str(problem["message"]) for problem in problems], contents=describe_contents(plugin, root)
            )
            entry = self._keep(candidate, market, scope, found)
        self.set_enabled(scope, entry.id, True)
        return {"id": entry.id, **entry.to_json(), "enabled": True}, report

    def update(self, name: str, scope: str) -> PluginUpdate:
        """Fetch a plugin again, and its marketplace before; what comes is pinned."""
        old = self._find(name, scope)
        self._check_policy(old.marketplace, old.id)
        if old.marketplace != installed_plugins.MARKETPLACE:
            self.update_marketplace(old.marketplace)
            source = self._find_source(old.id, "")[2]
        elif not old.source:
            raise UsageError(f'Plugin "{old.id}" has no known source; install it again')
        else:
            source = parse_place(old.source, old.sourcePath)
        with self._stage(source, old.id, old.name) as candidate:
            is_here = installed_plugins.is_ours(self._launch.config, old.installPath)
            before, after = list_digests(old.installPath) if is_here else {}, list_digests(candidate.root)
            new = old
            if hash_content(after) != old.contentHash or before != after:
                new = self._keep(candidate, old.marketplace, old.scope, source, old)
        return PluginUpdate(
            id=old.id,
            scope=old.scope,
            old_version=old.version,
            new_version=new.version,
            content_hash=new.contentHash,
            changes=list(compare(before, after)),
        )

    def describe(self, name: str) -> tuple[Json, dict[str, list[str]]]:
        """An installed plugin, and the names of what it contains. Raises UsageError."""
        plugin = self._find(name, "")
        try:
            read = read_plugin(plugin.installPath, [], self._folder, with_servers=True)
        except safe_read.UnreadableFile as exc:
            raise UsageError(f"{plugin.id} cannot be read: {exc}") from None
        return {"id": plugin.id, "name": plugin.name, **plugin.to_json()}, list_parts(read, Path(plugin.installPath))

    def switch(self, name: str, scope: str, is_enabled: bool) -> tuple[str, str]:
        """Enable or disable a plugin; returns its id and the scope whose settings changed."""
        plugin = self._find(name, scope)
        known = self._launch.settings.merged.plugins.get(plugin.id)
        if (known is not None and known.value is not False) == is_enabled:
            text = f'Plugin "{plugin.id}" is already {"enabled" if is_enabled else "disabled"}'
            raise PluginFailure(text, "already_in_goal_state")
        if known is not None and known.source == "managed":
            raise UsageError(f'Plugin "{plugin.id}" cannot be switched: managed settings decide (enabledPlugins)')
        if is_enabled:
            self._check_policy(plugin.marketplace, plugin.id)
        chosen = scope or plugin.scope
        self.set_enabled(chosen, plugin.id, is_enabled)
        return plugin.id, chosen

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
        """Check a plugin, or a folder with a marketplace, without installing it."""
        folder = Path(source).expanduser()
        if (folder / CATALOG).is_file() and not path and not has_manifest(folder):
            return validate_marketplace(folder)
        try:
            with self._stage(parse_place(source, path), source) as (plugin, root, found):
                errors = [str(problem["message"]) for problem in found if problem["type"] != "not-heeded"]
                errors += [text.replace(f"{root}/", "") for text in find_part_problems(plugin, root)]
                warnings = [str(problem["message"]) for problem in found if problem["type"] == "not-heeded"]
                contents, provides = describe_contents(plugin, root), list_parts(plugin, root)
                return PluginReport(errors=errors, warnings=warnings, contents=contents, provides=provides)
        except UsageError as exc:
            return PluginReport(errors=[str(exc)])

    # Marketplaces.

    def list_marketplaces(self) -> list[Json]:
        """As `plugin marketplace list --json` prints them."""
        return [
            {"name": name, **known.source, "installLocation": known.installLocation, "contentHash": known.contentHash}
            for name, known in self._known().items()
        ]

    def add_marketplace(self, text: str) -> str:
        """Copy a catalog of plugins into the config directory; returns its name."""
        try:
            source = marketplaces.parse_source(text, self._launch.cwd)
        except InvalidSource as exc:
            raise UsageError(str(exc)) from None
        return self._fetch_marketplace(source)[0]

    def update_marketplace(self, name: str) -> list[str]:
        """Fetch a marketplace again; returns which of its plugins are new, gone or changed."""
        known = self._known()
        if name not in known:
            raise self._unknown_marketplace(name)
        return self._fetch_marketplace(known[name].source, name)[1]

    def remove_marketplace(self, name: str) -> None:
        """Remove a marketplace. Its plugins stay installed, but get no updates."""
        if name not in self._known():
            raise self._unknown_marketplace(name)
        try:
            marketplaces.edit_known(self._launch.config, name, None)
        except SettingsWriteError as exc:
            raise UsageError(str(exc)) from None
        if marketplaces.NAME.fullmatch(name):
            shutil.rmtree(self._folder / "marketplaces" / name, ignore_errors=True)

    def _fetch_marketplace(self, source: Json, name: str = "") -> tuple[str, list[str]]:
        self._check_source(source)
        config = self._launch.config
        try:
            found = marketplaces.to_plugin_source(source, may_be_local=True)
            with staged(found, self._folder) as folder:
                catalog = marketplaces.read_catalog(folder)
                marketplaces.check_name(catalog.name, source)
                known = self._known().get(catalog.name)
                if name and catalog.name != name:
                    raise InvalidSource(
                        f"the marketplace {name!r} is now named {catalog.name!r}; remove it and add it again"
                    )
                if known is not None and marketplaces.canonical(known.source) != marketplaces.canonical(source):
                    raise InvalidSource(f"a marketplace {catalog.name!r} from another source exists; remove it first")
                before, after = self._list_entries(known), describe_entries(catalog, folder)
                target = self._folder / "marketplaces" / catalog.name
                pin = hash_content(list_digests(folder))
                installed_plugins.move_into_cache(folder, target)
            new = KnownMarketplace(source=source, installLocation=str(target), lastUpdated=now(), contentHash=pin)
            marketplaces.edit_known(config, catalog.name, new)
        except (InvalidSource, SettingsWriteError) as exc:
            raise UsageError(str(exc)) from None
        return catalog.name, list(compare(before, after))

    def _list_entries(self, known: KnownMarketplace | None) -> dict[str, str]:
        """The plugins of a marketplace as it is here, each with its source and content."""
        try:
            folder = Path(known.installLocation if known is not None else "")
            return describe_entries(marketplaces.read_catalog(folder), folder)
        except InvalidSource:
            return {}

    def _known(self) -> dict[str, KnownMarketplace]:
        try:
            return marketplaces.read_known(self._launch.config)
        except safe_read.UnreadableFile as exc:
            raise UsageError(str(exc)) from None

    def _unknown_marketplace(self, name: str) -> PluginFailure:
        return PluginFailure(f"Marketplace '{name}' not found", "not_configured")

    def _read_catalog(self, name: str, known: KnownMarketplace) -> Catalog:
        folder = Path(known.installLocation)
        if known.contentHash and hash_content(list_digests(folder)) != known.contentHash:
            raise UsageError(
                f"the files of the marketplace {name} are not those that were added; run "
                f"`parley plugin marketplace update {name}`"
            )
        try:
            return marketplaces.read_catalog(folder)
        except InvalidSource as exc:
            raise UsageError(f"{name}: {exc}") from None

    # Sources.

    def _find_source(self, text: str, path: str) -> tuple[str, str, PluginSource]:
        """The name and marketplace of a plugin, and where it is. What a marketplace has is taken before a folder."""
        name, at, wanted = text.rpartition("@") if "@" in text else (text, "", "")
        known = self._known()
        is_name = marketplaces.NAME.fullmatch(name) is not None and (not at or wanted in known)
        found: dict[str, PluginSource] = {}
        for market in [market for market in known if is_name and wanted in ("", market)]:
            catalog, root = self._read_catalog(market, known[market]), Path(known[market].installLocation)
            is_local = marketplaces.is_local(known[market].source)
            for entry in [entry for entry in catalog.plugins if entry.name == name]:
                try:
                    found[market] = marketplaces.find_entry(entry, catalog, root, may_be_local=is_local)
                except InvalidSource as exc:
                    raise UsageError(str(exc)) from None
        if len(found) > 1:
            raise UsageError(f'"{name}" is ambiguous; choose from {", ".join(f"{name}@{market}" for market in found)}')
        for market, source in found.items():
            return name, market, source
        if at and is_name:
            text = (
                f'Plugin "{name}" not found in marketplace "{wanted}" (try `parley plugin marketplace update {wanted}`)'
            )
            raise PluginFailure(text, "not_found")
        if not os.path.exists(os.path.expanduser(text)) and "/" not in text and ":" not in text:
            raise PluginFailure(
                f'Plugin "{text}" not found: no marketplace has it, and there is no such folder or file', "not_found"
            )
        return "", installed_plugins.MARKETPLACE, parse_place(text, path)

    @contextmanager
    def _stage(self, source: PluginSource, shown: str, name: str = "") -> Iterator[Candidate]:
        """Fetch and read a plugin. With a name, it must have that name."""
        try:
            with staged(source, self._folder) as folder:
                root = choose_root(folder, source.path, shown)
                problems: list[Json] = []
                plugin = read_staged(root, shown, problems)
                if name and plugin.name != name:
                    raise InvalidSource(
                        f"{shown} is not the plugin {name!r}: its manifest has the name {plugin.name!r}"
                    )
                yield Candidate(plugin, root, problems)
        except (InvalidSource, SettingsWriteError) as exc:
            raise UsageError(str(exc)) from None

    def _keep(
        self, candidate: Candidate, market: str, scope: str, source: PluginSource, old: InstalledPlugin | None = None
    ) -> InstalledPlugin:
        """Move a staged plugin into its place and record it, with its pin. Raises SettingsWriteError."""
        config, plugin = self._launch.config, candidate.plugin
        pin = hash_content(list_digests(candidate.root))
        target = installed_plugins.cache_folder(config, market, plugin.name, plugin.version)
        installed_plugins.move_into_cache(candidate.root, target)
        is_direct = market == installed_plugins.MARKETPLACE
        entry = InstalledPlugin(
            id=f"{plugin.name}@{market}",
            scope=scope,
            installPath=str(target),
            version=plugin.version or "unknown",
            installedAt=now() if old is None else old.installedAt,
            lastUpdated=now(),
            projectPath="" if scope == "user" else self._launch.cwd,
            contentHash=pin,
            source=f"{source.place}#{source.ref}".removesuffix("#") if is_direct else "",
            sourcePath=source.path if is_direct else "",
        )
        installed_plugins.record(config, entry)
        return entry

    # Policies.

    def _check_policy(self, market: str, id: str) -> None:
        """Raises UsageError if an administrator does not permit a plugin."""
        decided = self._launch.settings.merged.plugins.get(id)
        if decided is not None and decided.source == "managed" and decided.value is False:
            raise UsageError(f"the plugin {id} cannot be used: managed settings disable it (enabledPlugins)")
        known = self._known().get(market)
        self._check_source(known.source if known is not None else None)

    def _check_source(self, source: Json | None) -> None:
        if (key := find_marketplace_policy(self._launch.settings.merged, source)) is not None:
            raise UsageError(f"the plugin cannot be used: {describe_obstacle(key, source)}")

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
            raise PluginFailure(f'Plugin "{name}" is not installed{where} (installed: {known})', "not_found")
        if len({plugin.id for plugin in found}) > 1:
            raise UsageError(f'"{name}" is ambiguous; choose from {", ".join(plugin.id for plugin in found)}')
        return found[-1]

    def _find_error(self, plugin: InstalledPlugin) -> Json:
        """Why an installed plugin cannot be loaded."""
        problem = installed_plugins.find_problem(self._launch.config, plugin)
        if problem is None:
            try:
                read_plugin(plugin.installPath, [], self._folder, with_servers=True)
            except safe_read.UnreadableFile as exc:
                problem = str(exc)
        return {} if problem is None else {"error": problem}


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def compare(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """What is new (`+`), gone (`-`) and changed (`~`)."""
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield f"{'+' if name not in before else '-' if name not in after else '~'} {name}"


def describe_entries(catalog: Catalog, folder: Path) -> dict[str, str]:
    """By plugin, a text that differs if its entry, or what the marketplace has of the plugin itself, differs."""
    found: dict[str, str] = {}
    for entry in catalog.plugins:
        content = ""
        if isinstance(entry.source, str):
            with suppress(InvalidSource):  # installing it says what is wrong with it
                source = marketplaces.find_entry(entry, catalog, folder, may_be_local=True)
                content = hash_content(list_digests(source.place))
        found[entry.name] = f"{msgspec.json.encode(entry).decode()} {content}"
    return found


def validate_marketplace(folder: Path) -> PluginReport:
    try:
        catalog = marketplaces.read_catalog(folder)
    except InvalidSource as exc:
        return PluginReport(kind="marketplace", errors=[str(exc)])
    errors: list[str] = []
    for entry in catalog.plugins:
        try:
            found = marketplaces.find_entry(entry, catalog, folder, may_be_local=True)
            if isinstance(entry.source, str) and not has_manifest(Path(found.place)):
                errors.append(f"the source of {entry.name} is not a plugin: {entry.source}")
        except InvalidSource as exc:
            errors.append(str(exc))
    count = len(catalog.plugins)
    return PluginReport(kind="marketplace", errors=errors, contents=[f"{count} plugin{'s' if count != 1 else ''}"])


def choose_root(folder: Path, path: str, source: str) -> Path:
    """The folder of the plugin in a source. Raises InvalidSource."""
    if path:
        root = folder / path
        if os.path.isabs(path) or not safe_read.is_beneath(os.path.realpath(root), os.path.realpath(folder)):
            raise InvalidSource(f"--path must name a folder inside {source}")
        return root
    roots = find_roots(folder)
    if not roots:
        raise InvalidSource(f"{source} is not a plugin: it has no .claude-plugin/plugin.json and no plugin.json")
    if len(roots) > 1:
        names = ", ".join(root.name for root in roots)
        raise InvalidSource(f"{source} has several plugins; choose one with --path: {names}")
    return roots[0]


def read_staged(root: Path, source: str, errors: list[Json]) -> Plugin:
    """Raises InvalidSource."""
    try:
        return read_plugin(str(root), errors, root.parent, with_servers=True)
    except safe_read.UnreadableFile as exc:
        raise InvalidSource(f"{source} is not a plugin: {exc}") from None


PART_NAMES = {
    "commands": "command",
    "skills": "skill",
    "agents": "agent",
    "hooks": "hook event",
    "mcpServers": "MCP server",
}
"""The kinds of `list_parts` in words."""


def list_parts(plugin: Plugin, root: Path) -> dict[str, list[str]]:
    """The names of what a plugin brings, by kind."""

    return {
        "commands": [f"{plugin.name}:{name}" for name, _ in command_files(str(root))],
        "skills": [f"{plugin.name}:{name}" for name, _ in skill_files(str(root))],
        "agents": list(plugin.agents),
        "hooks": list(plugin.hooks.value) if plugin.hooks is not None else [],
        "mcpServers": list(plugin.servers),
    }


def describe_contents(plugin: Plugin, root: Path) -> list[str]:
    """What a plugin brings, in words."""
    counts = {PART_NAMES[kind]: len(names) for kind, names in list_parts(plugin, root).items()}
    return [f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count]


def find_part_problems(plugin: Plugin, root: Path) -> Iterator[str]:
    """What is wrong with the commands, skills, hooks and servers of a plugin."""

    yield from (f"{problem.path}: {problem.text}" for problem in load_templates([plugin_folder(plugin)])[1])
    if plugin.hooks is not None:
        yield from (f"{problem.path}: {problem.text}" for problem in load_hooks([plugin.hooks])[1])
    for name, entry in plugin.servers.items():
        problem = parse_entry(name, entry, "dynamic").problem
        if problem:
            yield f"MCP server {name}: {problem}"
