"""The data types of settings: layers, values with their source, rules as text.

    managed > flag > local > project > user        the first layer that sets a key wins

`project` and `local` come from the working tree, so only a part of them takes effect (merge.py).

See also: where the files are (sources.py), what the keys mean (keys.py), how files are written (writer.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from parley.protocol.base import Json, Struct
from parley.protocol.messages.requests import AgentDefinition

Source = Literal["managed", "flag", "local", "project", "user"]
SOURCES: tuple[Source, ...] = ("managed", "flag", "local", "project", "user")
"""Highest precedence first."""
TREE: frozenset[Source] = frozenset({"local", "project"})
"""The layers that come from the working tree."""
WIRE_NAMES: dict[str, str] = {
    "managed": "policySettings",
    "flag": "flagSettings",
    "local": "localSettings",
    "project": "projectSettings",
    "user": "userSettings",
}
MCP_FILE = ".mcp.json"
DEFAULT_STYLE = "default"
NOT_TRUSTED = "the folder is not trusted"
CHANGED = "it is new or has changed since the folder was trusted"
UNENFORCED = "the session does not start, because this restriction cannot be enforced"
NO_EFFECT = "Parley does not support it"
UNKNOWN_KEY = "unknown key"
ONLY_MANAGED = "only managed settings can set this"
ONLY_BY_FLAG = "only --settings can set this"
REPORTED = (NO_EFFECT, UNKNOWN_KEY, ONLY_MANAGED, ONLY_BY_FLAG)
"""Reasons that clients are told, too: the user asked for something that does not happen."""
MAX_SHOWN = 200


class SettingsWriteError(Exception):
    """Settings cannot be written."""


class SettingsLayer(Struct, frozen=True, kw_only=True):
    """The settings of one file or flag."""

    source: Source
    path: str
    """The file, or the flag for inline settings."""
    root: str
    """The folder that a leading `/` in a rule's path refers to."""
    values: Json
    text: bytes = b""
    """The file's content, to find line numbers."""


class SettingsValue(Struct, frozen=True, kw_only=True):
    """A value and the layer it comes from."""

    value: Any
    source: Source
    path: str
    root: str


class RuleText(Struct, frozen=True, kw_only=True):
    """A permission rule as it is written in a file, not yet parsed."""

    behavior: Literal["allow", "deny", "ask"]
    text: str
    source: Source
    root: str
    path: str
    line: int | None = None


class IgnoredEntry(Struct, frozen=True, kw_only=True):
    """An entry of a file that has no effect."""

    key: str
    source: Source
    path: str
    reason: str
    entry: str
    """The text by which a consent names it (`format_entry`)."""


class SettingsProblem(Struct, frozen=True, kw_only=True):
    """A problem in a settings file. Its string is the warning line."""

    path: str
    text: str
    line: int | None = None
    restricts: bool = False
    """Whether something that should be restricted is not. A session does not start with it."""

    def __str__(self) -> str:
        location = printable(self.path) if self.line is None else f"{printable(self.path)}:{self.line}"
        return f"settings: {location}: {self.text}"


class OutputStyle(Struct, frozen=True, kw_only=True):
    """Instructions on how the model writes its answers."""

    name: str = DEFAULT_STYLE
    text: str = ""
    problem: SettingsProblem | None = None


class PromptTemplate(Struct, frozen=True, kw_only=True):
    """A command or a skill: a named prompt."""

    name: str
    kind: Literal["command", "skill"]
    source: str
    """`user`, `project`, `plugin` or `builtin`."""
    text: str
    path: str = ""
    description: str = ""
    hint: str = ""
    """The arguments it takes, for display."""
    tools: tuple[str, ...] = ()
    """Allow rules that apply while it runs."""
    model: str | None = None
    model_invocable: bool = True
    """Whether the model may use it."""
    user_invocable: bool = True
    """Whether the user can call it as a slash command."""
    is_trusted: bool = False
    """Whether it may run commands and set rules and a model. False for files of an untrusted project."""
    runs_commands: bool = True
    """Whether its shell lines run; if not, a placeholder replaces them (`disableSkillShellExecution`)."""


