"""The known settings keys: the type of each value, and which layers may set it.

A key from the working tree always takes effect (ANYONE), takes effect if the folder is trusted (TRUSTED),
or never takes effect (PERSON) because it changes credentials, endpoints or consent. An unknown key
requires trust.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from parley.protocol.base import Json, Struct
from parley.protocol.options import MODES, SYNC_POLICIES
from parley.settings.base import SettingsLayer, SettingsProblem
from parley.settings.limits import LIMITS, are_limits

KeyScope = Literal["anyone", "trusted", "person"]
ANYONE: KeyScope = "anyone"
TRUSTED: KeyScope = "trusted"
PERSON: KeyScope = "person"


class ValueKind(Struct, frozen=True):
    """A type of values, with its description for error messages."""

    description: str
    accepts: Callable[[Any], bool]


def is_memory(value: Any) -> bool:
    from parley.settings.memory_options import is_valid

    return is_valid(value)


def is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


TEXT = ValueKind("a string", lambda value: isinstance(value, str))
SWITCH = ValueKind("true or false", lambda value: isinstance(value, bool))
WHOLE = ValueKind("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool))
COUNT = ValueKind("a whole number, 0 or more", lambda value: WHOLE.accepts(value) and value >= 0)
OBJECT = ValueKind("an object", lambda value: isinstance(value, dict))
LIST = ValueKind("a list", lambda value: isinstance(value, list))
TEXTS = ValueKind("a list of strings", is_texts)
MODE = ValueKind(f"one of {', '.join(MODES)}", lambda value: value in (*MODES, "manual"))
SYNC = ValueKind(f"one of {', '.join(SYNC_POLICIES)}", lambda value: value in SYNC_POLICIES)
DISABLE = ValueKind('"disable"', lambda value: value == "disable")
LIMIT_OBJECT = ValueKind(f"an object of numbers with keys from {', '.join(LIMITS)}", are_limits)
MEMORY_OBJECT = ValueKind("an object with known keys and valid values (docs/memory.md)", is_memory)
ANY = ValueKind("anything", lambda value: True)


class SettingKey(Struct, frozen=True):
    """The type of a key's value, and which layers may set it."""

    kind: ValueKind
    scope: KeyScope = TRUSTED


KEYS: dict[str, SettingKey] = {
    "$schema": SettingKey(ANY, ANYONE),
    "agent": SettingKey(TEXT),
    "alwaysThinkingEnabled": SettingKey(SWITCH),
    "apiKeyHelper": SettingKey(TEXT, PERSON),
    "autoCompactEnabled": SettingKey(SWITCH),
    "autoCompactWindow": SettingKey(COUNT),
    "availableModels": SettingKey(TEXTS),
    "awsAuthRefresh": SettingKey(TEXT, PERSON),
    "awsCredentialExport": SettingKey(TEXT, PERSON),
    "bashOutputMaxChars": SettingKey(COUNT),
    "claudeMdExcludes": SettingKey(TEXTS, ANYONE),
    "cleanupPeriodDays": SettingKey(WHOLE),
    "disableAllHooks": SettingKey(SWITCH, PERSON),
    "disabledMcpjsonServers": SettingKey(TEXTS, ANYONE),
    "effortLevel": SettingKey(TEXT),
    "enableAllProjectMcpServers": SettingKey(SWITCH, PERSON),
    "enabledMcpjsonServers": SettingKey(TEXTS, PERSON),
    "env": SettingKey(OBJECT),
    "fallbackModel": SettingKey(TEXT),
    "fileCheckpointingEnabled": SettingKey(SWITCH),
    "fsync": SettingKey(SYNC),
    "gcpAuthRefresh": SettingKey(TEXT, PERSON),
    "hooks": SettingKey(OBJECT),
    "includeCoAuthoredBy": SettingKey(SWITCH, ANYONE),
    "language": SettingKey(TEXT, ANYONE),
    "limits": SettingKey(LIMIT_OBJECT),
    "mcpServers": SettingKey(OBJECT),
    "memory": SettingKey(MEMORY_OBJECT),
    "model": SettingKey(TEXT),
    "otelHeadersHelper": SettingKey(TEXT, PERSON),
    "outputStyle": SettingKey(TEXT, ANYONE),
    "permissions": SettingKey(OBJECT),
    "plansDirectory": SettingKey(TEXT),
    "proxyAuthHelper": SettingKey(TEXT, PERSON),
    "respectGitignore": SettingKey(SWITCH),
    "sandbox": SettingKey(OBJECT),
    "statusLine": SettingKey(OBJECT),
    "webFetchAllowPrivate": SettingKey(SWITCH, PERSON),
}
PERMISSIONS: dict[str, SettingKey] = {
    "allow": SettingKey(LIST),
    "deny": SettingKey(LIST, ANYONE),
    "ask": SettingKey(LIST, ANYONE),
    "additionalDirectories": SettingKey(LIST),
    "defaultMode": SettingKey(MODE, ANYONE),
    "disableBypassPermissionsMode": SettingKey(DISABLE, ANYONE),
}
UPDATABLE = frozenset(
    {"alwaysThinkingEnabled", "autoCompactEnabled", "cleanupPeriodDays", "effortLevel", "fallbackModel"}
    | {"fileCheckpointingEnabled", "includeCoAuthoredBy", "language", "model", "outputStyle", "respectGitignore"}
)
"""Keys that a client may write with update_settings: none of them runs a command or grants permissions."""


def scope_of(key: str) -> KeyScope:
    known = KEYS.get(key)
    return TRUSTED if known is None else known.scope


def validate_layer(layer: SettingsLayer) -> tuple[Json, list[SettingsProblem]]:
    """Return the values with the right types, and the problems of the others."""
    problems = find_repeated_keys(layer)
    values = check_kinds(layer, layer.values, KEYS, "", problems)
    if "permissions" in values:
        values["permissions"] = check_permissions(layer, values["permissions"], problems)
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
        loss = "; its rules are not enforced" if key in ("deny", "ask", "permissions") else ""
        text = f"{prefix}{key} must be {known.kind.description}; ignored{loss}"
        problems.append(SettingsProblem(path=layer.path, text=text, line=find_line(layer, f'"{key}"')))
    return valid


def check_permissions(layer: SettingsLayer, permissions: Json, problems: list[SettingsProblem]) -> Json:
    valid = check_kinds(layer, permissions, PERMISSIONS, "permissions.", problems)
    for key in ("allow", "deny", "ask", "additionalDirectories"):
        if any(not isinstance(item, str) for item in valid.get(key, ())):
            text = f"permissions.{key} must be a list of strings; its other items are ignored"
            problems.append(SettingsProblem(path=layer.path, text=text, line=find_line(layer, f'"{key}"')))
            valid[key] = [item for item in valid[key] if isinstance(item, str)]
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
