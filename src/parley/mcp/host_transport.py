"""MCP servers that the client runs itself. Their messages are `mcp_message` control requests.

The client answers every message: a request with its response, a notification with an acknowledgement. Messages that
the server starts arrive as requests from the client.
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
        self._on_message: Callable[[Json], None] = lambda message: None
        self._on_lost: Callable[[ConnectionLost | str], None] = lambda reason: None

    async def open(self, on_message: Callable[[Json], None], on_lost: Callable[[ConnectionLost | str], None]) -> None:
        self._on_message, self._on_lost = on_message, on_lost

    async def send(self, message: Json) -> None:
        """Raises ConnectionLost. The response to a request has been received when this returns."""
        try:
            answer = await self._host.request(McpMessage(server_name=self._name, message=message))
        except HostGone as exc:
            self._on_lost(str(exc))
            raise ConnectionLost(str(exc)) from None
        except HostError as exc:
            answer = build_refusal(str(exc))
        if "id" in message and "method" in message:
            # This is the response to our request, whatever id it has.
            self._on_message({**build_response(answer), "id": message["id"]})

    def receive(self, message: Json) -> None:
        """Handle a message that the server started."""
        self._on_message(message)

    async def close(self) -> None:
        self._on_message = lambda message: None

    def stderr_tail(self) -> str:
        return ""


def build_response(answer: Any) -> Json:
    """The JSON-RPC response in the client's answer."""
    inner = answer.get("mcp_response") if isinstance(answer, dict) else None
    if not isinstance(inner, dict) or not ({"result", "error"} & inner.keys()):
        inner = build_refusal("the client's answer contains no JSON-RPC response")["mcp_response"]
    return {key: value for key, value in inner.items() if key != "method"}


def build_refusal(text: str) -> Json:
    return {"mcp_response": {"jsonrpc": "2.0", "error": {"code": INTERNAL_ERROR, "message": text}}}
