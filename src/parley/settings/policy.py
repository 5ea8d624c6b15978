"""Policies: what settings forbid, apart from permission rules.

At the start: settings that a session must not start with: a policy that would be skipped, a sandbox that is missing.

A managed key that has no effect here stops the start, as an invalid managed file does. Everything is decided from the
layers and the merged settings; nothing is read.

Models and providers.

    rules = ModelRules.from_settings(merged)
    rules.find_obstacle(resolve("opus"))      -> "deniedModels" or None

`availableModels` and `deniedModels` take a family (`opus`), a version (`opus-4-5`) or the ID of a model. An entry of
the first list must match for certain; an entry of the second matches wherever it may be meant.

MCP servers.

    rules = McpServerRules.from_settings(merged)
    rules.find_obstacle(server)      -> "deniedMcpServers" or None

A server is denied if one entry matches its name, its command or its URL. To be allowed, a server with a command must
match an entry with a command if there is one, a server with a URL an entry with a URL; otherwise the name decides.

Marketplaces.

    find_marketplace_policy(merged, {"source": "github", "repo": "acme/tools"})   -> "blockedMarketplaces" or None

A plugin of the command line, or one that was installed from a folder, an archive or a repository, has no marketplace.
Under any such policy, it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from posixpath import normpath
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from parley.errors import SessionError, StartRefused
from parley.mcp.base import ServerSpec
from parley.models.catalog import ALIASES, ModelRef, resolve, without_long_context
from parley.protocol.base import Json, Struct
from parley.protocol.options import CliOptions
from parley.settings.base import (
    NO_EFFECT,
    UNENFORCED,
    UNKNOWN_KEY,
    MergedSettings,
    SettingsLayer,
    SettingsProblem,
    printable,
)
from parley.settings.files.marketplaces import canonical, host_of, is_local, read_known
from parley.settings.merge import validate_layer
from parley.settings.safe_read import UnreadableFile
from parley.version import PROTOCOL_LEVEL
from parley.workspace.url import read_address

INVALID = "managed_settings_invalid"
"""The reason on the wire of a start that managed settings stop."""
SANDBOX_REFUSED = (
    "Sandbox required but unavailable: sandbox is enabled but {problem}. "
    "Set sandbox.failIfUnavailable=false to allow unsandboxed execution."
)
SANDBOX_MISSING = (
    "Sandbox disabled: sandbox is enabled but {problem}. "
    "Commands will run WITHOUT sandboxing. Network and filesystem restrictions will NOT be enforced."
)
SIDELOADING: dict[str, tuple[str, Literal["agents", "plugins"]]] = {
    "plugin_dirs": ("--plugin-dir", "plugins"),
    "plugin_dirs_no_mcp": ("--plugin-dir", "plugins"),
    "agents": ("--agents", "agents"),
}
"""The options that an administrator can refuse, besides `--mcp-config`, and what they add."""


def check_start(
    layers: Sequence[SettingsLayer], merged: MergedSettings, find_sandbox_problem: Callable[[MergedSettings], str]
) -> None:
    """Raises SessionError; StartRefused if managed settings are the reason.

    `find_sandbox_problem`: says why there is no sandbox; "" if there is one."""
    for layer in layers:
        if layer.source == "managed":
            check_managed(layer, merged)
    for problem in merged.problems:
        if problem.restricts:
            raise SessionError(f"{problem}; {UNENFORCED}")
    check_sandbox(merged, find_sandbox_problem)
    lowest, highest = merged.get("requiredMinimumVersion"), merged.get("requiredMaximumVersion")
    own = version_key(PROTOCOL_LEVEL)
    if lowest is not None and own < version_key(lowest):
        raise StartRefused(
            f"managed settings require version {lowest} or later (requiredMinimumVersion); "
            f"this engine is compatible with version {PROTOCOL_LEVEL}. Update it.",
            "cli_version_too_old",
        )
    if highest is not None and own > version_key(highest):
        raise StartRefused(
            f"managed settings require version {highest} or earlier (requiredMaximumVersion); "
            f"this engine is compatible with version {PROTOCOL_LEVEL}. Install an approved version.",
            INVALID,
        )


def check_managed(layer: SettingsLayer, merged: MergedSettings) -> None:
    """Raises StartRefused if a value of a managed layer has no effect."""
    _, problems = validate_layer(layer)
    missed = [
        SettingsProblem(path=layer.path, text=f"{printable(entry.key)}: {entry.reason}")
        for entry in merged.ignored
        if entry.source == "managed" and entry.path == layer.path and entry.reason in (NO_EFFECT, UNKNOWN_KEY)
    ]
    if found := [*problems, *missed]:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise StartRefused(
            f"{found[0]}{more}; the session does not start, because a policy cannot be enforced", INVALID
        )


def check_sandbox(merged: MergedSettings, find_problem: Callable[[MergedSettings], str]) -> None:
    """Raises StartRefused if a sandbox is asked for and missing, unless the settings say that it may be missing.

    Only an administrator can say that of a sandbox that an administrator enables.
    """
    enabled, required = merged.values.get("sandbox.enabled"), merged.values.get("sandbox.failIfUnavailable")
    if enabled is None or enabled.value is not True:
        return
    is_required = required is None or required.value is True
    if is_required or (enabled.source == "managed" and required is not None and required.source != "managed"):
        require_sandbox(find_problem(merged))


def require_sandbox(problem: str) -> None:
    """Raises StartRefused if there is a problem."""
    if problem:
        raise StartRefused(SANDBOX_REFUSED.format(problem=problem), "sandbox_required_unavailable")


def version_key(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in version.split(".")]
    return tuple([*numbers, 0, 0, 0][: max(3, len(numbers))])


def check_flags(options: CliOptions, merged: MergedSettings, cwd: str) -> None:
    """Raises StartRefused if a managed key forbids an option, or UsageError."""
    for field, (flag, surface) in SIDELOADING.items():
        if getattr(options, field) and (key := merged.find_lock(surface)):
            raise StartRefused(f"option '{flag}' is disabled by managed settings ({key})", INVALID)
    if not options.mcp_config or not (key := merged.find_lock("mcp")):
        return
    from parley.settings.mcp_files import from_command_line

    servers = [server for one in from_command_line(options.mcp_config, cwd) for server in one.servers.values()]
    # A server that the client runs itself is not started by us.
    if any(not isinstance(server, dict) or server.get("type") != "sdk" for server in servers):
        raise StartRefused(
            f"MCP servers of --mcp-config or initialize are disabled by managed settings ({key})", INVALID
        )


PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class McpServerRules(Struct, frozen=True, kw_only=True):
    allowed: tuple[Json, ...] | None = None
    """None: all servers."""
    denied: tuple[Json, ...] = ()
    provided: frozenset[str] = frozenset()
    """The names of `managedMcpServers`, which need not be allowed."""

    @classmethod
    def from_settings(cls, merged: MergedSettings) -> McpServerRules:
        allowed = merged.get("allowedMcpServers")
        return cls(
            allowed=None if allowed is None else tuple(allowed),
            denied=tuple(merged.get("deniedMcpServers", ())),
            provided=frozenset(merged.get("managedMcpServers", {})),
        )

    @property
    def is_empty(self) -> bool:
        return self.allowed is None and not self.denied

    def find_obstacle(self, server: ServerSpec) -> str | None:
        """The key that forbids a server, or None."""
        if any(is_denied_by(entry, server) for entry in self.denied):
            return "deniedMcpServers"
        if self.allowed is None or (server.source == "managed" and server.name in self.provided):
            return None
        return None if is_allowed_by(self.allowed, server) else "allowedMcpServers"


def is_denied_by(entry: Json, server: ServerSpec) -> bool:
    if "serverName" in entry:
        return str(entry["serverName"]).strip().casefold() == server.name.strip().casefold()
    if "serverCommand" in entry:
        return bool(server.command) and entry["serverCommand"] == [server.command, *server.args]
    return bool(server.url) and may_match_url(entry["serverUrl"], server.url)


def is_allowed_by(entries: tuple[Json, ...], server: ServerSpec) -> bool:
    commands = [entry["serverCommand"] for entry in entries if "serverCommand" in entry]
    urls = [entry["serverUrl"] for entry in entries if "serverUrl" in entry]
    if server.command and commands:
        return [server.command, *server.args] in commands
    if server.url and urls:
        return any(matches_url(pattern, server.url) for pattern in urls)
    return any(entry.get("serverName") == server.name for entry in entries)


# URLs.


def matches_url(pattern: str, url: str) -> bool:
    """Whether a pattern matches a URL for certain: scheme, host and path on their own, so `*` never crosses them."""
    wanted, found = split_url(pattern), split_url(url)
    if wanted is None or found is None:
        return False
    return all(matches_part(part, given) for part, given in zip(wanted, found, strict=True))


def may_match_url(pattern: str, url: str) -> bool:
    """Whether a pattern may be meant for a URL; a URL that cannot be read is."""
    found = split_url(url)
    if found is None or matches_url(pattern, url):
        return True
    spellings = (url, f"{found[0]}://{found[1]}{found[2]}", f"{found[0]}://{found[1].rpartition(':')[0]}{found[2]}")
    return any(matches_part(pattern.lower(), text.lower().rstrip("/")) for text in spellings) or any(
        matches_part(pattern.lower(), text.lower()) for text in spellings
    )


def split_url(url: str) -> tuple[str, str, str] | None:
    """Scheme, host with its port, and path with the query, each in one spelling; None for an invalid URL."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return None
    try:
        parts = urlsplit(f"{scheme.replace('*', 'x').lower() or 'x'}://{rest}")
        host = (parts.hostname or "").rstrip(".")
        host = read_address(host) or host
        name, _, port_text = parts.netloc.rpartition("@")[2].rpartition(":")
        port = "*" if name and port_text == "*" else str(parts.port or PORTS.get(scheme.lower(), 0))
    except ValueError:
        return None
    if not host:
        return None
    path = normpath(unquote(parts.path) or "/") + ("/" if len(parts.path) > 1 and parts.path.endswith("/") else "")
    return scheme.lower(), f"{host}:{port}", path + (f"?{parts.query}" if parts.query else "")


