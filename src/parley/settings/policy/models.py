"""Which models and providers may be called.

    rules = ModelRules.from_settings(merged)
    rules.find_obstacle(resolve("opus"))      -> "deniedModels" or None

`availableModels` and `deniedModels` take a family (`opus`), a version (`opus-4-5`) or the ID of a model. An entry of
the first list must match for certain; an entry of the second matches wherever it may be meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from parley.models.catalog import ALIASES, ModelRef, resolve, without_long_context
from parley.protocol.base import Struct
from parley.settings.base import MergedSettings

FAMILIES = ("opus", "sonnet", "haiku", "fable", "mythos")
UNSTABLE = ("best", "opusplan", "default", "inherit")
"""Names whose model depends on the release or on settings; they are ignored in both lists."""
STEPS = ("default", "opus", "sonnet", "haiku")
"""The default model, and what replaces it if it is forbidden."""
DATE_OR_SPEED = re.compile(r"(?:[-@]\d{8}|-v\d+(?::\d+)?|-fast|\[1m\])+$")


class ModelRules(Struct, frozen=True, kw_only=True):
    available: tuple[str, ...] | None = None
    """None: all models."""
    exact: bool = False
    limits_default: bool = False
    """Whether the default model must be available, too."""
    denied: tuple[str, ...] = ()
    aliases: dict[str, str] = {}
    """The short names that the environment redefines. They deny, but never allow: users can set them."""

    @classmethod
    def from_settings(cls, merged: MergedSettings, aliases: Mapping[str, str]) -> ModelRules:
        available = merged.get("availableModels")
        exact = merged.get("availableModelsMatch") == "exact"
        return cls(
            available=None if available is None else tuple(stable(available)),
            exact=exact,
            limits_default=bool(available) and (exact or merged.is_on("enforceAvailableModels")),
            denied=tuple(stable(merged.get("deniedModels", ()))),
            aliases=dict(aliases),
        )

    @property
    def is_empty(self) -> bool:
        return self.available is None and not self.denied

    def find_obstacle(self, choice: ModelRef) -> str | None:
        """The key that forbids a model, or None."""
        if choice.planning is not None and (key := self.find_obstacle(choice.planning)) is not None:
            return key
        name = without_long_context(choice.name)
        if any(is_meant(entry, choice) or self.aliases.get(entry) in (name, choice.name) for entry in self.denied):
            return "deniedModels"
        if self.available is None or any(allows(entry, choice, exact=self.exact) for entry in self.available):
            return None
        if not self.limits_default and choice == resolve("default"):
            return None
        return "availableModels"

    def find_default(self, resolve: Callable[[str], ModelRef]) -> str | None:
        """The name of the default model, or of what replaces it; None if no model is left."""
        listed = self.available or () if self.limits_default else ()
        return next((name for name in (*STEPS, *listed) if self.find_obstacle(resolve(name)) is None), None)


def stable(entries: list[str]) -> list[str]:
    return [entry.strip().lower() for entry in entries if entry.strip().lower() not in UNSTABLE]


def is_meant(entry: str, choice: ModelRef) -> bool:
    """Whether an entry of a deny list may mean a model, in any spelling: with a date, a region, another backend."""
    wanted = DATE_OR_SPEED.sub("", ALIASES.get(entry, entry) if entry not in FAMILIES else entry)
    pattern = rf"(?<![a-z0-9]){re.escape(wanted)}(?![a-z0-9])"
    return re.search(pattern, choice.display_name.lower()) is not None


def allows(entry: str, choice: ModelRef, *, exact: bool) -> bool:
    """Whether an entry of an allow list allows a model for certain."""
    shown = choice.display_name.lower()
    if not choice.is_messages_api:
        return shown == entry or extends(shown, entry)
    name = shown.rpartition("anthropic.")[2]
    if entry in FAMILIES:
        return re.fullmatch(rf"claude-(?:\d[\d-]*-)?{entry}(?:[-@\[].*)?", name) is not None
    wanted = entry if entry.startswith("claude-") or not entry.startswith(FAMILIES) else f"claude-{entry}"
    if exact:
        if name.endswith("-latest") or wanted.endswith("-latest"):
            return name == wanted
        return DATE_OR_SPEED.sub("", name) == DATE_OR_SPEED.sub("", wanted)
    return name == wanted or extends(name, wanted)


def extends(name: str, start: str) -> bool:
    return name.startswith(start) and name[len(start) :][:1] in ("-", "@", "[", ":", ".")


# Providers.


class ProviderRules(Struct, frozen=True, kw_only=True):
    """`allowedProviders`. A custom endpoint is one only if managed settings name its address in `env`."""

    allowed: tuple[str, ...] | None = None
    pinned: dict[str, str] = {}
    """The variables that managed settings set."""

    @classmethod
    def from_settings(cls, merged: MergedSettings) -> ProviderRules:
        allowed = merged.get("allowedProviders")
        pinned = {name: value.value for name, value in merged.environment.items() if value.source == "managed"}
        return cls(allowed=None if allowed is None else tuple(allowed), pinned=pinned)

    def find_obstacle(self, adapter: str, variable: str, address: str, standard: str) -> str | None:
        """Why a service cannot be used. `variable` sets its address, `standard` is the provider's own."""
        if self.allowed is None:
            return None
        if address and address.rstrip("/") != standard.rstrip("/"):
            if "customEndpoint" not in self.allowed:
                return f"{variable} selects the provider 'customEndpoint', which allowedProviders does not list"
            if self.pinned.get(variable, "").rstrip("/") != address.rstrip("/"):
                return f"{variable} must be set in `env` of the managed settings that list 'customEndpoint'"
            return None
        return None if adapter in self.allowed else f"allowedProviders does not list {adapter!r}"
