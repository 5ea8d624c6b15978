"""Servers that the host runs itself: their messages travel as `mcp_message` control requests.

The host answers every message; a request with its response, a notification with a word that
it came. What a server says of its own accord arrives as a request of the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parley.host import Host, HostError, HostGone
from parley.mcp.base import ConnectionLost
from parley.protocol.base import Json
from parley.protocol.messages.requests import McpMessage

INTERNAL_ERROR = -32603


class HostTransport:
    def __init__(self, name: str, host: Host) -> None:
        self._name = name
        self._host = host
        self._take: Callable[[Json], None] = lambda message: None
        self._lost: Callable[[ConnectionLost | str], None] = lambda reason: None

    async def open(self, take: Callable[[Json], None], lost: Callable[[ConnectionLost | str], None]) -> None:
        self._take, self._lost = take, lost

    async def send(self, message: Json) -> None:
        """Raises Lost. A request is answered when this returns."""
        try:
            answer = await self._host.request(McpMessage(server_name=self._name, message=message))
        except HostGone as exc:
            self._lost(str(exc))
            raise ConnectionLost(str(exc)) from None
        except HostError as exc:
            answer = build_refusal(str(exc))
        if "id" in message and "method" in message:
            # Whatever number it carries, this is the answer to what we asked.
            self._take({**build_response(answer), "id": message["id"]})

    def receive(self, message: Json) -> None:
        """A message that the server sent of its own accord."""
        self._take(message)

    async def close(self) -> None:
        self._take = lambda message: None

    def stderr_tail(self) -> str:
        return ""


def build_response(answer: Any) -> Json:
    """The JSON-RPC response in the host's answer."""
    inner = answer.get("mcp_response") if isinstance(answer, dict) else None
    if not isinstance(inner, dict) or not ({"result", "error"} & inner.keys()):
        inner = build_refusal("the host's answer holds no JSON-RPC response")["mcp_response"]
    return {key: value for key, value in inner.items() if key != "method"}


def build_refusal(text: str) -> Json:
    return {"mcp_response": {"jsonrpc": "2.0", "error": {"code": INTERNAL_ERROR, "message": text}}}