class Plugin(Struct, frozen=True, kw_only=True):
    """A folder with commands, skills, agents, hooks and MCP servers under one name."""

    name: str
    path: str
    version: str = ""
    hooks: SettingsValue | None = None
    servers: Json = {}
    """By name, with the plugin's prefix."""
    agents: dict[str, AgentDefinition] = {}
    """By name, with the plugin's prefix."""
    data: str = ""
    """The folder that its servers may write to, if it has a portable manifest. It is created before they start."""
    is_portable: bool = False
    """Whether it has only the manifest of Agent Plugins, so that its skills must follow that specification."""

    def json(self) -> Json:
        """The plugin's entry in messages to the client."""
        return {"name": self.name, "path": self.path, **({"version": self.version} if self.version else {})}


class Plugins(Struct, frozen=True, kw_only=True):
    """The plugins of a session, and the errors of those that could not be loaded."""

    found: tuple[Plugin, ...] = ()
    errors: tuple[Json, ...] = ()


class ProjectTrust(Struct, frozen=True, kw_only=True):
    """Which entries of the working tree take effect."""

    sources: frozenset[str] = frozenset()
    """The layers of the tree that are trusted."""
    consents: frozenset[str] = frozenset()
    """Single entries that the user agreed to (`format_entry`)."""
    covered: frozenset[str] | None = None
    """Digests of the entries that the user trusted; other entries have no effect. None: all entries are trusted."""
    named: frozenset[str] = frozenset()
    """Layers named on the command line; all their entries take effect."""

    def find_obstacle(self, source: str, entry: str | bytes) -> str | None:
        """Return why an entry of a layer has no effect, or None if it takes effect."""
        if source not in self.sources:
            return NOT_TRUSTED
        if self.covered is None or source in self.named or digest(entry) in self.covered:
            return None
        return CHANGED


def digest(entry: str | bytes) -> str:
    """Return the digest of an entry, as trust records store it."""
    try:
        from _blake2 import blake2b  # hashlib would load OpenSSL, which takes longer than everything else here
    except ImportError:
        from hashlib import blake2b

    data = entry.encode("utf-8", "surrogatepass") if isinstance(entry, str) else entry
    return blake2b(data, digest_size=16).hexdigest()


