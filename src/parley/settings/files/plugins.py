"""Load plugins: folders with commands, skills, agents, hooks and MCP servers under one name.

    .claude-plugin/plugin.json    {"name": "tools", "version": "1.0"}; also `hooks` and `mcpServers`
    commands/ skills/ agents/     named `tools:NAME`
    hooks/hooks.json              {"hooks": {...}} as in settings
    .mcp.json                     {"mcpServers": {...}}; a server is named `plugin:tools:NAME`

The user names the folder on the command line and thereby trusts it. `${CLAUDE_PLUGIN_ROOT}` is replaced
by its path. A plugin that cannot be loaded is reported and skipped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from parley.protocol.base import Json
from parley.settings import safe_read
from parley.settings.base import Plugin, Plugins, SettingsValue

MANIFEST = ".claude-plugin/plugin.json"
HOOKS = "hooks/hooks.json"
SERVERS = ".mcp.json"
ROOT = "${CLAUDE_PLUGIN_ROOT}"
NAME = re.compile(r"\w[\w-]*(\.\w[\w-]*)*")
UNSUPPORTED = ("commands", "skills", "agents", "outputStyles", "lspServers")
"""Manifest keys without effect: these parts are always loaded from their folders."""


def load_plugins(folders: Iterable[str], without_servers: Iterable[str] = ()) -> Plugins:
    """Load plugins. Of the folders in `without_servers`, no MCP servers are loaded."""
    found: dict[str, Plugin] = {}
    errors: list[Json] = []
    serverless = frozenset(without_servers)
    for number, folder in enumerate(dict.fromkeys([*folders, *serverless])):
        try:
            plugin = read_plugin(folder, errors, with_servers=folder not in serverless)
            if plugin.name in found:
                raise safe_read.UnreadableFile(f"another plugin is named {plugin.name!r}: {found[plugin.name].path}")
        except safe_read.MissingFile:
            text = f"not a plugin: it has no {MANIFEST}"
            errors.append(build_load_error(number, folder, "manifest-not-found", text))
        except safe_read.UnreadableFile as exc:
            text = f"not used as a plugin: {exc}"
            errors.append(build_load_error(number, folder, "manifest-validation-error", text))
        else:
            found[plugin.name] = plugin
    return Plugins(found=tuple(found.values()), errors=tuple(errors))


def build_error(name: str, kind: str, text: str) -> Json:
    """Build an error about a part of a plugin that is loaded without this part."""
    return {"plugin": f"{name}@inline", "type": kind, "message": text}


def build_load_error(number: int, folder: str, kind: str, text: str) -> Json:
    """Build an error about a folder. It has no plugin name, so it is identified by its position and path."""
    return {"plugin": f"inline[{number}]", "type": kind, "message": text, "path": folder}


def read_plugin(folder: str, errors: list[Json], *, with_servers: bool) -> Plugin:
    """Raises UnreadableFile, or MissingFile if there is no manifest. An invalid part is reported and skipped."""
    manifest = safe_read.parse_json_object(safe_read.read_file(os.path.join(folder, MANIFEST), (folder,)).data)
    name, version = manifest.get("name"), manifest.get("version", "")
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise safe_read.UnreadableFile(
            f"{MANIFEST}: `name` must consist of letters, digits, `-`, `_` and single dots, not {name!r}"
        )
    if ignored := [key for key in UNSUPPORTED if key in manifest]:
        errors.append(build_error(name, "not-heeded", f"{MANIFEST}: keys without effect: {', '.join(ignored)}"))
    hooks = load_part(folder, manifest, "hooks", HOOKS, errors)
    servers = load_part(folder, manifest, "mcpServers", SERVERS, errors) if with_servers else {}
    return Plugin(
        name=name,
        path=folder,
        version=version if isinstance(version, str) else "",
        hooks=SettingsValue(value=hooks, source="flag", path=os.path.join(folder, HOOKS), root=folder)
        if hooks
        else None,
        servers={f"plugin:{name}:{server}": entry for server, entry in servers.items()},
        agents={f"{name}:{agent}": kind for agent, kind in load_plugin_agents(folder, name, errors).items()},
    )


def load_plugin_agents(folder: str, name: str, errors: list[Json]) -> dict[str, Any]:
    """Load the agents of a plugin, by the names in their files."""
    agents = Path(folder, "agents")
    if not agents.is_dir():
        return {}
    from parley.settings.files.agents import OF_PLUGIN, load_agents

    found, problems = load_agents(agents, (folder,), withheld=OF_PLUGIN)
    errors += [
        build_error(name, "agent-invalid", f"{os.path.relpath(problem.path, folder)}: {problem.text}")
        for problem in problems
    ]
    return found


def load_part(folder: str, manifest: Json, key: str, default_file: str, errors: list[Json]) -> Json:
    """Load the object under a key: from the manifest, the file that it names, or the default file."""
    given = manifest.get(key, default_file)
    try:
        values = given if isinstance(given, dict) else read_part(folder, given)
        inner = values.get(key, values if isinstance(given, dict) else None)
        if not isinstance(inner, dict):
            raise safe_read.UnreadableFile(f"the file must contain an object {key!r}")
    except safe_read.MissingFile as exc:
        if key in manifest:
            errors.append(build_error(manifest["name"], f"{key}-invalid", f"{given} {exc}"))
        return {}
    except safe_read.UnreadableFile as exc:
        path = given if isinstance(given, str) else MANIFEST
        errors.append(build_error(manifest["name"], f"{key}-invalid", f"{path}: {exc}"))
        return {}
    expanded: Json = expand_root(inner, folder)
    return expanded


def read_part(folder: str, name: Any) -> Json:
    """Read a JSON file inside the plugin's folder. Raises UnreadableFile."""
    if not isinstance(name, str):
        raise safe_read.UnreadableFile("must be an object or the name of a file")
    return safe_read.parse_json_object(safe_read.read_file(os.path.join(folder, name), (folder,)).data)


def expand_root(value: Any, folder: str) -> Any:
    """Replace `${CLAUDE_PLUGIN_ROOT}` in all strings of a value."""
    if isinstance(value, str):
        return value.replace(ROOT, folder)
    if isinstance(value, list):
        return [expand_root(item, folder) for item in value]
    if isinstance(value, dict):
        return {key: expand_root(item, folder) for key, item in value.items()}
    return value
