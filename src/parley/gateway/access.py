"""Who may do what: scopes, and what each line of a client needs."""

from __future__ import annotations

from enum import StrEnum

from parley.protocol.base import Struct


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

VIEWING = frozenset(
    {
        "get_binary_version",
        "get_context_usage",
        "get_hooks_listing",
        "get_plan",
        "get_session_cost",
        "get_settings",
        "get_status",
        "get_task_output",
        "get_usage",
        "initialize",
        "list_models",
        "list_permission_rules",
        "mcp_status",
    }
)
"""Control requests that change nothing and read nothing but the session. A viewer's `initialize` declares nothing."""
DECIDING = frozenset(
    {
        "apply_flag_settings",
        "mcp_authenticate",
        "mcp_call",
        "mcp_clear_auth",
        "mcp_oauth_callback_url",
        "mcp_set_servers",
        "register_repo_root",
        "set_cwd",
        "set_mcp_permission_mode_override",
        "update_settings",
    }
)
"""Control requests that change what runs without a question."""
ASKING_MODES = frozenset({"default", "plan", "dontAsk"})
"""Permission modes in which nothing runs that an approver would have been asked about."""


class Quotas(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a token; None for no limit."""

    sessions: int | None = None
    """How many sessions it may have."""
    concurrent_turns: int | None = None
    tokens: int | None = None
    """How many tokens of models its sessions may use."""
    usd: float | None = None
    requests_per_minute: int | None = None


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
    if subtype in VIEWING:
        return Scope.VIEW
    if subtype in DECIDING or (subtype == "set_permission_mode" and not is_asking(mode)):
        return Scope.APPROVE
    return Scope.PROMPT


def is_asking(mode: object) -> bool:
    """Whether nothing runs in a permission mode that an approver would have been asked about."""
    return isinstance(mode, str) and mode in ASKING_MODES
