"""Server configuration as people write it, read: pure, and nothing is lost silently.

    {"mcpServers": {"git": {"command": "git-mcp", "env": {"TOKEN": "${GIT_TOKEN}"}}}}

A bad entry becomes a server that has failed, with the reason; the others are used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from parley.mcp.base import Found, Kind, Spec
from parley.mcp.content import clean
from parley.protocol.base import Json, Struct

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
KINDS: dict[str, Kind] = {"stdio": "stdio", "sse": "sse", "http": "http", "streamable-http": "http", "sdk": "sdk"}
LONGEST_NAME = 200


class BadEntry(Exception):
    """An entry that cannot be used, and why."""


class ToolEntry(Struct, frozen=True, kw_only=True):
    name: str
    timeout: float | None = None
    permission_policy: Any = None
    org_max_permission: Any = None


class Entry(Struct, frozen=True, kw_only=True):
    """One server as it is written. Unknown fields are ignored: the format grows."""

    type: str | None = None
    command: str | None = None
    args: list[str] = []
    env: dict[str, str] | None = None
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] | None = None
    oauth: Json | None = None
    name: str | None = None
    required: bool = False
    timeout: float | None = None
    """Milliseconds."""
    tools: list[ToolEntry] = []


def read(servers: Any, *, source: str, place: str, variables: Mapping[str, str]) -> Found:
    """The servers of an object `name -> entry`; `place` is where it stands, for complaints."""
    if not isinstance(servers, dict):
        return Found(flaws=(f"{place}: mcpServers must be an object of servers",))
    specs = [one(str(name), entry, source, variables) for name, entry in servers.items()]
    flaws = [f"{place}: the MCP server {spec.name!a} cannot be used: {spec.flaw}" for spec in specs if spec.flaw]
    return Found(specs=tuple(specs), flaws=tuple(flaws))


def one(name: str, written: Any, source: str, variables: Mapping[str, str]) -> Spec:
    try:
        return right(name, written, source, variables)
    except BadEntry as exc:
        text = str(exc)
    except msgspec.ValidationError as exc:
        text = str(exc)
    required = isinstance(written, dict) and written.get("required") is True
    return Spec(name=name[:LONGEST_NAME], kind="stdio", source=source, required=required, flaw=text)


def right(name: str, written: Any, source: str, variables: Mapping[str, str]) -> Spec:
    """Raises BadEntry and ValidationError."""
    if not name.strip() or len(name) > LONGEST_NAME:
        raise BadEntry(f"a server needs a name of 1 to {LONGEST_NAME} characters")
    if clean(name) != name:
        raise BadEntry(f"its name has characters in it that are not seen: {name!a}")
    entry = msgspec.convert(written, Entry)
    kind = kind_of(entry)
    fill = Filler(variables)
    if any(one is not None and one < 0 for one in (entry.timeout, *(tool.timeout for tool in entry.tools))):
        raise BadEntry("timeout must not be negative")
    return Spec(
        name=name,
        kind=kind,
        source="sdk" if kind == "sdk" else source,
        command=fill.text(entry.command or ""),
        args=tuple(fill.text(word) for word in entry.args),
        env=fill.values(entry.env),
        cwd=fill.text(entry.cwd) if entry.cwd else None,
        url=fill.text(entry.url or ""),
        headers=checked_headers(fill.values(entry.headers)),
        oauth=None if entry.oauth is None else fill.anything(entry.oauth),
        required=entry.required,
        timeout_seconds=None if entry.timeout is None else entry.timeout / 1000,
        tool_timeouts={tool.name: tool.timeout / 1000 for tool in entry.tools if tool.timeout is not None},
        shown=shown(entry, kind),
    )


def kind_of(entry: Entry) -> Kind:
    named = entry.type or ("http" if entry.url and not entry.command else "stdio")
    if named not in KINDS:
        raise BadEntry(f"its type {named!a} is none of {', '.join(KINDS)}")
    kind = KINDS[named]
    if kind == "stdio" and not entry.command:
        raise BadEntry("a stdio server needs a command")
    if kind in ("sse", "http") and not (entry.url or "").startswith(("http://", "https://", "${")):
        raise BadEntry("its url must begin with http:// or https://")
    return kind


def shown(entry: Entry, kind: Kind) -> Json:
    """Without the values of variables and headers: they may be secrets."""
    if kind == "stdio":
        return {"type": "stdio", "command": entry.command, "args": entry.args}
    return {} if kind == "sdk" else {"type": kind, "url": entry.url}


def checked_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or set(value) & {"\r", "\n", "\0"}:
            raise BadEntry(f"its header {name!a} is no header")
    return headers


class Filler:
    """Fills `${NAME}` and `${NAME:-default}` in."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def text(self, text: str) -> str:
        """Raises BadEntry if a variable has no value."""
        return VARIABLE.sub(self._value, text)

    def values(self, texts: dict[str, str] | None) -> dict[str, str]:
        return {name: self.text(text) for name, text in (texts or {}).items()}

    def anything(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        return {key: self.anything(inner) for key, inner in value.items()} if isinstance(value, dict) else value

    def _value(self, found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        value = self._variables.get(name)
        if default is not None:
            return value or default
        if value is None:
            raise BadEntry(f"the variable {name} is not set, and ${{{name}:-default}} names no default")
        return value


def hosted(names: Iterable[str], configs: Json | None) -> tuple[Spec, ...]:
    """Servers that the host runs itself, as `initialize` names them."""
    found = read({name: {"type": "sdk", **own(configs, name)} for name in names}, source="sdk", place="", variables={})
    return found.specs


def own(configs: Json | None, name: str) -> Json:
    """What the host says of one of its servers, as far as we use it."""
    config = (configs or {}).get(name)
    return (
        {key: config[key] for key in ("timeout", "tools", "required") if key in config}
        if isinstance(config, dict)
        else {}
    )


def together(sources: Iterable[Iterable[Spec]]) -> dict[str, Spec]:
    """Of servers with one name the first counts: sources come the strongest first."""
    merged: dict[str, Spec] = {}
    for specs in sources:
        for spec in specs:
            merged.setdefault(spec.name, spec)
    return merged
