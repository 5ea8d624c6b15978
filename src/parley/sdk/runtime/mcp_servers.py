"""MCP servers in this process. The engine sends them JSON-RPC messages in control requests.

HostedServer       the interface that the client uses
SdkMcpServer       a server of tools made with `@tool`
McpServerAdapter   a server of the `mcp` package, connected by in-memory streams
to_hosted()        converts any server that a program passes
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from parley.protocol.base import Json
from parley.sdk.errors import InvalidArguments, describe_exception
from parley.sdk.runtime.background import Job, is_stray, log, log_failure, maybe_await, start

if TYPE_CHECKING:
    from anyio import CancelScope

    from parley.sdk.runtime.mcp_tool import SdkMcpTool

LATEST = "2025-11-25"
NO_SUCH_METHOD = -32601
BAD_REQUEST = -32600
INTERNAL = -32603


class HostedServer(Protocol):
    async def handle(self, message: Json) -> Json:
        """Return the JSON-RPC response to a message. A notification gets an empty result."""

    async def close(self) -> None:
        """Release the server's resources."""


class SdkMcpServer:
    def __init__(self, name: str, version: str, tools: Sequence[SdkMcpTool[Any]]) -> None:
        self.name = name
        self.version = version
        self.tools = {tool.name: tool for tool in tools}
        self._calls: dict[Any, CancelScope] = {}
        self._validators: dict[str, Any] = {}

    def copy(self) -> SdkMcpServer:
        """Return a server with the same tools for another client, whose call ids are independent."""
        other = SdkMcpServer(self.name, self.version, ())
        other.tools, other._validators = self.tools, self._validators
        return other

    async def close(self) -> None:
        for scope in list(self._calls.values()):
            scope.cancel()

    async def handle(self, message: Json) -> Json:
        method, number = message.get("method"), message.get("id")
        if "id" not in message:
            self._handle_notification(message)
            return {"jsonrpc": "2.0", "result": {}}
        if number in self._calls:
            return error_reply(number, BAD_REQUEST, f"a request with id {number!r} is still pending")
        handler = METHODS.get(method) if isinstance(method, str) else None
        if handler is None:
            return error_reply(number, NO_SUCH_METHOD, f"unknown method {method!r}")
        params = message.get("params")
        return {
            "jsonrpc": "2.0",
            "id": number,
            "result": await handler(self, params if isinstance(params, dict) else {}, number),
        }

    def _handle_notification(self, message: Json) -> None:
        params = message.get("params")
        if message.get("method") == "notifications/cancelled" and isinstance(params, dict):
            scope = self._calls.get(params.get("requestId"))
            if scope is not None:
                scope.cancel()

    async def initialize(self, params: Json, number: Any) -> Json:
        return {
            "protocolVersion": params.get("protocolVersion") or LATEST,
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": self.name, "version": self.version},
        }

    async def ping(self, params: Json, number: Any) -> Json:
        return {}

    async def list_tools(self, params: Json, number: Any) -> Json:
        return {"tools": [tool.listed() for tool in self.tools.values()]}

    async def call(self, params: Json, number: Any) -> Json:
        from anyio import CancelScope

        tool = self.tools.get(str(params.get("name")))
        if tool is None:
            return error_result(f"unknown tool {params.get('name')!r}")
        arguments = params.get("arguments") or {}
        with CancelScope() as scope:
            self._calls[number] = scope
            try:
                self._check(tool, arguments)
                return convert_result(await maybe_await(tool.handler(arguments)))
            except BaseException as exc:
                if not isinstance(exc, Exception) and not is_stray(exc):
                    raise
                if not isinstance(exc, InvalidArguments):
                    log_failure(f"the tool {tool.name}", exc)
                return error_result(describe_exception(exc))
            finally:
                del self._calls[number]
        return error_result("the call was cancelled")

    def _check(self, tool: SdkMcpTool[Any], arguments: Any) -> None:
        """Raises InvalidArguments for arguments that do not match the tool's schema."""
        if not isinstance(arguments, dict):
            raise InvalidArguments("the arguments must be an object")
        if tool.name not in self._validators:
            self._validators[tool.name] = build_validator(tool.listed()["inputSchema"])
        for error in self._validators[tool.name].iter_errors(arguments):
            name = ".".join(map(str, error.absolute_path))
            where = f"parameter {name!r}: " if name else ""  # a missing parameter is named by the message
            raise InvalidArguments(f"Input validation error: {where}{error.message}")


METHODS: dict[str, Callable[[SdkMcpServer, Json, Any], Awaitable[Json]]] = {
    "initialize": SdkMcpServer.initialize,
    "ping": SdkMcpServer.ping,
    "tools/list": SdkMcpServer.list_tools,
    "tools/call": SdkMcpServer.call,
}


def error_reply(number: Any, code: int, text: str) -> Json:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}}


def error_result(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def build_validator(schema: Json) -> Any:
    """Raises ValueError for an invalid schema."""
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    cls = validator_for(schema)
    try:
        cls.check_schema(schema)
    except SchemaError as exc:
        raise ValueError(f"the tool's input schema is invalid: {exc.message}") from None
    return cls(schema)


def convert_result(answer: Any) -> Json:
    """Convert a handler's return value to the result of `tools/call`. Raises TypeError."""
    if not isinstance(answer, dict):
        raise TypeError(f"a tool must return a dict with `content`, not {type(answer).__name__}")
    blocks = answer.get("content") or ()
    if not isinstance(blocks, list | tuple) or not all(isinstance(block, dict) for block in blocks):
        raise TypeError("the `content` of a tool's result must be a list of dicts, each a block with a `type`")
    content = [converted for block in blocks if (converted := convert_block(block)) is not None]
    result: Json = {"content": content, "isError": bool(answer.get("is_error") or answer.get("isError"))}
    if "structuredContent" in answer:
        result["structuredContent"] = answer["structuredContent"]
    return result


def convert_block(block: Json) -> Json | None:
    """Convert a content block to one that a model can read; None if there is no such form."""
    match block.get("type"):
        case "text" | "image":
            return block
        case "resource_link":
            parts = [str(block[key]) for key in ("name", "uri", "description") if block.get(key)]
            return {"type": "text", "text": "\n".join(parts) or "a link to a resource"}
        case "resource" if isinstance(block.get("resource"), dict) and "text" in block["resource"]:
            return {"type": "text", "text": str(block["resource"]["text"])}
    log.warning("dropped content of type %r from a tool result: models cannot read it", block.get("type"))
    return None


def to_hosted(instance: Any) -> HostedServer:
    """Raises TypeError for an object that is not an MCP server."""
    if isinstance(instance, SdkMcpServer):
        return instance.copy()
    if hasattr(instance, "handle") and hasattr(instance, "close"):
        server: HostedServer = instance
        return server
    if hasattr(instance, "run"):
        adapter: HostedServer = McpServerAdapter(instance)
        return adapter
    raise TypeError(f"{type(instance).__name__} is not an MCP server")


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
            return error_reply(number, INTERNAL, "the server is not running: it was not initialized, or it has exited")
        if "id" not in message:
            await self._send(message)
            return {"jsonrpc": "2.0", "result": {}}
        if number in self._waiting:
            return error_reply(number, INTERNAL, f"a request with id {number!r} is still pending")
        slot = self._waiting[number] = PendingReply()
        try:
            await self._send(message)
            await slot.event.wait()
        finally:
            self._waiting.pop(number, None)
        return slot.response or error_reply(number, INTERNAL, "the server exited before it answered")

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
