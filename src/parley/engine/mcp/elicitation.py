"""Requests from an MCP server: `elicitation/create` for the user, and `roots/list`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import msgspec

from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Outbox
from parley.errors import SessionError
from parley.host import HostError, HostGone
from parley.mcp.base import ServerError
from parley.mcp.content import clean, clean_value
from parley.mcp.server import McpServer, method_not_found
from parley.protocol.base import UNSET, Json, UnsetType, convert
from parley.protocol.messages.requests import Elicitation, ElicitationAnswer
from parley.protocol.messages.system import ElicitationComplete

ACTIONS = ("accept", "decline", "cancel")
INVALID_PARAMS = -32602


class ServerRequests:
    """Answers the requests and notifications of one server."""

    capabilities: Json = {"elicitation": {"form": {}, "url": {}}, "roots": {}}

    def __init__(
        self,
        cwd: str,
        outbox: Outbox,
        journal: Journal,
        waiting: Callable[[], AbstractContextManager[None]],
        on_change: Callable[[McpServer], None],
    ) -> None:
        self._cwd = cwd
        self._outbox = outbox
        self._journal = journal
        self._waiting = waiting
        """A context in which the session reports `requires_action`."""
        self.on_change = on_change

    async def on_request(self, server: McpServer, method: str, params: Json) -> Json:
        """Raises ServerError."""
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
            raise ServerError(INVALID_PARAMS, "only http and https URLs are shown to users")
        if isinstance(url, str) and clean(url) != url:
            raise ServerError(INVALID_PARAMS, "a URL with invisible characters is not shown to users")
        schema = params.get("requestedSchema")
        question = Elicitation(
            mcp_server_name=server.spec.name,
            message=clean(str(params.get("message", ""))),
            mode=text_or_unset(params.get("mode")),
            url=url,
            elicitation_id=text_or_unset(params.get("elicitationId")),
            requested_schema=clean_value(schema) if isinstance(schema, dict) else UNSET,
        )
        try:
            answer: ElicitationAnswer = convert(await self._request_recorded(question), ElicitationAnswer)
        except (HostGone, HostError, SessionError, msgspec.ValidationError):
            return {"action": "cancel"}
        if answer.action not in ACTIONS:
            return {"action": "cancel"}
        content = answer.content if answer.action == "accept" and isinstance(answer.content, dict) else None
        return {"action": answer.action, **({} if content is None else {"content": content})}

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


def text_or_unset(value: Any) -> str | UnsetType:
    return value if isinstance(value, str) else UNSET
