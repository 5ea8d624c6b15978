"""Agent Plugins 1.0.0 (agent-plugins.org): the portable manifest `plugin.json`, and `mcp.json` beside it.

    plugin.json    {"$schema": "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json", "name": "tools"}
    mcp.json       {"$schema": "https://agent-plugins.org/schemas/1.0.0/mcp.schema.json", "mcpServers": {...}}

A field that the specification does not have is reported and ignored; any other error in the manifest rejects the
plugin. An invalid `mcp.json` costs only the servers, an invalid server only itself. Nothing is downloaded.

See also: `plugins.py` loads a plugin of this and of Claude Code's layout.
"""

from __future__ import annotations

import os
import re
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from parley.models.endpoint import is_loopback
from parley.protocol.base import Json
from parley.settings import safe_read

MANIFEST = "plugin.json"
SERVERS = "mcp.json"
SCHEMAS = "https://agent-plugins.org/schemas/"
VERSION = "1.0.0"
NAME = re.compile(r"(?!.*(--|\.\.))[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?")
ROOT, DATA = "PLUGIN_ROOT", "PLUGIN_DATA"


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
        notes.append(f"{MANIFEST}: `extensions` must be an object; ignored")
    unknown = [key for key in values if key not in known and key != "extensions"]
    if unknown:
        notes.append(f"{MANIFEST}: unknown fields are ignored: {', '.join(map(ascii, unknown))}")
    try:
        found = msgspec.convert({key: value for key, value in values.items() if key in known}, PortableManifest)
    except msgspec.ValidationError as exc:
        raise safe_read.UnreadableFile(f"{MANIFEST}: {exc}") from None
    check_schema(found.schema, "plugin", MANIFEST)
    if NAME.fullmatch(found.name) is None:
        raise safe_read.UnreadableFile(
            f"{MANIFEST}: `name` must have 1 to 64 characters a-z, 0-9, single `-` and single `.` inside, "
            f"not {found.name!a:.100}"
        )
    return found


def check_schema(schema: object, kind: str, file: str) -> None:
    """Raises UnreadableFile."""
    wanted = f"{SCHEMAS}{VERSION}/{kind}.schema.json"
    if schema != wanted:
        raise safe_read.UnreadableFile(f"{file}: `$schema` must be {wanted}, not {schema!a:.200}")


def parse_servers(values: Json, folder: str, data: str, errors: list[str]) -> Json:
    """The servers of `mcp.json` as entries of our own format. Raises UnreadableFile if the whole file is invalid."""
    check_schema(values.get("$schema"), "mcp", SERVERS)
    servers = values.get("mcpServers")
    if not isinstance(servers, dict) or len(values) != 2:
        raise safe_read.UnreadableFile(f"{SERVERS}: must have `$schema`, an object `mcpServers`, and nothing else")
    found: Json = {}
    for name, entry in servers.items():
        try:
            is_stdio = isinstance(entry, dict) and entry.get("type") == "stdio"
            if is_stdio:
                found[name] = convert_stdio(msgspec.convert(entry, PortableStdio), folder, data)
            else:
                found[name] = convert_remote(msgspec.convert(entry, PortableRemote))
        except (msgspec.ValidationError, safe_read.UnreadableFile) as exc:
            errors.append(f"{SERVERS}: server {name!a:.100}: {exc}")
    return found


def convert_stdio(server: PortableStdio, folder: str, data: str) -> Json:
    """Raises UnreadableFile."""
    command = server.command
    if command.startswith("./"):
        command = resolve_inside(folder, command, "command")
    elif not command or re.search(r"[\s/\\\0]", command) or command in (".", ".."):
        raise safe_read.UnreadableFile("`command` must be the name of a program, or a path that starts with `./`")
    if reserved := [name for name in (ROOT, DATA) if name in server.env]:
        raise safe_read.UnreadableFile(f"`env` must not set {reserved[0]}")
    start, slash, rest = server.cwd.partition("/")
    base = {".": folder, f"${{{ROOT}}}": folder, f"${{{DATA}}}": data}.get(start)
    if base is None or (start == "." and not slash):
        raise safe_read.UnreadableFile("`cwd` must start with `./`, `${PLUGIN_ROOT}` or `${PLUGIN_DATA}`")
    values = {ROOT: folder, DATA: data}
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
