"""Check the values of a layer: wrong types, duplicate keys."""

from __future__ import annotations

import re
from typing import Any

from parley.protocol.base import Json
from parley.settings.base import SettingsLayer, SettingsProblem
from parley.settings.keys.table import KEYS, PERMISSIONS, SettingKey

RESTRICTIONS = frozenset(
    {
        "permissions",
        "permissions.deny",
        "permissions.ask",
        "permissions.disableBypassPermissionsMode",
        "permissions.disableAutoMode",
        "permissions.blockReadsOutsideWorkingDirectories",
        "permissions.blockWritesOutsideWorkingDirectories",
        "permissions.workingDirectoriesAsGiven",
        "permissions.denyInsteadOfPrompting",
        "sandbox",
        "sandbox.enabled",
        "sandbox.failIfUnavailable",
        "sandbox.allowUnsandboxedCommands",
        "sandbox.network",
        "sandbox.network.deniedDomains",
        "sandbox.network.strictAllowlist",
        "sandbox.filesystem",
        "sandbox.filesystem.denyRead",
        "sandbox.filesystem.denyWrite",
        "sandbox.credentials",
        "sandbox.credentials.files",
        "sandbox.credentials.envVars",
        "models",  # a price decides when a budget is spent
        "availableModels",
        "enforceAvailableModels",
        "allowedMcpServers",
        "deniedMcpServers",
        "disabledMcpjsonServers",
        "disableAutoMode",
        "disableSkillShellExecution",
    }
)
"""The keys that restrict a session, besides those of administrators."""


def validate_layer(layer: SettingsLayer) -> tuple[Json, list[SettingsProblem]]:
    """Return the values with the right types, and the problems of the others."""
    problems = find_repeated_keys(layer)
    values = check_kinds(layer, layer.values, KEYS, "", problems)
    if "permissions" in values:
        values["permissions"] = check_permissions(layer, values["permissions"], problems)
    if "sandbox" in values:
        values["sandbox"] = check_sandbox(layer, values["sandbox"], problems)
    if "env" in values:
        values["env"] = check_environment(layer, values["env"], problems)
    return values, problems


def check_kinds(
    layer: SettingsLayer, values: Json, keys: dict[str, SettingKey], prefix: str, problems: list[SettingsProblem]
) -> Json:
    valid: Json = {}
    for key, value in values.items():
        known = keys.get(key)
        if known is None or known.kind.accepts(value):
            valid[key] = value
            continue
        restricts = f"{prefix}{key}" in RESTRICTIONS
        text = f"{prefix}{key} must be {known.kind.description}{'' if restricts else '; ignored'}"
        line = find_line(layer, f'"{key}"')
        problems.append(SettingsProblem(path=layer.path, text=text, line=line, restricts=restricts))
    return valid


def check_permissions(layer: SettingsLayer, permissions: Json, problems: list[SettingsProblem]) -> Json:
    valid = check_kinds(layer, permissions, PERMISSIONS, "permissions.", problems)
    for key in ("allow", "deny", "ask", "additionalDirectories"):
        if any(not isinstance(item, str) for item in valid.get(key, ())):
            restricts = f"permissions.{key}" in RESTRICTIONS
            text = f"permissions.{key} must be a list of strings{'' if restricts else '; its other items are ignored'}"
            line = find_line(layer, f'"{key}"')
            problems.append(SettingsProblem(path=layer.path, text=text, line=line, restricts=restricts))
            valid[key] = [item for item in valid[key] if isinstance(item, str)]
    return valid


def check_sandbox(layer: SettingsLayer, sandbox: Json, problems: list[SettingsProblem]) -> Json:
    """Restrictions with the wrong type stop the start; without them, commands could do more than was asked for."""
    from parley.settings.keys.sandbox import GROUPS, SANDBOX

    valid = check_kinds(layer, sandbox, SANDBOX, "sandbox.", problems)
    for group, keys in GROUPS.items():
        if group in valid:
            valid[group] = check_kinds(layer, valid[group], keys, f"sandbox.{group}.", problems)
    return valid


def check_environment(layer: SettingsLayer, variables: Json, problems: list[SettingsProblem]) -> Json:
    valid: Json = {}
    for name, value in variables.items():
        if name and not set(name) & {"=", "\0"} and isinstance(value, str) and "\0" not in value:
            valid[name] = value
        else:
            text = f"env: {name!a} must be a valid variable name with a string as its value; ignored"
            problems.append(SettingsProblem(path=layer.path, text=text, line=find_line(layer, f'"{name}"')))
    return valid


def find_repeated_keys(layer: SettingsLayer) -> list[SettingsProblem]:
    """Report duplicate keys: the first value is lost, and it may contain the deny rules or the hooks."""
    names = re.findall(rb'"([^"\\]*)"\s*:', layer.text)
    if len(set(names)) == len(names) and b"\\" not in layer.text:
        return []
    import json  # slow to import and rarely needed

    problems: list[SettingsProblem] = []

    def check_pairs(pairs: list[tuple[str, Any]]) -> Json:
        names = [name for name, _ in pairs]
        for name in sorted({name for name in names if names.count(name) > 1}):
            text = f"duplicate key {name!a}; only the last one takes effect"
            problems.append(SettingsProblem(path=layer.path, text=text, line=find_line(layer, f'"{name}"')))
        return dict(pairs)

    json.loads(layer.text.removeprefix(b"\xef\xbb\xbf"), object_pairs_hook=check_pairs)
    return problems


def find_line(layer: SettingsLayer, text: str) -> int | None:
    """Return the line of the first occurrence of a text in the file, or None."""
    at = layer.text.find(text.encode("utf-8", "replace"))
    return None if at < 0 else layer.text.count(b"\n", 0, at) + 1
