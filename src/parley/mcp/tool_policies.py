"""Read what a configuration says of the tools of an MCP server: their timeouts and policies. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from parley.protocol.base import Json, Struct

HOST_FIELDS = ("timeout", "tools", "required", "alwaysLoad")
"""What a client may configure for the servers that it runs itself."""
POLICIES = {"always_allow": "allow", "always_ask": "ask", "always_deny": "deny"}
CEILINGS = {"allow": "", "ask": "ask", "blocked": "deny"}
STRICTNESS = ("", "allow", "ask", "deny")
ONLY_REMOTE = "only the client can set it, and only for servers that are reached by URL"


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
