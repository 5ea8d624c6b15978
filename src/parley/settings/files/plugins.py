"""Plugins: folders that bring commands, skills, agents, hooks and MCP servers together, under one name.

    .claude-plugin/plugin.json    {"name": "tools", "version": "1.0"}; also `hooks` and `mcpServers`
    commands/ skills/ agents/     named `tools:NAME`
    hooks/hooks.json              {"hooks": {...}} as in settings
    .mcp.json                     {"mcpServers": {...}}; a server is called `plugin:tools:NAME`

The person names the folder on the command line, and so trusts it. `${CLAUDE_PLUGIN_ROOT}` stands
for it. One that cannot be used costs itself, and is told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from parley.protocol.base import Json
from parley.settings import safe_read
from parley.settings.base import Plugin, Plugins, Value

MANIFEST = ".claude-plugin/plugin.json"
HOOKS = "hooks/hooks.json"
SERVERS = ".mcp.json"
ROOT = "${CLAUDE_PLUGIN_ROOT}"
NAME = re.compile(r"\w[\w-]*(\.\w[\w-]*)*")
NOT_HEEDED = ("commands", "skills", "agents", "outputStyles", "lspServers")
"""Keys that name other places for what has its folder here."""


def gather(folders: Iterable[str], without_servers: Iterable[str] = ()) -> Plugins:
    """The plugins in some folders; `without_servers` are those of which no server is wanted."""
    found: dict[str, Plugin] = {}
    errors: list[Json] = []
    bare = frozenset(without_servers)
    for number, folder in enumerate(dict.fromkeys([*folders, *bare])):
        try:
            plugin = read(folder, errors, with_servers=folder not in bare)
            if plugin.name in found:
                raise safe_read.Unfit(f"there is another plugin called {plugin.name!r}: {found[plugin.name].path}")
        except safe_read.Absent:
            text = f"there is no {MANIFEST} in it, so it is no plugin"
            errors.append(not_loaded(number, folder, "manifest-not-found", text))
        except safe_read.Unfit as flaw:
            text = f"is not used as a plugin: {flaw}"
            errors.append(not_loaded(number, folder, "manifest-validation-error", text))
        else:
            found[plugin.name] = plugin
    return Plugins(found=tuple(found.values()), errors=tuple(errors))


def error(name: str, kind: str, text: str) -> Json:
    """What is wrong with a part of a plugin that counts all the same."""
    return {"plugin": f"{name}@inline", "type": kind, "message": text}


def not_loaded(number: int, folder: str, kind: str, text: str) -> Json:
    """As hosts know it: what has no name yet is known by its place on the command line, and by its path."""
    return {"plugin": f"inline[{number}]", "type": kind, "message": text, "path": folder}


def read(folder: str, errors: list[Json], *, with_servers: bool) -> Plugin:
    """Raises Unfit, or Absent where there is no manifest. What is wrong with a part costs that part."""
    manifest = safe_read.json_object(safe_read.read(os.path.join(folder, MANIFEST), (folder,)).data)
    name, version = manifest.get("name"), manifest.get("version", "")
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise safe_read.Unfit(f"{MANIFEST}: name must be letters, digits, `-`, `_` and single dots, not {name!r}")
    if ignored := [key for key in NOT_HEEDED if key in manifest]:
        errors.append(error(name, "not-heeded", f"{MANIFEST}: not heeded: {', '.join(ignored)}"))
    hooks = part(folder, manifest, "hooks", HOOKS, errors)
    servers = part(folder, manifest, "mcpServers", SERVERS, errors) if with_servers else {}
    return Plugin(
        name=name,
        path=folder,
        version=version if isinstance(version, str) else "",
        hooks=Value(value=hooks, source="flag", path=os.path.join(folder, HOOKS), root=folder) if hooks else None,
        servers={f"plugin:{name}:{server}": entry for server, entry in servers.items()},
        agents={f"{name}:{agent}": kind for agent, kind in agents_in(folder, name, errors).items()},
    )


def agents_in(folder: str, name: str, errors: list[Json]) -> dict[str, Any]:
    """The agents of a plugin, by the names their files give them."""
    place = Path(folder, "agents")
    if not place.is_dir():
        return {}
    from parley.settings.files.agents import OF_PLUGIN, gather

    found, flaws = gather(place, (folder,), withheld=OF_PLUGIN)
    errors += [error(name, "agent-invalid", f"{os.path.relpath(flaw.path, folder)} {flaw.text}") for flaw in flaws]
    return found


def part(folder: str, manifest: Json, key: str, usual: str, errors: list[Json]) -> Json:
    """What a plugin has under a key: in its manifest, in the file that it names there, or in the usual one."""
    said = manifest.get(key, usual)
    try:
        values = said if isinstance(said, dict) else read_part(folder, said)
        inner = values.get(key, values if isinstance(said, dict) else None)
        if not isinstance(inner, dict):
            raise safe_read.Unfit(f"must have the object {key}")
    except safe_read.Absent as flaw:
        if key in manifest:
            errors.append(error(manifest["name"], f"{key}-invalid", f"{said} {flaw}"))
        return {}
    except safe_read.Unfit as flaw:
        place = said if isinstance(said, str) else MANIFEST
        errors.append(error(manifest["name"], f"{key}-invalid", f"{place}: {flaw}"))
        return {}
    filled: Json = rooted(inner, folder)
    return filled


def read_part(folder: str, named: Any) -> Json:
    """Raises Unfit. No file outside of the plugin is one of its parts."""
    if not isinstance(named, str):
        raise safe_read.Unfit("must be an object or the name of a file")
    return safe_read.json_object(safe_read.read(os.path.join(folder, named), (folder,)).data)


def rooted(value: Any, folder: str) -> Any:
    """A value with the plugin's folder in it wherever it is meant."""
    if isinstance(value, str):
        return value.replace(ROOT, folder)
    if isinstance(value, list):
        return [rooted(item, folder) for item in value]
    if isinstance(value, dict):
        return {key: rooted(item, folder) for key, item in value.items()}
    return value
