"""Requests from an MCP server: `elicitation/create` for the user, and `roots/list`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import msgspec

from parley.engine.hooks.registry import HookRegistry
from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Outbox
from parley.errors import SessionError
from parley.host import HostError, HostGone
from parley.jsonrpc import INVALID_PARAMS, RpcError
from parley.mcp.content import clean, clean_value
from parley.mcp.server_connection import McpServer, method_not_found
from parley.protocol.base import UNSET, Json, UnsetType, convert
from parley.protocol.messages.occasional import ElicitationComplete
from parley.protocol.messages.requests import Elicitation, ElicitationAnswer

ACTIONS = ("accept", "decline", "cancel")
DISPLAY_KEY = "anthropic/permissionDisplay"
DISPLAY_FIELDS = {"title": "title", "display_name": "displayName", "description": "description"}
"""How a server can title its question: our field, and its key in `_meta`."""
MAX_DISPLAY_CHARS = 500


class ServerRequests:
    """Answers the requests and notifications of one server."""

    capabilities: Json = {"elicitation": {"form": {}, "url": {}}, "roots": {}}

    def __init__(
        self,
        cwd: str,
        outbox: Outbox,
        journal: Journal,
        waiting: Callable[[], AbstractContextManager[None]],
        hooks: HookRegistry,
        on_change: Callable[[McpServer], None],
    ) -> None:
        self._cwd = cwd
        self._outbox = outbox
        self._journal = journal
        self._waiting = waiting
        """A context in which the session reports `requires_action`."""
        self._hooks = hooks
        self.on_change = on_change

    async def on_request(self, server: McpServer, method: str, params: Json) -> Json:
        """Raises RpcError."""
        if method == "elicitation/create":
            return await self._elicit(server, params)
        if method == "roots/list":
            return {"roots": [{"uri": f"file://{self._cwd}", "name": "working directory"}]}
        raise method_not_found(method)

    def on_notification(self, server: McpServer, method: str, params: Json) -> None:
        if method == "notifications/elicitation/complete" and isinstance(params.get("elicitationId"), str):
            self._outbox.send(
                ElicitationComplete(mcp_server_name=server.spec.name, elicitation_id=params["elicitationId"])
            )

    async def _elicit(self, server: McpServer, params: Json) -> Json:
        """The user's answer. A missing or invalid answer counts as `cancel`."""
        url = text_or_unset(params.get("url"))
        if isinstance(url, str) and not url.startswith(("http://", "https://")):
            raise RpcError(INVALID_PARAMS, "only http and https URLs are shown to users")
        if isinstance(url, str) and clean(url) != url:
            raise RpcError(INVALID_PARAMS, "a URL with invisible characters is not shown to users")
        schema = params.get("requestedSchema")
        schema = clean_value(schema) if isinstance(schema, dict) else UNSET
        question = Elicitation(
            mcp_server_name=server.spec.name,
            message=clean(str(params.get("message", ""))),
            mode=text_or_unset(params.get("mode")),
            url=url,
            elicitation_id=text_or_unset(params.get("elicitationId")),
            requested_schema=schema,
            property_order=list_properties(schema),
            **read_display(params.get("_meta")),
        )
        # A hook may answer instead of the user, and replace what the user answers.
        answer = await self._hooks.events.answer_elicitation(question)
        if answer is None:
            answer = await self._ask_client(question)
        return await self._hooks.events.check_elicitation(question, answer)

    async def _ask_client(self, question: Elicitation) -> Json:
        try:
            answer: ElicitationAnswer = convert(await self._request_recorded(question), ElicitationAnswer)
        except (HostGone, HostError, SessionError, msgspec.ValidationError):
            return {"action": "cancel"}
        if answer.action not in ACTIONS:
            return {"action": "cancel"}
        if answer.action != "accept" or not isinstance(answer.content, dict):
            return {"action": answer.action}
        return {"action": answer.action, "content": {**read_defaults(question.requested_schema), **answer.content}}

    async def _request_recorded(self, question: Elicitation) -> Any:
        """Send the question and record it while it is open. Raises HostGone, HostError, SessionError."""
        request_id, append = self._outbox.clock.new_uuid(), self._journal.append_event
        append(
            "elicitation", {"request_id": request_id, "server": question.mcp_server_name, "message": question.message}
        )
        try:
            with self._waiting():
                return await self._outbox.host.request(question, request_id)
        finally:
            # Also after a cancellation: only the end of the process leaves the record open.
            with suppress(SessionError):
                append("elicited", {"request_id": request_id})


def read_display(meta: Any) -> Json:
    """How the server wants the question to be shown."""
    display = meta.get(DISPLAY_KEY) if isinstance(meta, dict) else None
    if not isinstance(display, dict):
        return {}
    return {
        field: clean(display[key])[:MAX_DISPLAY_CHARS]
        for field, key in DISPLAY_FIELDS.items()
        if isinstance(display.get(key), str)
    }


def list_properties(schema: Json | UnsetType) -> list[str] | UnsetType:
    """The fields of a form in the server's order, for clients that lose the order of keys."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return list(properties) if isinstance(properties, dict) else UNSET


def read_defaults(schema: Json | UnsetType) -> Json:
    """The values of the fields of a form that are not filled in."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    fields = properties if isinstance(properties, dict) else {}
    return {name: field["default"] for name, field in fields.items() if isinstance(field, dict) and "default" in field}


def text_or_unset(value: Any) -> str | UnsetType:
    return value if isinstance(value, str) else UNSET
