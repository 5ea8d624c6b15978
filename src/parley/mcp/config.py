"""Parse MCP server configurations. Pure.

    {"mcpServers": {"git": {"command": "git-mcp", "env": {"TOKEN": "${GIT_TOKEN}"}}}}

An invalid entry becomes a failed server with the reason; the other servers are used. An entry may also say what is
true of single tools: timeouts and policies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from parley.hooks.output import find_similar
from parley.mcp.base import Kind, ParsedServers, ServerSpec
from parley.mcp.content import clean
from parley.protocol.base import Json, Struct

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
KINDS: dict[str, Kind] = {"stdio": "stdio", "sse": "sse", "http": "http", "streamable-http": "http", "sdk": "sdk"}
MAX_NAME_CHARS = 200
HOST_FIELDS = ("timeout", "tools", "required", "alwaysLoad")
"""What a client may configure for the servers that it runs itself."""
POLICIES = {"always_allow": "allow", "always_ask": "ask", "always_deny": "deny"}
CEILINGS = {"allow": "", "ask": "ask", "blocked": "deny"}
STRICTNESS = ("", "allow", "ask", "deny")
ONLY_REMOTE = "only the client can set it, and only for servers that are reached by URL"


class InvalidEntry(Exception):
    """An invalid configuration entry. The text says why."""


class ServerEntry(Struct, frozen=True, kw_only=True):
    """One server as configured. Unknown fields are ignored, because the format grows."""

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
    tools: Any = None
    """A list of `ToolEntry`. Lenient, because it carries policies: an invalid one must not make the server vanish."""
    alwaysLoad: bool | None = None
    literal: bool = False
    """Whether `${NAME}` stands for itself, as in the `mcp.json` of a portable plugin."""


def parse_servers(
    servers: Any, *, source: str, path: str, variables: Mapping[str, str], may_allow: bool = False
) -> ParsedServers:
    """Parse an object `name -> entry`. `path` says where it comes from, for error messages.

    `may_allow`: the client of the session wrote it, so its policies may allow calls.
    """
    if not isinstance(servers, dict):
        return ParsedServers(problems=(f"{path}: mcpServers must be an object",))
    specs = [parse_server(str(name), entry, source, variables, may_allow) for name, entry in servers.items()]
    problems = [f"{path}: invalid MCP server {spec.name!a}: {spec.problem}" for spec in specs if spec.problem]
    problems += [f"{path}: MCP server {spec.name!a}: {note}" for spec in specs for note in spec.notes]
    return ParsedServers(specs=tuple(specs), problems=tuple(problems))


def parse_server(
    name: str, data: Any, source: str, variables: Mapping[str, str], may_allow: bool = False
) -> ServerSpec:
    misspelt = tuple(find_misspelt(data)) if isinstance(data, dict) else ()
    try:
        if not name.strip() or len(name) > MAX_NAME_CHARS:
            raise InvalidEntry(f"the name must have 1 to {MAX_NAME_CHARS} characters")
        if clean(name) != name:
            raise InvalidEntry(f"the name contains invisible characters: {name!a}")
        entry = msgspec.convert(data, ServerEntry)
        kind = kind_of(entry)
        variable_expander = VariableExpander(None if entry.literal else variables)
        tools, notes = parse_tools(entry.tools)
        policies = parse_policies(tools, notes, may_allow=may_allow and kind in ("http", "sse"))
        if any(one is not None and one < 0 for one in (entry.timeout, *(tool.timeout for tool in tools))):
            raise InvalidEntry("timeout must not be negative")
        return ServerSpec(
            name=name,
            kind=kind,
            source="sdk" if kind == "sdk" else source,
            command=variable_expander.expand_text(entry.command or ""),
            args=tuple(variable_expander.expand_text(word) for word in entry.args),
            env=variable_expander.expand_values(entry.env),
            cwd=variable_expander.expand_text(entry.cwd) if entry.cwd else None,
            url=variable_expander.expand_text(entry.url or ""),
            headers=check_headers(variable_expander.expand_values(entry.headers)),
            oauth=None if entry.oauth is None else variable_expander.expand(entry.oauth),
            required=entry.required,
            timeout_seconds=None if entry.timeout is None else entry.timeout / 1000,
            tool_timeouts={tool.name: tool.timeout / 1000 for tool in tools if tool.timeout is not None},
            tool_policies=policies,
            notes=(*misspelt, *notes),
            always_load=entry.alwaysLoad,
            shown=displayed_config(entry, kind),
        )
    except InvalidEntry as exc:
        text = str(exc)
    except msgspec.ValidationError as exc:
        text = str(exc)
    required = isinstance(data, dict) and data.get("required") is True
    return ServerSpec(
        name=name[:MAX_NAME_CHARS], kind="stdio", source=source, required=required, problem=text, notes=misspelt
    )


def find_misspelt(entry: Json) -> Iterator[str]:
    """Describe the keys that are like known ones. Others may be known to a newer version."""
    known = frozenset(ServerEntry.__struct_fields__)
    for key in entry.keys() - known:
        if (meant := find_similar(key, known)) is not None:
            yield f"unknown key {key!a:.100} (did you mean {meant}?)"


def kind_of(entry: ServerEntry) -> Kind:
    named = entry.type or ("http" if entry.url and not entry.command else "stdio")
    if named not in KINDS:
        raise InvalidEntry(f"unknown type {named!a} (choose from {', '.join(KINDS)})")
    kind = KINDS[named]
    if kind == "stdio" and not entry.command:
        raise InvalidEntry("a stdio server needs a command")
    if kind in ("sse", "http") and not (entry.url or "").startswith(("http://", "https://", "${")):
        raise InvalidEntry("the url must start with http:// or https://")
    return kind


def displayed_config(entry: ServerEntry, kind: Kind) -> Json:
    """Without environment variables and headers, which may contain secrets."""
    if kind == "stdio":
        return {"type": "stdio", "command": entry.command, "args": entry.args}
    return {} if kind == "sdk" else {"type": kind, "url": entry.url}


def check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or set(value) & {"\r", "\n", "\0"}:
            raise InvalidEntry(f"invalid header {name!a}")
    return headers


class VariableExpander:
    """Expands `${NAME}` and `${NAME:-default}`, unless the variables are None."""

    def __init__(self, variables: Mapping[str, str] | None) -> None:
        self._variables = variables

    def expand_text(self, text: str) -> str:
        """Raises InvalidEntry if a variable is not set and has no default."""
        return text if self._variables is None else VARIABLE.sub(self._value, text)

    def expand_values(self, texts: dict[str, str] | None) -> dict[str, str]:
        return {name: self.expand_text(text) for name, text in (texts or {}).items()}

    def expand(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.expand_text(value)
        return {key: self.expand(inner) for key, inner in value.items()} if isinstance(value, dict) else value

    def _value(self, found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        value = (self._variables or {}).get(name)
        if default is not None:
            return value or default
        if value is None:
            raise InvalidEntry(f"the variable {name} is not set; set it or use ${{{name}:-default}}")
        return value


def build_host_specs(names: Iterable[str], configs: Json | None) -> tuple[ServerSpec, ...]:
    """The servers that the client runs itself, as named in `initialize`."""
    found = parse_servers(
        {name: {"type": "sdk", **find_own_config(configs, name)} for name in names}, source="sdk", path="", variables={}
    )
    return found.specs


class ToolEntry(Struct, frozen=True, kw_only=True):
    name: str
    timeout: float | None = None
    permission_policy: Any = None
    org_max_permission: Any = None


def parse_tools(given: Any) -> tuple[list[ToolEntry], list[str]]:
    """The valid entries of `tools`, and what is wrong with the others. Raises msgspec.ValidationError."""
    if given is None:
        return [], []
    if not isinstance(given, list):
        return [], ["`tools` has no effect: it must be a list"]
    named = [one for one in given if isinstance(one, dict) and isinstance(one.get("name"), str)]
    notes = (
        [f"{len(given) - len(named)} entries of `tools` have no effect: they have no name"] if named != given else []
    )
    return msgspec.convert(named, list[ToolEntry]), notes


def parse_policies(tools: Iterable[ToolEntry], notes: list[str], *, may_allow: bool) -> dict[str, str]:
    """The policy of each tool. The stricter of two applies; one that is not known asks."""
    found: dict[str, str] = {}
    for tool in tools:
        own = "" if tool.permission_policy is None else POLICIES.get(str(tool.permission_policy), "ask")
        ceiling = "" if tool.org_max_permission is None else CEILINGS.get(str(tool.org_max_permission), "ask")
        policy = max(own, ceiling, found.get(tool.name, ""), key=STRICTNESS.index)
        if policy == "allow" and not may_allow:
            notes.append(f"always_allow has no effect for {tool.name!a:.200}: {ONLY_REMOTE}")
        elif policy:
            found[tool.name] = policy
    return found


def parse_host_policies(configs: Json | None, name: str) -> dict[str, str]:
    """The policies for the tools of a server that the client runs. Raises msgspec.ValidationError."""
    tools, notes = parse_tools(find_own_config(configs, name).get("tools"))
    return parse_policies(tools, notes, may_allow=False)


def find_own_config(configs: Json | None, name: str) -> Json:
    """The supported fields of the client's configuration for one of its servers."""
    config = (configs or {}).get(name)
    return {key: config[key] for key in HOST_FIELDS if key in config} if isinstance(config, dict) else {}
