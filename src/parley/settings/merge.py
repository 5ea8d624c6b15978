"""Merge layers into the settings in effect, with a reason for every entry that has no effect. Pure.

Plain values: as the table of keys says, usually those of the first layer that has the key. `env`, `mcpServers`,
`enabledPlugins` and `models`: the same, entry by entry. Permission rules, directories and hooks: those of all layers.
The mode: that of the first layer outside the working tree; the tree may only tighten it. The values of `permissions`
and `sandbox` are merged one by one, as `permissions.KEY`, `sandbox.KEY` and `sandbox.network.KEY`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from parley.protocol.base import Json
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
from parley.settings.env_policy import is_refused
from parley.settings.keys.kinds import EFFORTS
from parley.settings.keys.table import (
    ANYONE,
    FLAG,
    KEYS,
    MANAGED,
    PERMISSIONS,
    PERSON,
    TRUSTED,
    KeyMerge,
    KeyScope,
    SettingKey,
    nearest,
    scope_of,
)
from parley.settings.keys.validation import find_line, validate_layer

BEHAVIORS: tuple[Literal["allow", "deny", "ask"], ...] = ("deny", "ask", "allow")
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
BOUNDARY = ("permissions.blockReadsOutsideWorkingDirectories", "permissions.blockWritesOutsideWorkingDirectories")
CONFINEMENT = ("sandbox.enabled", "sandbox.allowUnsandboxedCommands")
NO_WAY_OUT = ("sandbox.allowUnsandboxedCommands",)
CLOSED_BY: dict[str, tuple[str, ...]] = {
    "allowedMcpServers": ("allowManagedMcpServersOnly",),
    "permissions.additionalDirectories": BOUNDARY,
    "permissions.blockReadsExemptPaths": BOUNDARY,
    "sandbox.allowNestedUserNamespaces": CONFINEMENT,
    "sandbox.autoAllowBashIfSandboxed": ("allowManagedPermissionRulesOnly",),
    "sandbox.enableWeakerNestedSandbox": NO_WAY_OUT,
    "sandbox.excludedCommands": NO_WAY_OUT,
    "sandbox.filesystem.allowRead": ("sandbox.filesystem.allowManagedReadPathsOnly",),
    "sandbox.filesystem.disabled": CONFINEMENT,
    "sandbox.network.allowAllUnixSockets": NO_WAY_OUT,
    "sandbox.network.allowedDomains": ("sandbox.network.allowManagedDomainsOnly",),
    "sandbox.network.httpProxyPort": CONFINEMENT,
    "sandbox.network.socksProxyPort": CONFINEMENT,
}
"""Keys that loosen a restriction, with the switches that make the restriction: if managed settings turn one of them,
only managed settings set the key."""
CLOSES_WHEN_FALSE = frozenset(NO_WAY_OUT)
LOOSENING = frozenset(
    {"excludedCommands", "ignoreViolations", "enableWeakerNestedSandbox", "autoAllowBashIfSandboxed", "allowWrite"}
    | {"allowRead", "allowedDomains", "allowAllUnixSockets", "allowLocalBinding"}
)
"""Keys of `sandbox` that a project cannot set if no command may leave the sandbox."""
DEMANDING = {"any_true": True, "any_false": False}
"""The value that wins, by the way of merging."""
IN_LISTS = ("allow", "deny", "ask", "additionalDirectories", "defaultMode", "disableBypassPermissionsMode")
"""The keys of `permissions` that have a field of their own in the merged settings."""


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
        self._environment: dict[str, SettingsValue] = {}
        self._rules: list[RuleText] = []
        self._directories: list[SettingsValue] = []
        self._hooks: list[SettingsValue] = []
        self._entries: dict[str, dict[str, SettingsValue]] = {"mcpServers": {}, "enabledPlugins": {}, "models": {}}
        """Objects that are merged entry by entry."""
        self._modes: list[SettingsValue] = []
        self._bypass_disabled: SettingsValue | None = None

    def add(self, layer: SettingsLayer, values: Json) -> None:
        for key, value in values.items():
            if key == "permissions":
                self._add_permissions(layer, value)
            elif key == "env":
                for name, text in value.items():
                    if self._takes_effect(layer, f"env.{name}", text, env_scope(name)):
                        self._environment.setdefault(name, value_at(layer, text))
            elif key in self._entries:
                for name, entry in value.items():
                    if self._takes_effect(layer, f"{key}.{name}", entry, scope_of(key)):
                        self._entries[key].setdefault(name, value_at(layer, entry))
            elif key == "sandbox":
                self._add_sandbox(layer, value)
            elif key == "hooks":
                if self._takes_effect(layer, key, value, scope_of(key)):
                    self._hooks.append(value_at(layer, value))
            elif key in KEYS:
                self._add_value(layer, key, value, KEYS[key])
            elif self._takes_effect(layer, key, value, scope_of(key)):
                self._add_unknown(layer, "", key, nearest(key, KEYS))
                if "." not in key:  # must not be taken for a key of `permissions`
                    self._values.setdefault(key, value_at(layer, value))

    def _add_value(self, layer: SettingsLayer, key: str, value: Any, row: SettingKey) -> None:
        """Add a value, combined with that of a stronger layer if the table says so."""
        if not self._takes_effect(layer, key, value, row.scope) or self._is_closed(layer, key, value):
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

    def _is_closed(self, layer: SettingsLayer, key: str, value: Any) -> bool:
        """Whether only an administrator sets this key, who does not. Managed layers come first."""
        for switch in CLOSED_BY.get(key, ()) if layer.source != "managed" else ():
            turned = self._values.get(switch)
            if turned and turned.source == "managed" and turned.value is (switch not in CLOSES_WHEN_FALSE):
                self._ignore(layer, key, CLOSED.format(switch=switch), format_entry(key, value))
                return True
        return False

    def _add_unknown(self, layer: SettingsLayer, prefix: str, key: str, meant: str | None) -> None:
        hint = f" (did you mean {prefix}{meant}?)" if meant else ""
        self._ignore(layer, f"{prefix}{key}{hint}", UNKNOWN_KEY, format_entry(f"{prefix}{key}", ""))

    def _add_sandbox(self, layer: SettingsLayer, sandbox: Json) -> None:
        from parley.settings.keys.sandbox import GROUPS, SANDBOX

        for key, value in sandbox.items():
            if layer.source in TREE and key in LOOSENING and self._is_sandbox_locked():
                self._ignore(layer, f"sandbox.{key}", NOT_FROM_TREE, format_entry(f"sandbox.{key}", value))
            elif key in GROUPS:
                self._add_group(layer, f"sandbox.{key}.", value, GROUPS[key])
            elif key in SANDBOX:
                row = SANDBOX[key]
                # A project that demands a sandbox is heard without trust.
                demands = value is DEMANDING.get(row.merge)
                row = msgspec.structs.replace(row, scope=ANYONE) if demands else row
                self._add_value(layer, f"sandbox.{key}", value, row)
            else:
                self._add_unknown(layer, "sandbox.", key, nearest(key, SANDBOX))

    def _is_sandbox_locked(self) -> bool:
        """Whether the user or an administrator lets no command out of the sandbox. Their layers come first."""
        outside = self._values.get("sandbox.allowUnsandboxedCommands")
        managed_hosts = self._values.get("sandbox.network.allowManagedDomainsOnly")
        is_closed = outside is not None and outside.value is False and outside.source in ("managed", "flag")
        return is_closed or (managed_hosts is not None and managed_hosts.value is True)

    def _add_group(self, layer: SettingsLayer, prefix: str, values: Json, keys: dict[str, SettingKey]) -> None:
        is_locked = layer.source in TREE and self._is_sandbox_locked()
        for key, value in values.items():
            if is_locked and key in LOOSENING:
                self._ignore(layer, prefix + key, NOT_FROM_TREE, format_entry(prefix + key, value))
            elif key not in keys:
                self._add_unknown(layer, prefix, key, nearest(key, keys))
            elif prefix == "sandbox.filesystem." and isinstance(value, list):
                # Layers have different roots, and their paths end up in one list.
                paths = [path if path.startswith("~") else os.path.join(layer.root, path) for path in value]
                self._add_value(layer, prefix + key, paths, keys[key])
            else:
                self._add_value(layer, prefix + key, value, keys[key])

    def _add_permissions(self, layer: SettingsLayer, permissions: Json) -> None:
        for behavior in BEHAVIORS:
            texts = self._accept(layer, behavior, permissions)
            self._rules += [rule_text(layer, behavior, text) for text in texts]
        folders = [
            folder
            for folder in self._accept(layer, "additionalDirectories", permissions)
            if not self._is_closed(layer, "permissions.additionalDirectories", folder)
        ]
        self._directories += [value_at(layer, folder) for folder in folders]
        if (mode := permissions.get("defaultMode")) is not None:
            self._modes.append(value_at(layer, "default" if mode == "manual" else mode))
        if "disableBypassPermissionsMode" in permissions and self._bypass_disabled is None:
            self._bypass_disabled = value_at(layer, permissions["disableBypassPermissionsMode"])
        for key, value in permissions.items():
            if key not in PERMISSIONS:
                self._add_unknown(layer, "permissions.", key, nearest(key, PERMISSIONS))
            elif key not in IN_LISTS:
                self._add_value(layer, f"permissions.{key}", value, PERMISSIONS[key])

    def _accept(self, layer: SettingsLayer, key: str, permissions: Json) -> list[str]:
        """Return the items of a list in `permissions` that take effect."""
        scope = PERMISSIONS[key].scope
        return [
            text for text in permissions.get(key, ()) if self._takes_effect(layer, f"permissions.{key}", text, scope)
        ]

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
            environment=self._environment,
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


def env_scope(name: str) -> KeyScope:
    return PERSON if is_refused(name) else TRUSTED


def value_at(layer: SettingsLayer, value: Any) -> SettingsValue:
    return SettingsValue(value=value, source=layer.source, path=layer.path, root=layer.root)


def rule_text(layer: SettingsLayer, behavior: Literal["allow", "deny", "ask"], text: str) -> RuleText:
    quoted = msgspec.json.encode(text).decode()
    return RuleText(
        behavior=behavior,
        text=text,
        source=layer.source,
        root=layer.root,
        path=layer.path,
        line=find_line(layer, quoted),
    )
