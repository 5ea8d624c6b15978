"""MCP servers that the client runs itself. Their messages are `mcp_message` control requests.

The client answers every message: a request with its response, a notification with an acknowledgement. Messages that
the server starts arrive as requests from the client.

A client can have performed the handshake in advance (`initialize.sdkMcpServerManifests`), which saves three round trips
per server before the first turn:

    manifest = parse_manifest(entry)               what the server answered to `initialize` and `tools/list`
    ReplayTransport(transport, manifest)           answers these two once; everything else goes to the server
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parley.host import Host, HostError, HostGone
from parley.jsonrpc import INTERNAL_ERROR, RpcError, make_error, make_result
from parley.mcp.base import ConnectionLost, ServerTransport
from parley.mcp.client import PROTOCOL_VERSION
from parley.protocol.base import Json, Struct
from parley.protocol.messages.requests import McpMessage


class HostTransport(ServerTransport):
    def __init__(self, name: str, host: Host) -> None:
        super().__init__()
        self._name = name
        self._host = host

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


def build_response(answer: Any) -> Json:
    """The JSON-RPC response in the client's answer."""
    inner = answer.get("mcp_response") if isinstance(answer, dict) else None
    if not isinstance(inner, dict) or not ({"result", "error"} & inner.keys()):
        inner = build_refusal("the client's answer contains no JSON-RPC response")["mcp_response"]
    return {key: value for key, value in inner.items() if key != "method"}


def build_refusal(text: str) -> Json:
    return {"mcp_response": make_error(None, RpcError(INTERNAL_ERROR, text))}


class Manifest(Struct, frozen=True, kw_only=True):
    initialized: Json
    """The result of `initialize`."""
    tools: Json | None = None
    """The result of `tools/list`; None if the server is to be asked."""

    @property
    def has_our_version(self) -> bool:
        return bool(self.initialized.get("protocolVersion") == PROTOCOL_VERSION)


def parse_manifest(entry: Any) -> Manifest | None:
    """None if the entry is malformed. A list that has further pages is not used."""
    if not isinstance(entry, dict) or not isinstance(entry.get("initializeResult"), dict):
        return None
    tools = entry.get("toolsListResult")
    if tools is not None and not (isinstance(tools, dict) and isinstance(tools.get("tools"), list)):
        return None
    is_whole = tools is not None and not tools.get("nextCursor")
    return Manifest(initialized=entry["initializeResult"], tools=tools if is_whole else None)


class ReplayTransport(ServerTransport):
    """A connection whose handshake is answered from a manifest."""

    def __init__(self, inner: ServerTransport, manifest: Manifest) -> None:
        super().__init__()
        self._inner = inner
        self._results: dict[str, Json | None] = {
            "initialize": manifest.initialized,
            "notifications/initialized": {},
            "tools/list": manifest.tools,
        }
        """What is not answered yet, by method."""

    async def open(self, on_message: Callable[[Json], None], on_lost: Callable[[ConnectionLost | str], None]) -> None:
        await super().open(on_message, on_lost)
        await self._inner.open(on_message, on_lost)

    async def send(self, message: Json) -> None:
        """Raises ConnectionLost."""
        result = self._results.pop(str(message.get("method")), None)
        if result is None:
            await self._inner.send(message)
        elif "id" in message:
            self._on_message(make_result(message["id"], result))

    def receive(self, message: Json) -> None:
        """Handle a message that the server started."""
        if message.get("method") == "notifications/tools/list_changed":
            self._results.pop("tools/list", None)
        self._on_message(message)

    async def close(self) -> None:
        self._silence()
        await self._inner.close()

    def stderr_tail(self) -> str:
        return self._inner.stderr_tail()
