"""`parley mcp add`, `add-json`, `remove`, `reset-project-choices`: change the files that declare servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from parley.cli.commands.catalog import VARIABLE
from parley.cli.commands.launch import open_launch
from parley.cli.commands.subcommand import GivenArgs, write_json, write_lines
from parley.compose.launch_context import LaunchContext
from parley.compose.setup.servers import SCOPES, ServerFiles, parse_entry
from parley.errors import UsageError
from parley.models.endpoint import without_userinfo
from parley.protocol.base import Json
from parley.settings.base import SettingsWriteError

NAME = re.compile(r"[A-Za-z0-9_-]+")
TRANSPORTS = {"stdio": "stdio", "http": "http", "streamable-http": "http", "sse": "sse"}


def add(given: GivenArgs) -> int:
    """Raises UsageError."""
    name, target, *args = given.words
    transport = given.one("transport", "stdio")
    if transport not in TRANSPORTS:
        raise UsageError(f"unknown transport {transport!r} (choose from stdio, http, sse)")
    if TRANSPORTS[transport] == "stdio":
        if not given.has("transport") and re.match(r"https?://", target):
            raise UsageError(
                f"{target} is a URL: add `--transport http` (or sse), or `--transport stdio` for a command"
            )
        if given.has("header"):
            raise UsageError(
                "option '--header' can be used only with servers that have a URL; for a command, use `-e KEY=VALUE`"
            )
        entry: Json = {"type": "stdio", "command": target, "args": args, "env": parse_variables(given.all("env"))}
        text = f"Added stdio MCP server {name} with command: {' '.join([target, *args])}"
    else:
        if given.has("env") or args:
            what = "option '--env'" if given.has("env") else f"the argument {args[0]!r}"
            raise UsageError(f"{what} can be used only with servers that are started by a command (--transport stdio)")
        headers = parse_headers(given.all("header"))
        entry = {"type": TRANSPORTS[transport], "url": target, **({"headers": headers} if headers else {})}
        text = f"Added {TRANSPORTS[transport].upper()} MCP server {name} with URL: {without_userinfo(target)}"
    return store(name, entry, given.one("scope", "local"), text, as_json=given.has("json"))


def add_json(given: GivenArgs) -> int:
    """Raises UsageError."""
    name, text = given.words
    try:
        entry = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise UsageError(f"the configuration of {name!r} is not valid JSON: {exc}") from None
    if not isinstance(entry, dict):
        raise UsageError(f"the configuration of {name!r} must be a JSON object")
    if "type" not in entry and "command" not in entry and "url" not in entry:
        raise UsageError(f"the configuration of {name!r} needs `command` or `url`")
    kind = entry.get("type") or ("stdio" if "command" in entry else "http")
    scope = given.one("scope", "local")
    return store(name, entry, scope, f"Added {kind} MCP server {name}", as_json=given.has("json"))


def store(name: str, entry: Json, scope: str, text: str, *, as_json: bool) -> int:
    """Check an entry and write it. Raises UsageError."""
    if NAME.fullmatch(name) is None:
        raise UsageError(f"invalid name {name!r}: names consist of letters, digits, hyphens and underscores")
    problem = parse_entry(name, entry, scope).problem
    if problem:
        raise UsageError(f"invalid MCP server {name!r}: {problem}")
    files = open_files()
    try:
        files.add(scope, name, entry)
    except SettingsWriteError as exc:
        raise UsageError(str(exc)) from None
    if as_json:
        return write_json({"name": name, "scope": scope, "file": str(files.path(scope))})
    lines = [f"{text} to {scope} config", f"File modified: {files.describe(scope)}"]
    if scope == "project":
        lines.append(f"The server takes effect after `parley trust {files.cwd}`")
    return write_lines(lines)


def remove(given: GivenArgs) -> int:
    """Raises UsageError."""
    (name,) = given.words
    files = open_files()
    wanted = given.one("scope")
    try:
        known = files.read()
        having = [scope for scope in SCOPES if name in known[scope] and wanted in ("", scope)]
        if not having:
            where = (
                f" in {wanted} scope"
                if wanted
                else f". {list_known(name for servers in known.values() for name in servers)}"
            )
            raise UsageError(f'No MCP server named "{name}"{where}')
        if len(having) > 1:
            ways = "".join(f"\n  parley mcp remove {name} -s {scope}" for scope in having)
            raise UsageError(f'MCP server "{name}" exists in several scopes; choose one:{ways}')
        (scope,) = having
        files.remove(scope, name)
    except SettingsWriteError as exc:
        raise UsageError(str(exc)) from None
    if given.has("json"):
        return write_json({"name": name, "scope": scope, "file": str(files.path(scope))})
    return write_lines([f'Removed MCP server "{name}" from {scope} config', f"File modified: {files.describe(scope)}"])


def reset_project_choices(given: GivenArgs) -> int:
    """Raises UsageError."""
    launch = open_launch()
    try:
        names = launch.settings.forget_servers()
        open_files(launch).forget_choices()
    except SettingsWriteError as exc:
        raise UsageError(str(exc)) from None
    if given.has("json"):
        return write_json({"reset": names})
    shown = f": {', '.join(names)}" if names else ""
    return write_lines([f"The servers of .mcp.json are no longer trusted{shown}"])


def list_known(names: Iterable[str]) -> str:
    found = ", ".join(sorted(set(names)))
    return f"Configured servers: {found}" if found else "No servers are configured"


def parse_variables(texts: Sequence[str]) -> dict[str, str]:
    """Raises UsageError."""
    wrong = [text for text in texts if re.match(VARIABLE, text) is None]
    if wrong:
        raise UsageError(f"invalid environment variable {wrong[0].partition('=')[0]!r}: write -e KEY=VALUE")
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def parse_headers(texts: Sequence[str]) -> dict[str, str]:
    """Raises UsageError."""
    pairs = [text.partition(":") for text in texts]
    wrong = [name for name, colon, _ in pairs if not colon or not name.strip()]
    if wrong:
        raise UsageError(f'invalid header {wrong[0][:20]!r}: write -H "Name: value"')
    return {name.strip(): value.strip() for name, _, value in pairs}


def open_files(launch: LaunchContext | None = None) -> ServerFiles:
    launch = open_launch() if launch is None else launch
    return ServerFiles(launch.user_file, launch.cwd)
