"""Run a server of the `mcp` package in this process.

It is connected by in-memory streams. Each request of the engine is passed to the server, and its
response is returned. Notifications and requests of the server are dropped.
"""

from __future__ import annotations

from typing import Any

from parley.protocol.base import Json
from parley.sdk.runtime.background import Job, log, start

INTERNAL = -32603


class McpServerAdapter:
    def __init__(self, instance: Any) -> None:
        self._server = instance
        self._waiting: dict[Any, PendingReply] = {}
        self._running: Job | None = None
        self._listening: Job | None = None

    async def handle(self, message: Json) -> Json:
        if message.get("method") == "initialize":
            await self.close()
            self._start()
        number = message.get("id")
        if self._running is None:
            return error_reply(number, "the server is not running: it was not initialized, or it has exited")
        if "id" not in message:
            await self._send(message)
            return {"jsonrpc": "2.0", "result": {}}
        if number in self._waiting:
            return error_reply(number, f"a request with id {number!r} is still pending")
        slot = self._waiting[number] = PendingReply()
        try:
            await self._send(message)
            await slot.event.wait()
        finally:
            self._waiting.pop(number, None)
        return slot.response or error_reply(number, "the server exited before it answered")

    def _start(self) -> None:
        import anyio

        push, self._from_host = anyio.create_memory_object_stream[Any](32)
        self._to_host, pull = anyio.create_memory_object_stream[Any](32)
        self._push, self._pull = push, pull
        self._running = start(self._run)
        self._listening = start(self._listen)

    async def _run(self) -> None:
        server = getattr(self._server, "_lowlevel_server", None) or getattr(self._server, "_mcp_server", self._server)
        try:
            await server.run(self._from_host, self._to_host, server.create_initialization_options())
        except Exception:
            log.warning("the MCP server %s failed", getattr(server, "name", "?"), exc_info=True)
        finally:
            self._running = None
            for stream in (self._from_host, self._to_host):
                stream.close()
            for slot in self._waiting.values():
                slot.event.set()

    async def _listen(self) -> None:
        async with self._pull:
            async for received in self._pull:
                body = received.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
                slot = self._waiting.get(body.get("id"))
                if slot is not None and "method" not in body:
                    slot.response = body
                    slot.event.set()

    async def _send(self, message: Json) -> None:
        from mcp.shared.message import SessionMessage

        await self._push.send(SessionMessage(convert_message(message)))

    async def close(self) -> None:
        for job in (self._running, self._listening):
            if job is not None:
                job.cancel()
                await job.wait()
        if self._listening is not None:
            self._push.close()
        self._running = self._listening = None


class PendingReply:
    """A request that waits for its response."""

    def __init__(self) -> None:
        from anyio import Event

        self.event = Event()
        self.response: Json | None = None


def convert_message(message: Json) -> Any:
    """Convert a message to the class of the installed version of the package."""
    try:
        from mcp_types import jsonrpc_message_adapter
    except ModuleNotFoundError:  # version 1
        from mcp import types

        return types.JSONRPCMessage.model_validate(message)  # type: ignore[attr-defined]
    return jsonrpc_message_adapter.validate_python(message)


def error_reply(number: Any, text: str) -> Json:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": INTERNAL, "message": text}}
