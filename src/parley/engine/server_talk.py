"""What an MCP server asks of us: a question for the person, and where we work."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from parley.host import AnswerIsError, HostGone
from parley.mcp.base import ServerError
from parley.mcp.content import clean
from parley.mcp.server import Server, refused
from parley.protocol.base import UNSET, Json, UnsetType, convert
from parley.protocol.messages.requests import Elicitation, ElicitationAnswer
from parley.protocol.messages.system import ElicitationComplete

if TYPE_CHECKING:
    from parley.engine.session import Session

ACTIONS = ("accept", "decline", "cancel")
INVALID_PARAMS = -32602


class Talk:
    """The session's ears for its servers."""

    capabilities: Json = {"elicitation": {"form": {}, "url": {}}, "roots": {}}

    def __init__(self, session: Session, changed: Callable[[Server], None]) -> None:
        self._session = session
        self.changed = changed

    async def asked(self, server: Server, method: str, params: Json) -> Json:
        """Raises ServerError."""
        if method == "elicitation/create":
            return await self._elicit(server, params)
        if method == "roots/list":
            return {"roots": [{"uri": f"file://{self._session.setup.cwd}", "name": "working directory"}]}
        raise refused(method)

    def noticed(self, server: Server, method: str, params: Json) -> None:
        if method == "notifications/elicitation/complete" and isinstance(params.get("elicitationId"), str):
            self._session.tell(
                ElicitationComplete(mcp_server_name=server.spec.name, elicitation_id=params["elicitationId"])
            )

    async def _elicit(self, server: Server, params: Json) -> Json:
        """The person's answer. Where nobody can be asked, it is no."""
        url = text(params.get("url"))
        if isinstance(url, str) and not url.startswith(("http://", "https://")):
            raise ServerError(INVALID_PARAMS, "only http and https addresses are shown to people")
        schema = params.get("requestedSchema")
        question = Elicitation(
            mcp_server_name=server.spec.name,
            message=clean(str(params.get("message", ""))),
            mode=text(params.get("mode")),
            url=url,
            elicitation_id=text(params.get("elicitationId")),
            requested_schema=schema if isinstance(schema, dict) else UNSET,
        )
        try:
            answer: ElicitationAnswer = convert(await self._session.host.ask(question), ElicitationAnswer)
        except (HostGone, AnswerIsError, msgspec.ValidationError):
            return {"action": "decline"}
        if answer.action not in ACTIONS:
            return {"action": "decline"}
        content = answer.content if answer.action == "accept" and isinstance(answer.content, dict) else None
        return {"action": answer.action, **({} if content is None else {"content": content})}


def text(value: Any) -> str | UnsetType:
    return value if isinstance(value, str) else UNSET
