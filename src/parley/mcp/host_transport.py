"""Servers that the host runs itself: their messages travel as `mcp_message` control requests.

The host answers every message; a request with its response, a notification with a word that
it came. What a server says of its own accord arrives as a request of the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parley.host import AnswerIsError, Host, HostGone
from parley.mcp.base import Lost
from parley.protocol.base import Json
from parley.protocol.messages.requests import McpMessage

INTERNAL_ERROR = -32603


class Bridge:
    def __init__(self, name: str, host: Host) -> None:
        self._name = name
        self._host = host
        self._take: Callable[[Json], None] = lambda message: None
        self._lost: Callable[[Lost | str], None] = lambda reason: None

    async def open(self, take: Callable[[Json], None], lost: Callable[[Lost | str], None]) -> None:
        self._take, self._lost = take, lost

    async def send(self, message: Json) -> None:
        """Raises Lost. A request is answered when this returns."""
        try:
            answer = await self._host.ask(McpMessage(server_name=self._name, message=message))
        except HostGone as flaw:
            self._lost(str(flaw))
            raise Lost(str(flaw)) from None
        except AnswerIsError as flaw:
            answer = refusal(str(flaw))
        if "id" in message and "method" in message:
            # Whatever number it carries, this is the answer to what we asked.
            self._take({**response(answer), "id": message["id"]})

    def hear(self, message: Json) -> None:
        """A message that the server sent of its own accord."""
        self._take(message)

    async def close(self) -> None:
        self._take = lambda message: None

    def last_words(self) -> str:
        return ""


def response(answer: Any) -> Json:
    """The JSON-RPC response in the host's answer."""
    inner = answer.get("mcp_response") if isinstance(answer, dict) else None
    if not isinstance(inner, dict) or not ({"result", "error"} & inner.keys()):
        inner = refusal("the host's answer holds no JSON-RPC response")["mcp_response"]
    return {key: value for key, value in inner.items() if key != "method"}


def refusal(text: str) -> Json:
    return {"mcp_response": {"jsonrpc": "2.0", "error": {"code": INTERNAL_ERROR, "message": text}}}
