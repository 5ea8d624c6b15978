"""From layers to what counts: a pure function, and the reason for everything that does not.

Plain values: the strongest layer that has the key. `env` and `mcpServers`: the same, entry by entry.
Permission rules, directories and hooks: those of all layers. The mode: the strongest of
the person's, which the working tree may only tighten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from parley.protocol.base import Json
from parley.settings.base import TREE, Flaw, Inert, Layer, Merged, RuleText, Trust, Value, entry
from parley.settings.env_policy import is_refused
from parley.settings.keys import PERMISSIONS, PERSON, TRUSTED, Reach, line_of, reach_of, vetted

BEHAVIORS: tuple[Literal["allow", "deny", "ask"], ...] = ("deny", "ask", "allow")
TIGHTER = {
    "bypassPermissions": {"auto", "acceptEdits", "default", "dontAsk", "plan"},
    "auto": {"default", "dontAsk", "plan"},
    "acceptEdits": {"default", "dontAsk", "plan"},
    "default": {"dontAsk", "plan"},
    "dontAsk": set[str](),
    "plan": set[str](),
}
"""For a mode, those that allow nothing that it does not allow."""
NOT_THE_TREES = "no project may set this"
ONLY_TIGHTER = "a project may only tighten the mode"


def merge(layers: Sequence[Layer], trust: Trust) -> Merged:
    """What counts of `layers`, the strongest first."""
    work = Merging(trust)
    for layer in layers:
        values, flaws = vetted(layer)
        work.flaws += flaws
        work.take(layer, values)
    return work.done()


class Merging:
    """A merge on its way."""

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self.flaws: list[Flaw] = []
        self._inert: list[Inert] = []
        self._values: dict[str, Value] = {}
        self._environment: dict[str, Value] = {}
        self._rules: list[RuleText] = []
        self._directories: list[Value] = []
        self._hooks: list[Value] = []
        self._servers: dict[str, Value] = {}
        self._modes: list[Value] = []
        self._bypass_disabled: Value | None = None

    def take(self, layer: Layer, values: Json) -> None:
        for key, value in values.items():
            if key == "permissions":
                self._take_permissions(layer, value)
            elif key == "env":
                for name, text in value.items():
                    if self._counts(layer, f"env.{name}", text, env_reach(name)):
                        self._environment.setdefault(name, at(layer, text))
            elif key == "mcpServers":
                for name, server in value.items():
                    if self._counts(layer, f"mcpServers.{name}", server, reach_of(key)):
                        self._servers.setdefault(name, at(layer, server))
            elif self._counts(layer, key, value, reach_of(key)):
                if key == "hooks":
                    self._hooks.append(at(layer, value))
                else:
                    self._values.setdefault(key, at(layer, value))

    def _take_permissions(self, layer: Layer, permissions: Json) -> None:
        for behavior in BEHAVIORS:
            texts = self._admitted(layer, behavior, permissions)
            self._rules += [rule(layer, behavior, text) for text in texts]
        folders = self._admitted(layer, "additionalDirectories", permissions)
        self._directories += [at(layer, folder) for folder in folders]
        if (mode := permissions.get("defaultMode")) is not None:
            self._modes.append(at(layer, "default" if mode == "manual" else mode))
        if "disableBypassPermissionsMode" in permissions and self._bypass_disabled is None:
            self._bypass_disabled = at(layer, permissions["disableBypassPermissionsMode"])

    def _admitted(self, layer: Layer, key: str, permissions: Json) -> list[str]:
        """What counts of a list in `permissions`."""
        reach = PERMISSIONS[key].reach
        return [text for text in permissions.get(key, ()) if self._counts(layer, f"permissions.{key}", text, reach)]

    def _counts(self, layer: Layer, key: str, value: Any, reach: Reach) -> bool:
        written = entry(key, value)
        reason = self._obstacle(layer, written, reach)
        if reason is not None:
            self._inert.append(Inert(key=key, source=layer.source, path=layer.path, reason=reason, entry=written))
        return reason is None

    def _obstacle(self, layer: Layer, written: str, reach: Reach) -> str | None:
        if layer.source not in TREE or reach == "anyone":
            return None
        if reach == PERSON:
            return NOT_THE_TREES
        return None if written in self._trust.consents else self._trust.obstacle(layer.source, written)

    def _mode(self) -> Value | None:
        """The mode, which a project may tighten where the person did not fix it for this very session."""
        chosen = next((mode for mode in self._modes if mode.source not in TREE), None)
        for wish in (mode for mode in self._modes if mode.source in TREE):
            fixed = chosen is not None and chosen.source in ("managed", "flag")
            if not fixed and wish.value in TIGHTER["default" if chosen is None else chosen.value]:
                chosen = wish
            elif chosen is None or wish.value != chosen.value:
                self._inert.append(
                    Inert(
                        key="permissions.defaultMode",
                        source=wish.source,
                        path=wish.path,
                        reason=ONLY_TIGHTER,
                        entry=entry("permissions.defaultMode", wish.value),
                    )
                )
        return chosen

    def done(self) -> Merged:
        return Merged(
            mode=self._mode(),
            values=self._values,
            rules=tuple(self._rules),
            directories=tuple(self._directories),
            environment=self._environment,
            hooks=tuple(self._hooks),
            servers=self._servers,
            bypass_disabled=self._bypass_disabled,
            inert=tuple(self._inert),
            flaws=tuple(self.flaws),
        )


def env_reach(name: str) -> Reach:
    return PERSON if is_refused(name) else TRUSTED


def at(layer: Layer, value: Any) -> Value:
    return Value(value=value, source=layer.source, path=layer.path, root=layer.root)


def rule(layer: Layer, behavior: Literal["allow", "deny", "ask"], text: str) -> RuleText:
    spelled = msgspec.json.encode(text).decode()
    return RuleText(
        behavior=behavior,
        text=text,
        source=layer.source,
        root=layer.root,
        path=layer.path,
        line=line_of(layer, spelled),
    )
