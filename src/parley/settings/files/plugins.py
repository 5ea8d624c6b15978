"""Load plugins: folders with commands, skills, agents, hooks and MCP servers under one name.

    plugin.json                   {"$schema": ".../1.0.0/plugin.schema.json", "name": "tools"}
    mcp.json                      {"$schema": ".../1.0.0/mcp.schema.json", "mcpServers": {...}}
    .claude-plugin/plugin.json    {"name": "tools", "version": "1.0"}; also `hooks` and `mcpServers`
    commands/ skills/ agents/     named `tools:NAME`
    hooks/hooks.json              {"hooks": {...}} as in settings
    .mcp.json                     {"mcpServers": {...}}; a server is named `plugin:tools:NAME`

The first two are of the format Agent Plugins 1.0.0 (agent-plugins.org), the others of Claude Code. A plugin has one of
the manifests, or both: then the portable one gives name and version, and servers of both files are used. A field that
the specification does not have is reported and ignored; any other error in the portable manifest rejects the plugin. An
invalid `mcp.json` costs only the servers, an invalid server only itself.

The user names the folder on the command line or installs it, and thereby trusts it. `${CLAUDE_PLUGIN_ROOT}` is
replaced by its path. A plugin that cannot be loaded is reported and skipped. Nothing is downloaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from parley.models.endpoint import is_loopback
from parley.protocol.base import Json
from parley.settings import safe_read
from parley.settings.base import Plugin, Plugins, SettingsValue
from parley.settings.files.agents import OF_PLUGIN, load_agents

MANIFEST = ".claude-plugin/plugin.json"
HOOKS = "hooks/hooks.json"
SERVERS = ".mcp.json"
ROOT = "${CLAUDE_PLUGIN_ROOT}"
NAME = re.compile(r"\w[\w-]*(\.\w[\w-]*)*")
UNSUPPORTED = ("commands", "skills", "agents", "outputStyles", "lspServers")
"""Manifest keys without effect: these parts are always loaded from their folders."""


def has_manifest(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (PORTABLE_MANIFEST, MANIFEST))


def load_plugins(folders: Mapping[str, Path], without_servers: Collection[str] = ()) -> Plugins:
    """Load plugins. Each folder comes with that in which the plugin has its own folder for what it writes.

    Of the folders in `without_servers`, no MCP servers are loaded.
    """
    found: dict[str, Plugin] = {}
    errors: list[Json] = []
    for number, (folder, data) in enumerate(folders.items()):
        try:
            plugin = read_plugin(folder, errors, data, with_servers=folder not in without_servers)
            if plugin.name in found:
                raise safe_read.UnreadableFile(f"another plugin is named {plugin.name!r}: {found[plugin.name].path}")
        except safe_read.MissingFile:
            text = f"not a plugin: it has no {MANIFEST} and no plugin.json"
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


def read_plugin(folder: str, errors: list[Json], data: Path, *, with_servers: bool) -> Plugin:
    """Raises UnreadableFile, or MissingFile if there is no manifest. An invalid part is reported and skipped."""
    portable, manifest = read_manifests(folder)
    notes: list[str] = []
    if portable is not None:
        header = parse_manifest(portable, notes)
        manifest = {**(manifest or {}), "name": header.name, "version": header.version}
    assert manifest is not None
    name, version = manifest.get("name"), manifest.get("version", "")
    if portable is None and (not isinstance(name, str) or NAME.fullmatch(name) is None):
        raise safe_read.UnreadableFile(
            f"{MANIFEST}: `name` must consist of letters, digits, `-`, `_` and single dots, not {name!r}"
        )
    if ignored := [key for key in UNSUPPORTED if key in manifest]:
        notes.append(f"{MANIFEST}: keys without effect: {', '.join(ignored)}")
    errors += [build_error(str(name), "not-heeded", note) for note in notes]
    hooks = load_part(folder, manifest, "hooks", HOOKS, errors)
    is_original = portable is None or os.path.isfile(os.path.join(folder, MANIFEST))
    servers = load_part(folder, manifest, "mcpServers", SERVERS, errors) if with_servers and is_original else {}
    own_data = str(data / str(name))
    if portable is not None and with_servers:
        servers |= load_portable_servers(folder, str(name), own_data, errors)
    return Plugin(
        name=str(name),
        path=folder,
        version=version if isinstance(version, str) else "",
        hooks=SettingsValue(value=hooks, source="flag", path=os.path.join(folder, HOOKS), root=folder)
        if hooks
        else None,
        servers={f"plugin:{name}:{server}": entry for server, entry in servers.items()},
        agents={f"{name}:{agent}": kind for agent, kind in load_plugin_agents(folder, str(name), errors).items()},
        data=own_data if portable is not None else "",
        is_portable=not is_original,
    )


def read_manifests(folder: str) -> tuple[Json | None, Json | None]:
    """The portable manifest and that of Claude Code. Raises UnreadableFile, or MissingFile if there is neither."""
    found: dict[str, Json] = {}
    for name in (PORTABLE_MANIFEST, MANIFEST):
        try:
            found[name] = read_part(folder, name)
        except safe_read.MissingFile:
            continue
        except safe_read.UnreadableFile as exc:
            raise safe_read.UnreadableFile(f"{name} {exc}") from None
    if not found:
        raise safe_read.MissingFile("does not exist")
    portable, original = found.get(PORTABLE_MANIFEST), found.get(MANIFEST)
    if original is not None and portable is not None and not is_portable(portable):
        portable = None  # the file of another program
    return portable, original


def load_portable_servers(folder: str, name: str, data: str, errors: list[Json]) -> Json:
    """The servers of `mcp.json`."""
    problems: list[str] = []
    try:
        servers = parse_servers(read_part(folder, PORTABLE_SERVERS), folder, data, problems)
    except safe_read.MissingFile:
        return {}
    except safe_read.UnreadableFile as exc:
        servers, problems = {}, [str(exc) if str(exc).startswith("mcp") else f"{PORTABLE_SERVERS} {exc}"]
    errors += [build_error(name, "mcpServers-invalid", problem) for problem in problems]
    return servers


def load_plugin_agents(folder: str, name: str, errors: list[Json]) -> dict[str, Any]:
    """Load the agents of a plugin, by the names in their files."""
    agents = Path(folder, "agents")
    if not agents.is_dir():
        return {}

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
    if os.path.isabs(name) or ".." in Path(name).parts or "\0" in name:
        raise safe_read.UnreadableFile("must be a path inside the plugin")
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


# The format Agent Plugins.

PORTABLE_MANIFEST = "plugin.json"
PORTABLE_SERVERS = "mcp.json"
SCHEMAS = "https://agent-plugins.org/schemas/"
PORTABLE_VERSION = "1.0.0"
PORTABLE_NAME = re.compile(r"(?!.*(--|\.\.))[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?")
PORTABLE_ROOT, PORTABLE_DATA = "PLUGIN_ROOT", "PLUGIN_DATA"


class PortableAuthor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str = ""
    email: str = ""
    url: str = ""


class PortableManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `plugin.json` may contain. `extensions` are of other clients and are not read."""

    schema: str = msgspec.field(name="$schema")
    name: str
    version: str = ""
    description: str = ""
    author: PortableAuthor | msgspec.UnsetType = msgspec.UNSET
    homepage: str = ""
    repository: str = ""
    license: str = ""
    keywords: list[str] = []


