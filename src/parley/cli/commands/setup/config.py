"""`parley config`: read the settings in effect, and write one to a settings file."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from parley.cli.commands import catalog
from parley.cli.commands.launch import open_launch
from parley.cli.commands.subcommand import GivenArgs, run_command, write_json, write_lines
from parley.compose.launch_context import LaunchContext
from parley.errors import UsageError
from parley.protocol.base import Json
from parley.settings.base import SettingsWriteError, printable
from parley.settings.secret_variables import is_secret

DESTINATIONS = {"user": "userSettings", "project": "projectSettings", "local": "localSettings"}
MASK = "***"


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    handlers = {name: partial(run_action, action) for name, action in ACTIONS.items()}
    return run_command(catalog.COMMANDS["config"], argv, handlers)


def run_action(action: Callable[[LaunchContext, GivenArgs], int], given: GivenArgs) -> int:
    launch = open_launch()
    for warning in launch.settings.warnings():
        launch.warn(warning)
    try:
        return action(launch, given)
    except SettingsWriteError as exc:
        raise UsageError(str(exc)) from None


def list_settings(launch: LaunchContext, given: GivenArgs) -> int:
    settings = mask(launch.settings.merged.to_json())
    if given.has("json"):
        return write_json(settings)
    return write_lines(
        f"{key} = {printable(encode(value), 2_000)}{describe_source(launch, key)}"
        for key, value in sorted(settings.items())
    )


def get_setting(launch: LaunchContext, given: GivenArgs) -> int:
    (key,) = given.words
    value: Any = mask(launch.settings.merged.to_json())
    for part in split_key(key):
        if not isinstance(value, dict) or part not in value:
            raise UsageError(f"{key} is not set")
        value = value[part]
    if given.has("json") or not isinstance(value, str):
        return write_json(value)
    return write_lines([printable(value, 10_000)])


def set_setting(launch: LaunchContext, given: GivenArgs) -> int:
    key, text = given.words
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        value = text
    if split_key(key)[0] == "env" and "." in key and not isinstance(value, str):
        value = text  # variables are strings: `config set env.PORT 80`
    if value is None:
        raise UsageError(f"{key} cannot be null; use `parley config unset {key}`")
    return change(launch, given, value)


def unset_setting(launch: LaunchContext, given: GivenArgs) -> int:
    return change(launch, given, None)


def change(launch: LaunchContext, given: GivenArgs, value: Any) -> int:
    """Write a value, or remove it if it is None. Raises UsageError, SettingsWriteError."""
    key, scope = given.words[0], given.one("scope", "user")
    parts = split_key(key)
    path = launch.settings.writer.set_value(DESTINATIONS[scope], parts, value)
    if given.has("json"):
        return write_json({"key": key, "scope": scope, "file": str(path), "is_set": value is not None})
    lines = [f"{'Removed' if value is None else 'Set'} {key} in {path}"]
    if scope != "user" and value is not None and not is_in_effect(launch, parts, DESTINATIONS[scope]):
        lines.append(f"It takes effect after `parley trust {launch.cwd}`")
    return write_lines(lines)


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


def encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def describe_source(launch: LaunchContext, key: str) -> str:
    found = launch.settings.merged.values.get(key)
    return "" if found is None else f"  ({found.source}: {printable(os.path.relpath(found.path, launch.cwd))})"


ACTIONS: dict[str, Callable[[LaunchContext, GivenArgs], int]] = {
    "list": list_settings,
    "get": get_setting,
    "set": set_setting,
    "unset": unset_setting,
}
