"""Replies of the engine for clients that may not see what the operator has configured.

Settings and MCP servers contain keys: in `env`, in commands, in URLs. An approver could read them with a command, so
only clients without the scope 'approve' get less: the settings that are applied, and the state of each server.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from parley.protocol.base import Json

SERVER_FIELDS = frozenset({"name", "status", "serverInfo", "transport", "scope", "source", "required", "tools"})


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