class PortableStdio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: Literal["stdio"]
    command: str
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str = "./"


class PortableRemote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: Literal["streamable-http", "sse"]
    url: str
    headers: dict[str, str] = {}


def is_portable(manifest: Json) -> bool:
    """Whether a file named `plugin.json` is meant to be a manifest of this format, of any version."""
    return str(manifest.get("$schema", "")).startswith(SCHEMAS)


def parse_manifest(values: Json, notes: list[str]) -> PortableManifest:
    """Raises UnreadableFile if the plugin must be rejected. What is ignored is added to the notes."""
    known = {field.encode_name for field in msgspec.structs.fields(PortableManifest)}
    if not isinstance(values.get("extensions", {}), dict):
        notes.append(f"{PORTABLE_MANIFEST}: `extensions` must be an object; ignored")
    unknown = [key for key in values if key not in known and key != "extensions"]
    if unknown:
        notes.append(f"{PORTABLE_MANIFEST}: unknown fields are ignored: {', '.join(map(ascii, unknown))}")
    try:
        found = msgspec.convert({key: value for key, value in values.items() if key in known}, PortableManifest)
    except msgspec.ValidationError as exc:
        raise safe_read.UnreadableFile(f"{PORTABLE_MANIFEST}: {exc}") from None
    check_schema(found.schema, "plugin", PORTABLE_MANIFEST)
    if PORTABLE_NAME.fullmatch(found.name) is None:
        raise safe_read.UnreadableFile(
            f"{PORTABLE_MANIFEST}: `name` must have 1 to 64 characters a-z, 0-9, single `-` and single `.` inside, "
            f"not {found.name!a:.100}"
        )
    return found


