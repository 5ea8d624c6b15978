"""The keys we know: what kind of value each has, and who may set it.

What the working tree says can harm nobody (ANYONE), or counts once the folder is trusted
(TRUSTED), or never counts (PERSON): whatever moves credentials, endpoints or consent.
A key that is not in the table needs trust.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from parley.protocol.base import Json, Struct
from parley.protocol.options import MODES, SYNC_POLICIES
from parley.settings.base import Flaw, Layer
from parley.settings.limits import LIMITS, are_limits

Reach = Literal["anyone", "trusted", "person"]
ANYONE: Reach = "anyone"
TRUSTED: Reach = "trusted"
PERSON: Reach = "person"


class Kind(Struct, frozen=True):
    words: str
    fits: Callable[[Any], bool]


def is_memory(value: Any) -> bool:
    from parley.settings.memory_options import fits

    return fits(value)


def is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


TEXT = Kind("a string", lambda value: isinstance(value, str))
SWITCH = Kind("true or false", lambda value: isinstance(value, bool))
WHOLE = Kind("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool))
COUNT = Kind("a whole number from 0 on", lambda value: WHOLE.fits(value) and value >= 0)
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
LIST = Kind("a list", lambda value: isinstance(value, list))
TEXTS = Kind("a list of strings", is_texts)
MODE = Kind(f"one of {', '.join(MODES)}", lambda value: value in (*MODES, "manual"))
SYNC = Kind(f"one of {', '.join(SYNC_POLICIES)}", lambda value: value in SYNC_POLICIES)
DISABLE = Kind('"disable"', lambda value: value == "disable")
LIMIT_OBJECT = Kind(f"an object of numbers that may have {', '.join(LIMITS)}", are_limits)
MEMORY_OBJECT = Kind("an object with known keys and fitting values (docs/memory.md)", is_memory)
ANY = Kind("anything", lambda value: True)


class Key(Struct, frozen=True):
    kind: Kind
    reach: Reach = TRUSTED


KEYS: dict[str, Key] = {
    "$schema": Key(ANY, ANYONE),
    "agent": Key(TEXT),
    "alwaysThinkingEnabled": Key(SWITCH),
    "apiKeyHelper": Key(TEXT, PERSON),
    "autoCompactEnabled": Key(SWITCH),
    "autoCompactWindow": Key(COUNT),
    "availableModels": Key(TEXTS),
    "awsAuthRefresh": Key(TEXT, PERSON),
    "awsCredentialExport": Key(TEXT, PERSON),
    "bashOutputMaxChars": Key(COUNT),
    "claudeMdExcludes": Key(TEXTS, ANYONE),
    "cleanupPeriodDays": Key(WHOLE),
    "disableAllHooks": Key(SWITCH, PERSON),
    "disabledMcpjsonServers": Key(TEXTS, ANYONE),
    "effortLevel": Key(TEXT),
    "enableAllProjectMcpServers": Key(SWITCH, PERSON),
    "enabledMcpjsonServers": Key(TEXTS, PERSON),
    "env": Key(OBJECT),
    "fallbackModel": Key(TEXT),
    "fileCheckpointingEnabled": Key(SWITCH),
    "fsync": Key(SYNC),
    "gcpAuthRefresh": Key(TEXT, PERSON),
    "hooks": Key(OBJECT),
    "includeCoAuthoredBy": Key(SWITCH, ANYONE),
    "language": Key(TEXT, ANYONE),
    "limits": Key(LIMIT_OBJECT),
    "mcpServers": Key(OBJECT),
    "memory": Key(MEMORY_OBJECT),
    "model": Key(TEXT),
    "otelHeadersHelper": Key(TEXT, PERSON),
    "outputStyle": Key(TEXT, ANYONE),
    "permissions": Key(OBJECT),
    "plansDirectory": Key(TEXT),
    "proxyAuthHelper": Key(TEXT, PERSON),
    "respectGitignore": Key(SWITCH),
    "sandbox": Key(OBJECT),
    "statusLine": Key(OBJECT),
    "webFetchAllowPrivate": Key(SWITCH, PERSON),
}
PERMISSIONS: dict[str, Key] = {
    "allow": Key(LIST),
    "deny": Key(LIST, ANYONE),
    "ask": Key(LIST, ANYONE),
    "additionalDirectories": Key(LIST),
    "defaultMode": Key(MODE, ANYONE),
    "disableBypassPermissionsMode": Key(DISABLE, ANYONE),
}
UPDATABLE = frozenset(
    {"alwaysThinkingEnabled", "autoCompactEnabled", "cleanupPeriodDays", "effortLevel", "fallbackModel"}
    | {"fileCheckpointingEnabled", "includeCoAuthoredBy", "language", "model", "outputStyle", "respectGitignore"}
)
"""What a host may write with update_settings: nothing that runs, grants or leads elsewhere."""


def reach_of(key: str) -> Reach:
    known = KEYS.get(key)
    return TRUSTED if known is None else known.reach


def vetted(layer: Layer) -> tuple[Json, list[Flaw]]:
    """The values whose kinds are right, and what is wrong with the others."""
    flaws = repeated_keys(layer)
    values = right_kinds(layer, layer.values, KEYS, "", flaws)
    if "permissions" in values:
        values["permissions"] = right_permissions(layer, values["permissions"], flaws)
    if "env" in values:
        values["env"] = right_environment(layer, values["env"], flaws)
    return values, flaws


def right_kinds(layer: Layer, values: Json, keys: dict[str, Key], before: str, flaws: list[Flaw]) -> Json:
    right: Json = {}
    for key, value in values.items():
        known = keys.get(key)
        if known is None or known.kind.fits(value):
            right[key] = value
            continue
        loss = "; its rules do not hold" if key in ("deny", "ask", "permissions") else ""
        text = f"{before}{key} must be {known.kind.words} and is ignored{loss}"
        flaws.append(Flaw(path=layer.path, text=text, line=line_of(layer, f'"{key}"')))
    return right


def right_permissions(layer: Layer, permissions: Json, flaws: list[Flaw]) -> Json:
    right = right_kinds(layer, permissions, PERMISSIONS, "permissions.", flaws)
    for key in ("allow", "deny", "ask", "additionalDirectories"):
        if any(not isinstance(item, str) for item in right.get(key, ())):
            text = f"permissions.{key} must be a list of strings; what is no string in it is ignored"
            flaws.append(Flaw(path=layer.path, text=text, line=line_of(layer, f'"{key}"')))
            right[key] = [item for item in right[key] if isinstance(item, str)]
    return right


def right_environment(layer: Layer, variables: Json, flaws: list[Flaw]) -> Json:
    right: Json = {}
    for name, value in variables.items():
        if name and not set(name) & {"=", "\0"} and isinstance(value, str) and "\0" not in value:
            right[name] = value
        else:
            text = f"env {name!a} must be a name and a string, and is ignored"
            flaws.append(Flaw(path=layer.path, text=text, line=line_of(layer, f'"{name}"')))
    return right


def repeated_keys(layer: Layer) -> list[Flaw]:
    """Keys that an object has twice: the first is lost, and it may be the one with the deny rules or the hooks."""
    names = re.findall(rb'"([^"\\]*)"\s*:', layer.text)
    if len(set(names)) == len(names) and b"\\" not in layer.text:
        return []
    import json  # slow to load, and seldom needed

    flaws: list[Flaw] = []

    def noted(pairs: list[tuple[str, Any]]) -> Json:
        names = [name for name, _ in pairs]
        for name in sorted({name for name in names if names.count(name) > 1}):
            text = f"{name!a} is there twice, and only the last one counts"
            flaws.append(Flaw(path=layer.path, text=text, line=line_of(layer, f'"{name}"')))
        return dict(pairs)

    json.loads(layer.text.removeprefix(b"\xef\xbb\xbf"), object_pairs_hook=noted)
    return flaws


def line_of(layer: Layer, words: str) -> int | None:
    """The line in which something stands first; None if that cannot be told."""
    at = layer.text.find(words.encode("utf-8", "replace"))
    return None if at < 0 else layer.text.count(b"\n", 0, at) + 1
