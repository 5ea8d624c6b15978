"""The connection of a fake engine to its client: lines, control requests and answers, hooks, tools of the client."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec

from parley.protocol.base import Json, Struct
from parley.testing.fake.messages import FakeMessages
from parley.testing.fake.scenario import OutputStep
from parley.transports.base import Transport


class FakeOptions(Struct, frozen=True, kw_only=True):
    """What the command line of the client says, as far as a fake engine follows it."""

    cwd: str = "/"
    partial: bool = False
    """Whether events are streamed."""
    sdk_servers: frozenset[str] = frozenset()
    """The MCP servers in the client's own process."""


class ClientLink:
    """Sends messages to the client, and matches its answers with the requests."""

    def __init__(self, transport: Transport, make: FakeMessages, options: FakeOptions) -> None:
        self._transport = transport
        self._make = make
        self._options = options
        self._waiting: dict[str, asyncio.Future[Json]] = {}
        self._hooks: dict[str, list[Json]] = {}
        self._sdk_servers = set(options.sdk_servers)
        self._connected: set[str] = set()
        self._closed: Json | None = None
        """The answer to every request, after the client has closed its end."""

    def register(self, initialize: Json) -> None:
        """Take the hooks and servers that the client names when it connects."""
        self._hooks = initialize.get("hooks") or {}
        self._sdk_servers |= set(initialize.get("sdkMcpServers") or ())

    def send(self, message: Json) -> None:
        self._transport.write(msgspec.json.encode(message) + b"\n")

    async def send_block(self, block: Json, output: OutputStep | None = None) -> None:
        """Send a block of the assistant, streamed if the client wants it."""
        for message in self._make.assistant(block, partial=self._options.partial):
            await self.write(msgspec.json.encode(message), output if message["type"] == "assistant" else None)

    async def write(self, line: bytes, output: OutputStep | None) -> None:
        """Write a line, whole or in pieces."""
        data = line + b"\n"
        if output is not None and output.half:
            data = data[: len(data) // 2]
        size = (output.chunk_bytes if output is not None else 0) or len(data)
        for at in range(0, len(data), size):
            if at and output is not None:
                await self._transport.drain()
                await asyncio.sleep(output.chunk_delay_ms / 1000)
            self._transport.write(data[at : at + size])

    async def request(self, request: Json, request_id: str | None = None) -> Json:
        """Send a control request, and wait for the answer."""
        if self._closed is not None:
            return self._closed
        request_id = request_id or self._make.new_uuid()
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        self.send({"type": "control_request", "request_id": request_id, "request": request})
        answer = await future
        self._waiting.pop(request_id, None)
        return answer

    def take_answer(self, response: Json) -> None:
        """Take an answer of the client. One that nothing waits for is ignored."""
        future = self._waiting.get(str(response.get("request_id")))
        if future is not None and not future.done():
            future.set_result(response)

    def cancel_requests(self) -> None:
        """Tell the client that its answers are no longer needed."""
        for request_id, future in self._waiting.items():
            if not future.done() or future.cancelled():
                self.send({"type": "control_cancel_request", "request_id": request_id})
        self._waiting.clear()

    def close(self) -> None:
        """The client has closed its end: answer all its requests with an error."""
        self._closed = {"subtype": "error", "error": "the client closed its end"}
        for future in self._waiting.values():
            if not future.done():
                future.set_result(self._closed)

    async def run_hooks(self, event: str, input: Json) -> list[Json]:
        """Run the hooks of the client for an event; their replies."""
        replies = []
        for row in self._hooks.get(event) or []:
            if not matches(row.get("matcher"), str(input.get("tool_name", ""))):
                continue
            for callback_id in row.get("hookCallbackIds") or []:
                request = {"subtype": "hook_callback", "callback_id": callback_id, "input": input}
                answer = await self.request({**request, "tool_use_id": input.get("tool_use_id")})
                replies.append(answer.get("response") or {})
        return replies

    def has_sdk_server(self, name: str) -> bool:
        return name in self._sdk_servers

    async def call_sdk_tool(self, server: str, tool: str, input: Json) -> Json:
        """The result of a tool in the client's own process."""
        if server not in self._connected:
            self._connected.add(server)
            client = {"name": "parley-fake", "version": "1"}
            about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
            await self._send_mcp(server, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about})
            await self._send_mcp(server, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": input}}
        answer = await self._send_mcp(server, call)
        if "result" in answer:
            return dict(answer["result"])
        return {"content": str((answer.get("error") or {}).get("message") or answer), "isError": True}

    async def _send_mcp(self, server: str, message: Json) -> Json:
        answer = await self.request({"subtype": "mcp_message", "server_name": server, "message": message})
        body = answer.get("response") or {}
        return dict(body.get("mcp_response") or {"error": {"message": answer.get("error", "no answer")}})


def matches(pattern: Any, tool: str) -> bool:
    """Whether the matcher of a hook is about a tool. Events without a tool match every pattern."""
    return not tool or not isinstance(pattern, str) or pattern in ("", "*") or bool(re.fullmatch(pattern, tool))
