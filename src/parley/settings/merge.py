"""Check layers and merge them into the settings in effect, with a reason for every entry that has no effect. Pure.

Plain values: as the table of keys says, usually those of the first layer that has the key. `env`, `mcpServers`,
`enabledPlugins` and `models`: the same, entry by entry. Permission rules, directories and hooks: those of all layers.
The mode: that of the first layer outside the working tree; the tree may only tighten it. The values of `permissions`
and `sandbox` are merged one by one, as `permissions.KEY`, `sandbox.KEY` and `sandbox.network.KEY`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from parley.protocol.base import Json
from parley.protocol.options import EFFORTS
from parley.settings.base import (
    NO_EFFECT,
    ONLY_BY_FLAG,
    ONLY_MANAGED,
    TREE,
    UNKNOWN_KEY,
    IgnoredEntry,
    MergedSettings,
    ProjectTrust,
    RuleText,
    SettingsLayer,
    SettingsProblem,
    SettingsValue,
    format_entry,
)
from parley.settings.env_vars import is_refused
from parley.settings.keys import (
    ANYONE,
    CLOSES_WHEN_FALSE,
    ENTRY_OBJECTS,
    FLAG,
    GROUP,
    MANAGED,
    PERSON,
    RULES,
    TRUSTED,
    KeyMerge,
    KeyScope,
    SettingKey,
    find_key,
    nearest,
)


def validate_layer(layer: SettingsLayer) -> tuple[Json, list[SettingsProblem]]:
    """Return the values with the right types, and the problems of the others."""
    problems = find_repeated_keys(layer)
    return check_object(layer, layer.values, "", problems), problems


def check_object(layer: SettingsLayer, values: Json, prefix: str, problems: list[SettingsProblem]) -> Json:
    """Return the valid values of a layer, or of an object in it (`sandbox.`)."""
    valid: Json = {}

    def report(key: str, text: str, *, restricts: bool) -> None:
        line = find_line(layer, f'"{key}"')
        problems.append(SettingsProblem(path=layer.path, text=text, line=line, restricts=restricts))

    for key, value in values.items():
        row = find_key(prefix, key)
        if row is None:
            valid[key] = value
        elif not row.kind.accepts(value):
            ending = "" if row.restricts else "; ignored"
            report(key, f"{prefix}{key} must be {row.kind.description}{ending}", restricts=row.restricts)
        elif row.kind is GROUP:
            valid[key] = check_object(layer, value, f"{prefix}{key}.", problems)
        elif row.kind is RULES and any(not isinstance(item, str) for item in value):
            ending = "" if row.restricts else "; its other items are ignored"
            report(key, f"{prefix}{key} must be a list of strings{ending}", restricts=row.restricts)
            valid[key] = [item for item in value if isinstance(item, str)]
        else:
            valid[key] = value
    if not prefix and "env" in valid:
        valid["env"] = check_environment(layer, valid["env"], problems)
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


Behavior = Literal["allow", "deny", "ask"]
BEHAVIORS: dict[str, Behavior] = {
    "permissions.allow": "allow",
    "permissions.deny": "deny",
    "permissions.ask": "ask",
}
TIGHTER = {
    "bypassPermissions": {"auto", "acceptEdits", "default", "dontAsk", "plan"},
    "auto": {"default", "dontAsk", "plan"},
    "acceptEdits": {"default", "dontAsk", "plan"},
    "default": {"dontAsk", "plan"},
    "dontAsk": set[str](),
    "plan": set[str](),
}
"""For each mode, the modes that allow nothing more."""
NOT_FROM_TREE = "a project cannot set this"
ONLY_TIGHTER = "a project can only choose a stricter mode"
CLOSED = "managed settings leave this to no other layer ({switch})"
DEMANDING = {"any_true": True, "any_false": False}
"""The value that wins, by the way of merging."""


def merge(layers: Sequence[SettingsLayer], trust: ProjectTrust) -> MergedSettings:
    """Merge layers, which are ordered by precedence, highest first."""
    merger = SettingsMerger(trust)
    for layer in layers:
        values, problems = validate_layer(layer)
        merger.problems += problems
        merger.add(layer, values)
    return merger.result()


class SettingsMerger:
    """Collects the entries of layers that take effect."""

    def __init__(self, trust: ProjectTrust) -> None:
        self._trust = trust
        self.problems: list[SettingsProblem] = []
        self._ignored: list[IgnoredEntry] = []
        self._values: dict[str, SettingsValue] = {}
        self._rules: list[RuleText] = []
        self._directories: list[SettingsValue] = []
        self._hooks: list[SettingsValue] = []
        self._entries: dict[str, dict[str, SettingsValue]] = {key: {} for key in ENTRY_OBJECTS}
        self._modes: list[SettingsValue] = []
        self._bypass_disabled: SettingsValue | None = None

    def add(self, layer: SettingsLayer, values: Json, prefix: str = "") -> None:
        """Add the entries of a layer, or of an object in it (`sandbox.`)."""
        for name, value in values.items():
            key, row = f"{prefix}{name}", find_key(prefix, name)
            if row is None:
                self._add_unknown(layer, prefix, name, value)
            elif row.kind is GROUP:
                self.add(layer, value, f"{key}.")
            elif row.loosens and layer.source in TREE and self._is_sandbox_locked():
                self._ignore(layer, key, NOT_FROM_TREE, format_entry(key, value))
            elif key in BEHAVIORS:
                texts = [text for text in value if self._takes_effect(layer, key, text, row.scope)]
                self._rules += [rule_text(layer, BEHAVIORS[key], text) for text in texts]
            elif key == "permissions.additionalDirectories":
                found = [folder for folder in value if self._takes_effect(layer, key, folder, row.scope)]
                self._directories += [
                    value_at(layer, one) for one in found if not self._is_closed(layer, key, one, row)
                ]
            elif key == "permissions.defaultMode":
                self._modes.append(value_at(layer, "default" if value == "manual" else value))
            elif key == "permissions.disableBypassPermissionsMode":
                self._bypass_disabled = self._bypass_disabled or value_at(layer, value)
            elif key in self._entries:
                for entry, given in value.items():
                    scope = (PERSON if is_refused(entry) else TRUSTED) if key == "env" else row.scope
                    if self._takes_effect(layer, f"{key}.{entry}", given, scope):
                        self._entries[key].setdefault(entry, value_at(layer, given))
            elif key == "hooks":
                if self._takes_effect(layer, key, value, row.scope):
                    self._hooks.append(value_at(layer, value))
            elif prefix == "sandbox.filesystem." and isinstance(value, list):
                # Layers have different roots, and their paths end up in one list.
                paths = [path if path.startswith("~") else os.path.join(layer.root, path) for path in value]
                self._add_value(layer, key, paths, row)
            elif prefix == "sandbox." and row.merge in DEMANDING and value is DEMANDING[row.merge]:
                # A project that demands a sandbox is heard without trust.
                self._add_value(layer, key, value, msgspec.structs.replace(row, scope=ANYONE))
            else:
                self._add_value(layer, key, value, row)

    def _add_value(self, layer: SettingsLayer, key: str, value: Any, row: SettingKey) -> None:
        """Add a value, combined with that of a stronger layer if the table says so."""
        if not self._takes_effect(layer, key, value, row.scope) or self._is_closed(layer, key, value, row):
            return
        if row.is_missed(value):
            self._ignore(layer, key, NO_EFFECT, format_entry(key, value))
        stronger, weaker = self._values.get(key), value_at(layer, value)
        if stronger is None or (row.merge == "first" and row.scope == ANYONE and self._is_foreign(stronger, key)):
            self._values[key] = weaker
        else:
            self._values[key] = COMBINERS[row.merge](stronger, weaker)

    def _is_foreign(self, found: SettingsValue, key: str) -> bool:
        """Whether a value is that of a project that is not trusted: it never replaces one of the user."""
        entry = format_entry(key, found.value)
        return found.source in TREE and self._trust.find_obstacle(found.source, entry) is not None

    def _is_closed(self, layer: SettingsLayer, key: str, value: Any, row: SettingKey) -> bool:
        """Whether only an administrator sets this key, who does not. Managed layers come first."""
        for switch in row.closed_by if layer.source != "managed" else ():
            turned = self._values.get(switch)
            if turned and turned.source == "managed" and turned.value is (switch not in CLOSES_WHEN_FALSE):
                self._ignore(layer, key, CLOSED.format(switch=switch), format_entry(key, value))
                return True
        return False

    def _add_unknown(self, layer: SettingsLayer, prefix: str, name: str, value: Any) -> None:
        meant = nearest(prefix, name)
        # A misspelt key is one in a folder that is not trusted, too.
        if not prefix and meant is None and not self._takes_effect(layer, name, value, TRUSTED):
            return
        hint = f" (did you mean {prefix}{meant}?)" if meant else ""
        self._ignore(layer, f"{prefix}{name}{hint}", UNKNOWN_KEY, format_entry(f"{prefix}{name}", ""))
        if not prefix and meant is None and "." not in name:  # must not be taken for a key of `permissions`
            self._values.setdefault(name, value_at(layer, value))

    def _is_sandbox_locked(self) -> bool:
        """Whether the user or an administrator lets no command out of the sandbox. Their layers come first."""
        outside = self._values.get("sandbox.allowUnsandboxedCommands")
        managed_hosts = self._values.get("sandbox.network.allowManagedDomainsOnly")
        is_closed = outside is not None and outside.value is False and outside.source in ("managed", "flag")
        return is_closed or (managed_hosts is not None and managed_hosts.value is True)

    def _takes_effect(self, layer: SettingsLayer, key: str, value: Any, scope: KeyScope) -> bool:
        entry = format_entry(key, value)
        reason = self._obstacle(layer, entry, scope)
        if reason is not None:
            self._ignore(layer, key, reason, entry)
        return reason is None

    def _ignore(self, layer: SettingsLayer, key: str, reason: str, entry: str) -> None:
        self._ignored.append(IgnoredEntry(key=key, source=layer.source, path=layer.path, reason=reason, entry=entry))

    def _obstacle(self, layer: SettingsLayer, entry: str, scope: KeyScope) -> str | None:
        if scope == MANAGED:
            return None if layer.source == "managed" else ONLY_MANAGED
        if scope == FLAG:
            return None if layer.source == "flag" else ONLY_BY_FLAG
        if layer.source not in TREE or scope == ANYONE:
            return None
        if scope == PERSON:
            return NOT_FROM_TREE
        return None if entry in self._trust.consents else self._trust.find_obstacle(layer.source, entry)

    def _mode(self) -> SettingsValue | None:
        """Choose the mode. A project may tighten it, unless it is set by a flag or an administrator."""
        chosen = next((mode for mode in self._modes if mode.source not in TREE), None)
        for mode in (mode for mode in self._modes if mode.source in TREE):
            is_fixed = chosen is not None and chosen.source in ("managed", "flag")
            if not is_fixed and mode.value in TIGHTER["default" if chosen is None else chosen.value]:
                chosen = mode
            elif chosen is None or mode.value != chosen.value:
                self._ignored.append(
                    IgnoredEntry(
                        key="permissions.defaultMode",
                        source=mode.source,
                        path=mode.path,
                        reason=ONLY_TIGHTER,
                        entry=format_entry("permissions.defaultMode", mode.value),
                    )
                )
        return chosen

    def result(self) -> MergedSettings:
        only_managed = self._values.get("allowManagedPermissionRulesOnly")
        if only_managed is not None and only_managed.value is True:
            # Rules of others that restrict still apply.
            self._rules = [rule for rule in self._rules if rule.source == "managed" or rule.behavior != "allow"]
        return MergedSettings(
            mode=self._mode(),
            values=self._values,
            rules=tuple(self._rules),
            directories=tuple(self._directories),
            environment=self._entries["env"],
            hooks=tuple(self._hooks),
            servers=self._entries["mcpServers"],
            plugins=self._entries["enabledPlugins"],
            models=self._entries["models"],
            bypass_disabled=self._bypass_disabled,
            ignored=tuple(self._ignored),
            problems=tuple(self.problems),
        )


def add_items(stronger: SettingsValue, weaker: SettingsValue) -> SettingsValue:
    added = [item for item in weaker.value if item not in stronger.value]
    return msgspec.structs.replace(stronger, value=[*stronger.value, *added])


COMBINERS: dict[KeyMerge, Callable[[SettingsValue, SettingsValue], SettingsValue]] = {
    "first": lambda stronger, weaker: stronger,
    "any_true": lambda stronger, weaker: weaker if weaker.value is True and stronger.value is not True else stronger,
    "any_false": lambda stronger, weaker: weaker if weaker.value is False and stronger.value is not False else stronger,
    "lowest_effort": lambda stronger, weaker: min(stronger, weaker, key=lambda found: EFFORTS.index(found.value)),
    "union": add_items,
}
"""How the values of two layers are combined."""


def value_at(layer: SettingsLayer, value: Any) -> SettingsValue:
    return SettingsValue(value=value, source=layer.source, path=layer.path, root=layer.root)


def rule_text(layer: SettingsLayer, behavior: Behavior, text: str) -> RuleText:
    quoted = msgspec.json.encode(text).decode()
    return RuleText(
        behavior=behavior,
        text=text,
        source=layer.source,
        root=layer.root,
        path=layer.path,
        line=find_line(layer, quoted),
    )