def check_schema(schema: object, kind: str, file: str) -> None:
    """Raises UnreadableFile."""
    wanted = f"{SCHEMAS}{PORTABLE_VERSION}/{kind}.schema.json"
    if schema != wanted:
        raise safe_read.UnreadableFile(f"{file}: `$schema` must be {wanted}, not {schema!a:.200}")


def parse_servers(values: Json, folder: str, data: str, errors: list[str]) -> Json:
    """The servers of `mcp.json` as entries of our own format. Raises UnreadableFile if the whole file is invalid."""
    check_schema(values.get("$schema"), "mcp", PORTABLE_SERVERS)
    servers = values.get("mcpServers")
    if not isinstance(servers, dict) or len(values) != 2:
        raise safe_read.UnreadableFile(
            f"{PORTABLE_SERVERS}: must have `$schema`, an object `mcpServers`, and nothing else"
        )
    found: Json = {}
    for name, entry in servers.items():
        try:
            is_stdio = isinstance(entry, dict) and entry.get("type") == "stdio"
            if is_stdio:
                found[name] = convert_stdio(msgspec.convert(entry, PortableStdio), folder, data)
            else:
                found[name] = convert_remote(msgspec.convert(entry, PortableRemote))
        except (msgspec.ValidationError, safe_read.UnreadableFile) as exc:
            errors.append(f"{PORTABLE_SERVERS}: server {name!a:.100}: {exc}")
    return found


def convert_stdio(server: PortableStdio, folder: str, data: str) -> Json:
    """Raises UnreadableFile."""
    command = server.command
    if command.startswith("./"):
        command = resolve_inside(folder, command, "command")
    elif not command or re.search(r"[\s/\\\0]", command) or command in (".", ".."):
        raise safe_read.UnreadableFile("`command` must be the name of a program, or a path that starts with `./`")
    if reserved := [name for name in (PORTABLE_ROOT, PORTABLE_DATA) if name in server.env]:
        raise safe_read.UnreadableFile(f"`env` must not set {reserved[0]}")
    start, slash, rest = server.cwd.partition("/")
    base = {".": folder, f"${{{PORTABLE_ROOT}}}": folder, f"${{{PORTABLE_DATA}}}": data}.get(start)
    if base is None or (start == "." and not slash):
        raise safe_read.UnreadableFile("`cwd` must start with `./`, `${PLUGIN_ROOT}` or `${PLUGIN_DATA}`")
    values = {PORTABLE_ROOT: folder, PORTABLE_DATA: data}
    return {
        "type": "stdio",
        "command": command,
        "args": [expand(word, values) for word in server.args],
        "env": {**{name: expand(value, values) for name, value in server.env.items()}, **values},
        "cwd": resolve_inside(base, f"./{expand(rest, values)}", "cwd"),
        "literal": True,
    }


def convert_remote(server: PortableRemote) -> Json:
    """Raises UnreadableFile."""
    try:
        url = urlsplit(server.url)
        host, has_user = url.hostname or "", url.username is not None
    except ValueError as exc:
        raise safe_read.UnreadableFile(f"`url` is invalid: {exc}") from None
    if url.scheme not in ("http", "https") or not host or has_user or "#" in server.url:
        raise safe_read.UnreadableFile("`url` must be an absolute http or https URL without user and fragment")
    if url.scheme == "http" and not is_loopback(server.url):
        raise safe_read.UnreadableFile("`url` must use https, except for this machine")
    if len({name.lower() for name in server.headers}) != len(server.headers):
        raise safe_read.UnreadableFile("`headers` has a name twice")
    return {"type": server.type, "url": server.url, "headers": server.headers, "literal": True}


def expand(text: str, values: dict[str, str]) -> str:
    """Replace the two placeholders, once: what is inserted is not searched again."""
    return re.sub(r"\$\{(PLUGIN_ROOT|PLUGIN_DATA)\}", lambda found: values[found[1]], text)


def resolve_inside(folder: str, path: str, field: str) -> str:
    """Raises UnreadableFile if a path leads out of its folder."""
    if "\0" in path:
        raise safe_read.UnreadableFile(f"`{field}` contains a NUL character")
    real, root = os.path.realpath(os.path.join(folder, path)), os.path.realpath(folder)
    if real != root and not safe_read.is_beneath(real, root):
        raise safe_read.UnreadableFile(f"`{field}` leads out of the plugin: {path!a:.200}")
    return real
