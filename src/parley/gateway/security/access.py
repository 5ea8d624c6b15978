"""Who may do what: scopes, what each line of a client needs, and what replies hide from those who may only look."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from parley.protocol.base import Json, Struct
from parley.protocol.messages.requests import find_request

AGENT_FIELDS = frozenset(
    {
        "autoCompactWindow",
        "background",
        "criticalSystemReminder_EXPERIMENTAL",
        "description",
        "disallowedTools",
        "effort",
        "initialPrompt",
        "maxTurns",
        "model",
        "omitClaudeMd",
        "prompt",
        "skills",
        "tools",
    }
)
"""The fields of an agent in `initialize` that run nothing without a question."""
USER_SETTINGS = "userSettings"
ASKING_MODES = frozenset({"default", "plan", "dontAsk"})
"""Permission modes in which nothing runs that an approver would have been asked about."""
SERVER_FIELDS = frozenset({"name", "status", "serverInfo", "transport", "scope", "source", "required", "tools"})


class Scope(StrEnum):
    ADMIN = "admin"
    """Everything, for all tenants; manage tokens."""
    CREATE = "create"
    """Create, fork and delete sessions."""
    PROMPT = "prompt"
    """Send prompts and control requests."""
    APPROVE = "approve"
    """Answer questions, and change what needs no question."""
    VIEW = "view"
    """Read sessions and their lines."""


IMPLIED = {Scope.CREATE: {Scope.VIEW}, Scope.PROMPT: {Scope.VIEW}, Scope.APPROVE: {Scope.VIEW}, Scope.ADMIN: set(Scope)}


class Quotas(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a token; None for no limit, or for that of the server."""

    sessions: int | None = None
    """How many sessions it may have."""
    concurrent_turns: int | None = None
    tokens: int | None = None
    """How many tokens of models its sessions may use."""
    usd: float | None = None
    requests_per_minute: int | None = None
    """Lines on a WebSocket count like requests."""
    connections: int | None = None
    """How many requests and connections may be open at a time."""
    bytes: int | None = None
    """How much of what it sends may be waiting for its end, and how much of what is sent to it may be unread."""


class Principal(Struct, frozen=True):
    """Who is at the other end of a connection."""

    name: str
    tenant: str
    scopes: frozenset[Scope]
    roots: tuple[str, ...] = ()
    """Where its sessions may work; empty for everywhere below the root of the server."""
    quotas: Quotas = Quotas()

    @classmethod
    def administrator(cls, name: str) -> Principal:
        return cls(name, "", frozenset(Scope))

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes

    def may_see(self, tenant: str) -> bool:
        return Scope.ADMIN in self.scopes or tenant == self.tenant


def expand(scopes: set[Scope]) -> frozenset[Scope]:
    """The scopes with those that they imply."""
    return frozenset(scopes.union(*(IMPLIED.get(scope, set()) for scope in scopes)))


def scope_of_request(subtype: str, mode: object) -> Scope:
    """What a control request needs. `mode`: the `mode` of set_permission_mode."""
    if subtype == "set_permission_mode" and is_asking(mode):
        return Scope.PROMPT
    known = find_request(subtype)
    return Scope.APPROVE if known is None else Scope(known.scope)


def changes_user_settings(value: object) -> bool:
    """Whether a reply or a request changes the settings of the operator, which all sessions of all tenants have."""
    if isinstance(value, dict):
        return USER_SETTINGS in (value.get("destination"), value.get("source")) or any(
            map(changes_user_settings, value.values())
        )
    return isinstance(value, list) and any(map(changes_user_settings, value))


def is_asking(mode: object) -> bool:
    return isinstance(mode, str) and mode in ASKING_MODES


def runs_without_question(request: Json) -> bool:
    """Whether an `initialize` can run or allow something that an approver is not asked about.

    Hooks decide about calls. MCP servers, and the hooks and servers of an agent, are commands.
    """
    agents = request.get("agents")
    listed = agents.values() if isinstance(agents, dict) else ()
    return any(request.get(field) for field in ("hooks", "plugins", "mcpServers", "managedSettings")) or any(
        any(not is_harmless(field, value) for field, value in agent.items())
        for agent in listed
        if isinstance(agent, dict)
    )


def is_harmless(field: str, value: object) -> bool:
    """Whether a field of an agent runs nothing without a question."""
    if field == "permissionMode":
        return value is None or is_asking(value)
    if field == "mcpServers":  # names of servers that the session has
        return not isinstance(value, list) or all(isinstance(server, str) for server in value)
    return field in AGENT_FIELDS or not value


def hide_settings(answer: Json) -> Json:
    return {"effective": {}, "sources": [], "applied": answer.get("applied", {}), "inert": []}


def hide_servers(answer: Json) -> Json:
    servers = answer.get("mcpServers", ())
    return {"mcpServers": [{key: value for key, value in one.items() if key in SERVER_FIELDS} for one in servers]}


HIDDEN: dict[str, Callable[[Json], Json]] = {"get_settings": hide_settings, "mcp_status": hide_servers}
"""How to leave secrets out of a reply, by the subtype of the request."""


def without_secrets(subtype: str, line: bytes) -> bytes:
    """The line of a reply as a client without the scope 'approve' gets it."""
    hide = HIDDEN.get(subtype)
    if hide is None:
        return line
    message = msgspec.json.decode(line)
    response = message.get("response")
    if isinstance(response, dict) and isinstance(response.get("response"), dict):
        response["response"] = hide(response["response"])
    return msgspec.json.encode(message)
