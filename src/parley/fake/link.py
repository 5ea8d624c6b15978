"""The connection of a fake engine to its client: messages, control requests and answers, hooks, tools of the client.

Ids and times are fixed, so that two runs are equal.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec

from parley.fake.scenario import Scenario, Step
from parley.models.event_synthesis import event_objects, message_json
from parley.protocol.base import Json, Struct
from parley.transports.base import Transport

TIMESTAMP = "2026-01-01T00:00:00.000Z"
USAGE: Json = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 5,
    "service_tier": "standard",
}
INITIALIZED: Json = {
    "commands": [],
    "agents": [],
    "output_style": "default",
    "available_output_styles": ["default"],
    "models": [],
    "account": {},
}
"""The default answer to `initialize`."""
CHUNK_CHARS = 40


class FakeMessages:
    """Makes messages. Ids are numbers that count up."""

    def __init__(self, scenario: Scenario, cwd: str, session_id: str) -> None:
        self._scenario = scenario
        self._cwd = cwd
        self._session_id = session_id
        self._numbers = count(1)
        self._results = 0

    def new_uuid(self) -> str:
        return f"00000000-0000-4000-9000-{next(self._numbers):012d}"

    def new_id(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers):08d}"

    def init(self) -> Json:
        return {
            "type": "system",
            "subtype": "init",
            "cwd": self._cwd,
            "tools": list(self._scenario.tools),
            "mcp_servers": [],
            "model": self._scenario.model,
            "permissionMode": "default",
            "slash_commands": [],
            "apiKeySource": "none",
            "claude_code_version": self._scenario.version.partition(" ")[0],
            "output_style": "default",
            "agents": [],
            "skills": [],
            "plugins": [],
            **self._stamp(),
        }

    def assistant(self, block: Json, *, partial: bool) -> Iterator[Json]:
        """A message with one block; with `partial`, between the events that stream it."""
        message = message_json([block], id=self.new_id("msg_"), model=self._scenario.model, usage=USAGE)
        whole = self._message("assistant", {**message, "stop_reason": None})
        if not partial:
            yield whole
            return
        for event in event_objects(message, CHUNK_CHARS):
            if event["type"] == "content_block_stop":
                yield whole
            yield {"type": "stream_event", "event": event, "parent_tool_use_id": None, **self._stamp()}

    def user(self, block: Json) -> Json:
        return self._message("user", {"role": "user", "content": [block]})

    def tool_result(self, tool_use_id: str, content: Any, *, is_error: bool) -> Json:
        block: Json = {"tool_use_id": tool_use_id, "type": "tool_result", "content": content}
        return self.user({**block, "is_error": True} if is_error else block)

    def _message(self, kind: str, message: Json) -> Json:
        return {
            "type": kind,
            "message": message,
            "parent_tool_use_id": None,
            **self._stamp(),
            "timestamp": TIMESTAMP,
        }

    def result(self, text: str, *, num_turns: int, duration_ms: float, denials: list[Json], **more: Any) -> Json:
        """The end of a turn."""
        self._results += 1
        made: Json = {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "duration_ms": round(duration_ms),
            "duration_api_ms": 0,
            "num_turns": num_turns,
            "result": text,
            "stop_reason": "end_turn",
            "total_cost_usd": 0.0,
            "usage": USAGE,
            "modelUsage": {},
            "permission_denials": denials,
            "terminal_reason": "completed",
            "result_index": self._results - 1,
            **self._stamp(),
        }
        made.update(more)
        if made["subtype"] != "success" and "result" not in more:
            made.pop("result")  # only a success has one
            made.setdefault("errors", [])
        return made

    def failure(self, text: str) -> Json:
        """The result of a turn in which the client did something else than expected."""
        more: Json = {"subtype": "error_during_execution", "is_error": True, "errors": [text]}
        return self.result("", num_turns=1, duration_ms=0, denials=[], **more)

    def _stamp(self) -> Json:
        return {"session_id": self._session_id, "uuid": self.new_uuid()}


def success(request_id: Any, response: Json | None = None) -> Json:
    """The answer to a control request."""
    body: Json = {"subtype": "success", "request_id": request_id}
    return {"type": "control_response", "response": body if response is None else {**body, "response": response}}


def failure(request_id: Any, error: str) -> Json:
    return {"type": "control_response", "response": {"subtype": "error", "request_id": request_id, "error": error}}


class FakeOptions(Struct, frozen=True, kw_only=True):
    """What the command line of the client says, as far as a fake engine follows it."""

    cwd: str = "/"
    partial: bool = False
    """Whether events are streamed."""
    sdk_servers: frozenset[str] = frozenset()
    """The MCP servers in the client's own process."""
    session_id: str | None = None
    """Instead of that of the scenario."""


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

    async def send_block(self, block: Json, output: Step | None = None) -> None:
        """Send a block of the assistant, streamed if the client wants it."""
        for message in self._make.assistant(block, partial=self._options.partial):
            await self.write(msgspec.json.encode(message), output if message["type"] == "assistant" else None)

    async def write(self, line: bytes, output: Step | None) -> None:
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