class MergedSettings(Struct, frozen=True, kw_only=True):
    """The settings in effect, each with its source."""

    values: dict[str, SettingsValue] = {}
    """All keys without a field of their own. Those of `permissions` and `sandbox` are dotted."""
    rules: tuple[RuleText, ...] = ()
    """The rules of all layers, highest precedence first."""
    directories: tuple[SettingsValue, ...] = ()
    environment: dict[str, SettingsValue] = {}
    hooks: tuple[SettingsValue, ...] = ()
    """One `hooks` object for each layer."""
    servers: dict[str, SettingsValue] = {}
    """The entries of `mcpServers`."""
    plugins: dict[str, SettingsValue] = {}
    """The entries of `enabledPlugins`: ids, and whether each is enabled."""
    models: dict[str, SettingsValue] = {}
    """The entries of `models`: how names of models begin, and what the user says of those models."""
    mode: SettingsValue | None = None
    bypass_disabled: SettingsValue | None = None
    ignored: tuple[IgnoredEntry, ...] = ()
    problems: tuple[SettingsProblem, ...] = ()

    def get(self, key: str, default: Any = None) -> Any:
        found = self.values.get(key)
        return default if found is None else found.value

    def is_on(self, key: str) -> bool:
        return self.get(key) is True

    def managed_limits(self) -> Json:
        """The `limits` of an administrator, which no option, variable or agent exceeds."""
        found = self.values.get("limits")
        return found.value if found is not None and found.source == "managed" else {}

    def is_locked(self, surface: str) -> bool:
        """Whether an administrator permits only plugins to define skills, agents, hooks or MCP servers."""
        locked = self.get("strictPluginOnlyCustomization", False)
        return locked is True or (isinstance(locked, list) and surface in locked)

    def find_lock(self, surface: Literal["agents", "mcp", "plugins"]) -> str:
        """The managed key that forbids a client to add agents, MCP servers or plugins, by any way; empty if none."""
        if self.is_on("disableSideloadFlags"):
            return "disableSideloadFlags"
        return "strictPluginOnlyCustomization" if self.is_locked(surface) and surface != "plugins" else ""

    def find_agent_hook_lock(self) -> str:
        """The key that keeps hooks of agents from running; empty if none."""
        found = [key for key in ("disableAllHooks", "allowManagedHooksOnly") if self.is_on(key)]
        return next(iter([*found, *(["strictPluginOnlyCustomization"] if self.is_locked("hooks") else [])]), "")

    def enabled_hooks(self) -> tuple[SettingsValue, ...]:
        """The hooks that run. `disableAllHooks` of a user does not disable those of an administrator."""
        switch = self.values.get("disableAllHooks")
        if switch is None or switch.value is not True:
            return self.hooks
        return () if switch.source == "managed" else tuple(hook for hook in self.hooks if hook.source == "managed")

    def to_json(self) -> Json:
        """Return the settings in the format of one settings file."""
        plain: Json = {}
        for key, value in self.values.items():
            *groups, name = key.split(".") if key.startswith(("permissions.", "sandbox.")) else [key]
            place = plain
            for group in groups:
                place = place.setdefault(group, {})
            place[name] = value.value
        permissions: Json = plain.pop("permissions", {})
        for rule in self.rules:
            permissions.setdefault(rule.behavior, []).append(rule.text)
        if self.directories:
            permissions["additionalDirectories"] = [directory.value for directory in self.directories]
        if self.mode is not None:
            permissions["defaultMode"] = self.mode.value
        if self.bypass_disabled is not None:
            permissions["disableBypassPermissionsMode"] = self.bypass_disabled.value
        parts: Json = {
            "permissions": permissions,
            "env": {name: value.value for name, value in self.environment.items()},
            "hooks": combine_hooks(self.hooks),
            "mcpServers": {name: value.value for name, value in self.servers.items()},
            "enabledPlugins": {id: value.value for id, value in self.plugins.items()},
            "models": {name: value.value for name, value in self.models.items()},
        }
        return plain | {key: part for key, part in parts.items() if part}


class SettingsAccess(Protocol):
    """The settings of a running session."""

    merged: MergedSettings
    find_sandbox_problem: Callable[[MergedSettings], str]
    """Says why there is no sandbox; "" if there is one."""

    def layers(self) -> Sequence[SettingsLayer]:
        """The layers, highest precedence first."""

    def apply(self, settings: Json) -> MergedSettings:
        """Merge keys into the flag layer; null removes a key. Raises SettingsWriteError for an invalid value."""

    def update(self, destination: str, settings: Json) -> MergedSettings:
        """Write keys to a file; null removes a key. Raises SettingsWriteError."""

    def child_environment(self) -> dict[str, str]:
        """The environment of commands."""

    def notices(self) -> list[str]:
        """What the user asks for and does not get, one line for each file and reason."""


def combine_hooks(hooks: Sequence[SettingsValue]) -> Json:
    """Merge the hooks of all layers, by event."""
    events: dict[str, list[Any]] = {}
    for layer in hooks:
        for event, entries in layer.value.items():
            events.setdefault(event, []).extend(entries if isinstance(entries, list) else [entries])
    return events


def format_entry(key: str, value: Any) -> str:
    """Return the text by which consents and trust records name an entry."""
    import msgspec

    return f"{key}={value if isinstance(value, str) else msgspec.json.encode(value, order='sorted').decode()}"


def printable(text: str, most_chars: int = MAX_SHOWN) -> str:
    """Escape control characters and shorten a text, to print it on a terminal."""
    cut = text if len(text) <= most_chars else f"{text[:most_chars]}…"
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in cut)
