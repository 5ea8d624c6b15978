"""`parley config`, `auth` and `trust`: settings in effect and their files, which key is used, and trusted folders.

Keys are never shown. The fields of `auth status` are those of Claude Code, because clients read them.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.subcommand import (
    GivenArgs,
    Subcommand,
    open_launch,
    write_help,
    write_json,
    write_lines,
    write_result,
)
from parley.compose.hooks import find_hook_problems
from parley.compose.launch_context import LaunchContext
from parley.compose.setup.model_server import KeyStatus, find_status
from parley.errors import InvalidArguments, UsageError
from parley.protocol.base import Json
from parley.protocol.options import CliOptions
from parley.settings.base import printable
from parley.settings.secret_variables import is_secret

DESTINATIONS = {"user": "userSettings", "project": "projectSettings", "local": "localSettings"}
MASK = "***"
METHODS = {"apiKeyHelper": "api_key_helper", "ANTHROPIC_AUTH_TOKEN": "oauth_token"}
"""How Claude Code calls the sources of keys that are not plain API keys."""
PROVIDERS = {"anthropic": "firstParty"}


class ConfigCommand(Subcommand):
    def __init__(self, given: GivenArgs) -> None:
        super().__init__(given)
        self.launch = open_launch()
        for warning in self.launch.settings.warnings():
            self.launch.warn(warning)

    def list(self) -> int:
        settings = mask(self.launch.settings.merged.to_json())
        lines = (
            f"{key} = {printable(msgspec.json.encode(value).decode(), 2_000)}{describe_source(self.launch, key)}"
            for key, value in sorted(settings.items())
        )
        return self.write(settings, lines, nothing="no settings are in effect here")

    def get(self, key: str) -> int:
        value: Any = mask(self.launch.settings.merged.to_json())
        for part in split_key(key):
            if not isinstance(value, dict) or part not in value:
                raise UsageError(f"{key} is not set")
            value = value[part]
        if self.given.has("json") or not isinstance(value, str):
            return write_json(value)
        return write_lines([printable(value, 10_000)])

    def set(self, key: str, text: str) -> int:
        try:
            value: Any = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            value = text
        if split_key(key)[0] == "env" and "." in key and not isinstance(value, str):
            value = text  # variables are strings: `config set env.PORT 80`
        if value is None:
            raise UsageError(f"{key} cannot be null; use `parley config unset {key}`")
        return self.unset(key, value)

    def unset(self, key: str, value: Any = None) -> int:
        """Write a value, or remove it if it is None. Raises UsageError, SettingsWriteError."""
        scope, parts, settings = self.given.one("scope", "user"), split_key(key), self.launch.settings
        path = settings.writer.set_value(DESTINATIONS[scope], parts, value)
        lines = [f"{'Removed' if value is None else 'Set'} {key} in {path}"]
        if scope != "user" and value is not None and not is_in_effect(self.launch, parts, DESTINATIONS[scope]):
            lines.append(f"It takes effect after `parley trust {self.launch.cwd}`")
        return self.write({"key": key, "scope": scope, "file": str(path), "is_set": value is not None}, lines)


def is_in_effect(launch: LaunchContext, parts: list[str], destination: str) -> bool:
    value: Any = launch.settings.reread(destination).to_json()
    for part in parts:
        value = value.get(part) if isinstance(value, dict) else None
    return value is not None


def split_key(key: str) -> list[str]:
    """Raises UsageError."""
    parts = key.split(".")
    if not all(parts):
        raise UsageError(f"invalid key {key!r}")
    return parts


def mask(settings: Json) -> Json:
    """Hide what may be a secret: secret variables, and the variables and headers of MCP servers."""
    masked = dict(settings)
    if isinstance(variables := settings.get("env"), dict):
        masked["env"] = {name: MASK if is_secret(name, value) else value for name, value in variables.items()}
    if isinstance(servers := settings.get("mcpServers"), dict):
        masked["mcpServers"] = {name: mask_server(server) for name, server in servers.items()}
    return masked


def mask_server(server: Any) -> Any:
    if not isinstance(server, dict):
        return server
    hidden = {
        field: dict.fromkeys(server[field], MASK)
        for field in ("env", "headers", "oauth")
        if isinstance(server.get(field), dict)
    }
    return {**server, **hidden}


def describe_source(launch: LaunchContext, key: str) -> str:
    found = launch.settings.merged.values.get(key)
    return "" if found is None else f"  ({found.source}: {printable(os.path.relpath(found.path, launch.cwd))})"


def show_key(given: GivenArgs) -> int:
    launch = open_launch()
    status = find_status(launch)
    code = 0 if status.is_usable else 1
    if given.has("text"):
        return write_lines(format_status(status), code)
    return write_json(build_json(launch, status), code)


def build_json(launch: LaunchContext, status: KeyStatus) -> Json:
    has_key = status.is_usable and status.source not in ("none", "none needed", "its own")
    method = METHODS.get(status.source, "api_key") if has_key else "third_party" if status.is_cloud else "none"
    return {
        "loggedIn": status.is_usable,
        "authMethod": method,
        "apiProvider": PROVIDERS.get(status.backend, status.backend),
        "analyticsDisabled": True,
        "projectsDirectory": str(launch.config / "projects"),
        "configDirectory": str(launch.config),
        "loginExpiresAt": None,
        **({"apiKeySource": status.source} if has_key else {}),
        "model": status.model,
        **({"error": status.problem} if status.problem else {}),
    }


def log_out(_given: GivenArgs) -> int:
    return write_lines(["Not logged in: Parley stores no key"])


def show_auto_mode(given: GivenArgs) -> int:
    """Raises SettingsWriteError."""
    if given.action == "reset":
        path = open_launch().settings.writer.set_value(DESTINATIONS["user"], ["autoMode"], None)
        return write_lines([f"{path} has no autoMode section"])
    return write_json({kind: [] for kind in ("allow", "soft_deny", "hard_deny", "environment")})


def format_status(status: KeyStatus) -> list[str]:
    lines = [f"model: {status.model} ({status.backend})", f"key: {status.source}"]
    return [*lines, status.problem] if status.problem else lines


def change_trust(given: GivenArgs) -> int:
    folders = [*given.words, *given.all("forget")]
    if not folders and not given.has("list"):
        return write_help(COMMANDS["trust"])
    if len(folders) + given.has("list") > 1 or "" in folders:
        raise InvalidArguments("use only one of DIR, --forget DIR and --list")
    if given.has("list"):
        result: Json = {"trusted": open_context("/").settings.trusted_folders()}
    elif given.has("forget"):
        result = {"folder": open_context(folders[0]).settings.record_trust(False), "is_trusted": False}
    else:
        result = trust(folders[0])
    return write_result(given, result, map(printable, format_trust(result)))


def trust(folder: str) -> Json:
    """Trust a folder; the result names the settings which take effect by this."""
    settings = open_context(folder).settings
    entries = settings.trust_dependent_entries()  # read once, so that what is shown is what is recorded
    effects = [{"setting": text, "file": path} for text, path in entries if not settings.is_in_effect(text)]
    path, trusted = settings.record_trust(True, entries), open_context(folder)
    warnings = [*trusted.settings.warnings(), *find_hook_problems(trusted)]
    return {"folder": path, "is_trusted": True, "in_effect": effects, "warnings": warnings}


def format_trust(result: Json) -> list[str]:
    if "trusted" in result:
        return list(result["trusted"])
    if not result["is_trusted"]:
        return [f"{result['folder']} is no longer trusted"]
    effects = [f"  in effect: {row['setting']} ({row['file']})" for row in result["in_effect"]]
    return [f"{result['folder']} is trusted", *effects, *(f"  {warning}" for warning in result["warnings"])]


def open_context(folder: str) -> LaunchContext:
    return LaunchContext(CliOptions(), dict(os.environ), os.path.abspath(folder))
