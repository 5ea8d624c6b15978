"""What settings are once they are read: layers of files, values that know their file, rules as plain data.

    managed > flag > local > project > user        the first layer that says something counts

`project` and `local` come with the working tree; what of them counts is merge.py's business.
Not here: where the files are (sources.py), what the keys mean (keys.py), who may write (writer.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from parley.protocol.base import Json, Struct
from parley.protocol.messages.requests import AgentDefinition

Source = Literal["managed", "flag", "local", "project", "user"]
SOURCES: tuple[Source, ...] = ("managed", "flag", "local", "project", "user")
"""The strongest first."""
TREE: frozenset[Source] = frozenset({"local", "project"})
"""What the working tree brings."""
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
CHANGED = "it is new or was changed since the folder was trusted"
MOST_SHOWN = 200


class NotWritten(Exception):
    """Settings could not be written, and why."""


class Layer(Struct, frozen=True, kw_only=True):
    """One file, or what a flag says."""

    source: Source
    path: str
    """The file; for settings given inline the flag."""
    root: str
    """The folder that a leading `/` in a path of a rule stands for."""
    values: Json
    text: bytes = b""
    """As it was read, to say in which line something stands."""


class Value(Struct, frozen=True, kw_only=True):
    value: Any
    source: Source
    path: str
    root: str


class RuleText(Struct, frozen=True, kw_only=True):
    """A permission rule as somebody wrote it, not yet understood."""

    behavior: Literal["allow", "deny", "ask"]
    text: str
    source: Source
    root: str
    path: str
    line: int | None = None


class Inert(Struct, frozen=True, kw_only=True):
    """Something that is written but does not count."""

    key: str
    source: Source
    path: str
    reason: str
    entry: str
    """What one consents to who lets it count."""


class Flaw(Struct, frozen=True, kw_only=True):
    """Something wrong in a file."""

    path: str
    text: str
    line: int | None = None

    def __str__(self) -> str:
        place = shown(self.path) if self.line is None else f"{shown(self.path)}:{self.line}"
        return f"settings: {place}: {self.text}"


class Style(Struct, frozen=True, kw_only=True):
    """How a model is to answer."""

    name: str = DEFAULT_STYLE
    text: str = ""
    flaw: Flaw | None = None


class Recipe(Struct, frozen=True, kw_only=True):
    """A command or a skill: a text with a name, which somebody wrote for a model."""

    name: str
    kind: Literal["command", "skill"]
    source: str
    """`user`, `project`, `plugin`, or `builtin` for our own."""
    text: str
    path: str = ""
    description: str = ""
    hint: str = ""
    """What arguments it takes, for people."""
    tools: tuple[str, ...] = ()
    """Rules that hold while it is followed."""
    model: str | None = None
    for_model: bool = True
    """Whether a model may use it by itself."""
    for_person: bool = True
    """Whether it is a command for people."""
    may_act: bool = False
    """Whether it may run commands, and bring rules and a model: not if it comes from a tree nobody trusts."""


class Plugin(Struct, frozen=True, kw_only=True):
    """A folder that brings commands, skills, agents, hooks and servers under one name."""

    name: str
    path: str
    version: str = ""
    hooks: Value | None = None
    servers: Json = {}
    """By the names they go by here."""
    agents: dict[str, AgentDefinition] = {}
    """By the names they go by here, too."""

    def json(self) -> Json:
        """As hosts are told of it."""
        return {"name": self.name, "path": self.path, **({"version": self.version} if self.version else {})}


class Plugins(Struct, frozen=True, kw_only=True):
    """Those of a session, and what is wrong with the others."""

    found: tuple[Plugin, ...] = ()
    errors: tuple[Json, ...] = ()


class Trust(Struct, frozen=True, kw_only=True):
    """What of the working tree may act."""

    sources: frozenset[str] = frozenset()
    """The layers of the tree that are trusted."""
    consents: frozenset[str] = frozenset()
    """Single entries that the person agreed to; see `entry`."""
    covered: frozenset[str] | None = None
    """The digests of what the tree said when the person trusted it, and of it nothing else counts; None: all counts."""
    named: frozenset[str] = frozenset()
    """The layers that the command line names: all that they say counts."""

    def obstacle(self, source: str, said: str | bytes) -> str | None:
        """Why something that a layer of the tree says does not count; None if it does."""
        if source not in self.sources:
            return NOT_TRUSTED
        if self.covered is None or source in self.named or digest(said) in self.covered:
            return None
        return CHANGED


def digest(said: str | bytes) -> str:
    """What a record of trust keeps of something that it covers."""
    try:
        from _blake2 import blake2b  # hashlib has the same, and loads OpenSSL, which takes longer than the rest
    except ImportError:
        from hashlib import blake2b

    data = said.encode("utf-8", "surrogatepass") if isinstance(said, str) else said
    return blake2b(data, digest_size=16).hexdigest()


class Merged(Struct, frozen=True, kw_only=True):
    """What counts, each with the place it comes from."""

    values: dict[str, Value] = {}
    """All keys but `permissions`, `env`, `hooks` and `mcpServers`."""
    rules: tuple[RuleText, ...] = ()
    """Of all layers, the strongest first."""
    directories: tuple[Value, ...] = ()
    environment: dict[str, Value] = {}
    hooks: tuple[Value, ...] = ()
    """One `hooks` object a layer."""
    servers: dict[str, Value] = {}
    """The entries of `mcpServers`."""
    mode: Value | None = None
    bypass_disabled: Value | None = None
    inert: tuple[Inert, ...] = ()
    flaws: tuple[Flaw, ...] = ()

    def get(self, key: str, default: Any = None) -> Any:
        found = self.values.get(key)
        return default if found is None else found.value

    def plain(self) -> Json:
        """As one settings file would say it."""
        permissions: Json = {}
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
            "hooks": together(self.hooks),
            "mcpServers": {name: value.value for name, value in self.servers.items()},
        }
        plain = {key: value.value for key, value in self.values.items()}
        return plain | {key: part for key, part in parts.items() if part}


class Held(Protocol):
    """The settings of a live session."""

    merged: Merged

    def layers(self) -> Sequence[Layer]:
        """The strongest first."""

    def apply(self, settings: Json) -> Merged:
        """Merge into the flag layer, key by key; null takes a key out. Raises NotWritten if a value is wrong."""

    def update(self, destination: str, settings: Json) -> Merged:
        """Write keys to a file; null takes a key out. Raises NotWritten."""

    def child_environment(self) -> dict[str, str]:
        """What commands see."""


def together(hooks: Sequence[Value]) -> Json:
    """The hooks of all layers under their events."""
    events: dict[str, list[Any]] = {}
    for layer in hooks:
        for event, entries in layer.value.items():
            events.setdefault(event, []).extend(entries if isinstance(entries, list) else [entries])
    return events


def entry(key: str, value: Any) -> str:
    """How a consent names one setting."""
    import msgspec

    return f"{key}={value if isinstance(value, str) else msgspec.json.encode(value, order='sorted').decode()}"


def shown(text: str, most_chars: int = MOST_SHOWN) -> str:
    """For a terminal: no control characters, not endless."""
    cut = text if len(text) <= most_chars else f"{text[:most_chars]}…"
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in cut)