def matches_part(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


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


ALLOWED = ("strictKnownMarketplaces", "allowedMarketplaces")
"""An empty list permits no marketplace."""
BLOCKED = "blockedMarketplaces"


def find_marketplace_policy(merged: MergedSettings, source: Json | None = None) -> str | None:
    """The managed key that forbids plugins of a marketplace; without a source, the key that limits marketplaces."""
    for key in ALLOWED:
        listed = merged.get(key)
        if listed is not None and (source is None or not any(matches(rule, source, True) for rule in listed)):
            return key
    blocked = merged.get(BLOCKED)
    return BLOCKED if blocked and (source is None or any(matches(rule, source, False) for rule in blocked)) else None


def find_refused(merged: MergedSettings, config: Path, enabled: Mapping[str, str]) -> dict[str, Json]:
    """An error for each enabled plugin whose marketplace is not permitted.

    `enabled` says by which settings. One that the administrator enables needs no marketplace.
    """

    try:
        known = read_known(config)
    except UnreadableFile:  # without the list, no marketplace is known to be permitted
        known = {}
    found: dict[str, Json] = {}
    for id, by in enabled.items():
        market = known.get(id.rpartition("@")[2])
        source = market.source if market is not None else None
        if source is None and by == "managed":
            continue
        if key := find_marketplace_policy(merged, source):
            found[id] = build_block(id, key, source)
    return found


def matches(rule: Any, source: Json, allows: bool) -> bool:
    """Whether an entry of a policy means a source. In doubt, one that allows does not, and one that blocks does."""

    if not isinstance(rule, dict):
        return not allows
    for key, text in (("hostPattern", host_of(source)), ("pathPattern", str(source.get("path", "")))):
        if rule.get("source") == key:
            try:
                pattern = re.compile(str(rule.get(key)))
            except re.error:
                return not allows
            return bool(text) and (pattern.fullmatch(text) if allows else pattern.search(text)) is not None
    if canonical(rule) != canonical(source) or is_local(rule) != is_local(source):
        return False
    wanted = rule.get("ref", "")
    return wanted == source.get("ref", "") or (not allows and not wanted)


def describe_obstacle(key: str, source: Json | None = None) -> str:
    if source is not None:
        return f"managed settings do not permit its marketplace ({key})"
    return f"managed settings restrict plugin marketplaces ({key}), and this plugin has none"


def build_block(plugin: str, key: str, source: Json | None = None) -> Json:
    """The error of a plugin that is not loaded because of a managed key."""
    message = describe_obstacle(key, source)
    if key == "enabledPlugins":
        message = f"managed settings enable a plugin of the same name ({key})"
    return {"plugin": plugin, "type": "plugin-blocked", "message": message}
