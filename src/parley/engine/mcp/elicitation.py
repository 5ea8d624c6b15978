"""What an MCP server asks of us: a question for the person, and where we work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from parley.errors import SessionError
from parley.host import HostError, HostGone
from parley.mcp.base import ServerError, ServerSources, ServerSpec
from parley.mcp.content import clean, clean_value
from parley.mcp.server import McpServer, method_not_found
from parley.protocol.base import UNSET, Json, UnsetType, convert
from parley.protocol.messages.requests import Elicitation, ElicitationAnswer
from parley.protocol.messages.system import ElicitationComplete

if TYPE_CHECKING:
    from parley.engine.session.session import Session

ACTIONS = ("accept", "decline", "cancel")
INVALID_PARAMS = -32602


class ServerRequests:
    """The session's ears for its servers."""

    capabilities: Json = {"elicitation": {"form": {}, "url": {}}, "roots": {}}

    def __init__(self, session: Session, changed: Callable[[McpServer], None]) -> None:
        self._session = session
        self.changed = changed

    async def asked(self, server: McpServer, method: str, params: Json) -> Json:
        """Raises ServerError."""
        if method == "elicitation/create":
            return await self._elicit(server, params)
        if method == "roots/list":
            return {"roots": [{"uri": f"file://{self._session.config.cwd}", "name": "working directory"}]}
        raise method_not_found(method)

    def noticed(self, server: McpServer, method: str, params: Json) -> None:
        if method == "notifications/elicitation/complete" and isinstance(params.get("elicitationId"), str):
            self._session.send(
                ElicitationComplete(mcp_server_name=server.spec.name, elicitation_id=params["elicitationId"])
            )

    async def _elicit(self, server: McpServer, params: Json) -> Json:
        """The person's answer. Without one that can be read, the question is cancelled."""
        url = text_or_unset(params.get("url"))
        if isinstance(url, str) and not url.startswith(("http://", "https://")):
            raise ServerError(INVALID_PARAMS, "only http and https addresses are shown to people")
        if isinstance(url, str) and clean(url) != url:
            raise ServerError(INVALID_PARAMS, "an address with characters that are not seen is not shown to people")
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
        """Ask, and have it on record for as long as it is open. Raises HostGone, AnswerIsError, SessionError."""
        session, request_id = self._session, self._session.clock.new_uuid()
        note = session.journal.append_event
        note("elicitation", {"request_id": request_id, "server": question.mcp_server_name, "message": question.message})
        try:
            with session.activity.waiting():
                return await session.host.request(question, request_id)
        finally:
            # Also if nobody wants the answer any more. Only the end of the engine leaves it open.
            with suppress(SessionError):
                note("elicited", {"request_id": request_id})


def text_or_unset(value: Any) -> str | UnsetType:
    return value if isinstance(value, str) else UNSET


def make_server(
    session: Session, supply: ServerSources, spec: ServerSpec, on_change: Callable[[McpServer], None]
) -> McpServer:
    """A server that has not begun."""
    handler = ServerRequests(session, on_change)
    capabilities = {} if spec.kind == "sdk" else handler.capabilities
    return McpServer(spec, lambda: supply.open_transport(spec, session.host), handler, supply.timeouts, capabilities)
