"""MCP servers in this process, as the engine talks to them: JSON-RPC in control requests.

Server      our own: a list of tools
Hosted      what the client needs of one
hosted()    any server a program may hand us, also one of the `mcp` package
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from parley.protocol.base import Json
from parley.sdk.runtime.background import awaited, is_stray

if TYPE_CHECKING:
    from anyio import CancelScope

    from parley.sdk.tool import SdkMcpTool

LATEST = "2025-11-25"
NO_SUCH_METHOD = -32601
BAD_REQUEST = -32600
INTERNAL = -32603
log = logging.getLogger("parley.sdk")


class Hosted(Protocol):
    async def handle(self, message: Json) -> Json:
        """The JSON-RPC response to a message; for a notification, that it came."""

    async def close(self) -> None:
        """Let go of what it holds."""


class Server:
    def __init__(self, name: str, version: str, tools: Sequence[SdkMcpTool[Any]]) -> None:
        self.name = name
        self.version = version
        self.tools = {tool.name: tool for tool in tools}
        self._calls: dict[Any, CancelScope] = {}
        self._validators: dict[str, Any] = {}

    def apart(self) -> Server:
        """The same tools for one client more: each numbers its calls on its own, and ends only those."""
        other = Server(self.name, self.version, ())
        other.tools, other._validators = self.tools, self._validators
        return other

    async def close(self) -> None:
        for scope in list(self._calls.values()):
            scope.cancel()

    async def handle(self, message: Json) -> Json:
        method, number = message.get("method"), message.get("id")
        if "id" not in message:
            self._notified(message)
            return {"jsonrpc": "2.0", "result": {}}
        if number in self._calls:
            return refused(number, BAD_REQUEST, f"the request {number!r} is still open")
        row = METHODS.get(method) if isinstance(method, str) else None
        if row is None:
            return refused(number, NO_SUCH_METHOD, f"there is no method {method!r}")
        params = message.get("params")
        return {
            "jsonrpc": "2.0",
            "id": number,
            "result": await row(self, params if isinstance(params, dict) else {}, number),
        }

    def _notified(self, message: Json) -> None:
        params = message.get("params")
        if message.get("method") == "notifications/cancelled" and isinstance(params, dict):
            scope = self._calls.get(params.get("requestId"))
            if scope is not None:
                scope.cancel()

    async def greet(self, params: Json, number: Any) -> Json:
        return {
            "protocolVersion": params.get("protocolVersion") or LATEST,
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": self.name, "version": self.version},
        }

    async def ping(self, params: Json, number: Any) -> Json:
        return {}

    async def list(self, params: Json, number: Any) -> Json:
        return {"tools": [tool.listed() for tool in self.tools.values()]}

    async def call(self, params: Json, number: Any) -> Json:
        from anyio import CancelScope

        tool = self.tools.get(str(params.get("name")))
        if tool is None:
            return failed(f"there is no tool {params.get('name')!r}")
        arguments = params.get("arguments") or {}
        with CancelScope() as scope:
            self._calls[number] = scope
            try:
                self._check(tool, arguments)
                return result_of(await awaited(tool.handler(arguments)))
            except BaseException as flaw:
                if not isinstance(flaw, Exception) and not is_stray(flaw):
                    raise
                log.warning("the tool %s failed", tool.name, exc_info=True)
                return failed(f"{flaw}" or type(flaw).__name__)
            finally:
                del self._calls[number]
        return failed("the call was cancelled")

    def _check(self, tool: SdkMcpTool[Any], arguments: Any) -> None:
        """Raises ValueError for arguments that are not what the tool takes."""
        if not isinstance(arguments, dict):
            raise ValueError("the arguments must be an object")
        if tool.name not in self._validators:
            self._validators[tool.name] = validator(tool.listed()["inputSchema"])
        for flaw in self._validators[tool.name].iter_errors(arguments):
            raise ValueError(f"Input validation error: {flaw.message}")


METHODS: dict[str, Callable[[Server, Json, Any], Awaitable[Json]]] = {
    "initialize": Server.greet,
    "ping": Server.ping,
    "tools/list": Server.list,
    "tools/call": Server.call,
}


def refused(number: Any, code: int, text: str) -> Json:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}}


def failed(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def validator(schema: Json) -> Any:
    """Raises ValueError for a schema that is none."""
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    cls = validator_for(schema)
    try:
        cls.check_schema(schema)
    except SchemaError as flaw:
        raise ValueError(f"the schema of the tool is wrong: {flaw.message}") from None
    return cls(schema)


def result_of(answer: Any) -> Json:
    """A handler's answer as `tools/call` tells it. Raises TypeError for what is none."""
    if not isinstance(answer, dict):
        raise TypeError(f"a tool must return a dict with `content`, not {type(answer).__name__}")
    given = answer.get("content") or ()
    if not isinstance(given, list | tuple) or not all(isinstance(one, dict) for one in given):
        raise TypeError("the `content` of a tool's result must be a list of dicts, each a block with a `type`")
    content = [block for one in given if (block := block_of(one)) is not None]
    told: Json = {"content": content, "isError": bool(answer.get("is_error") or answer.get("isError"))}
    if "structuredContent" in answer:
        told["structuredContent"] = answer["structuredContent"]
    return told


def block_of(block: Json) -> Json | None:
    """What a model can read of a content block."""
    match block.get("type"):
        case "text" | "image":
            return block
        case "resource_link":
            parts = [str(block[key]) for key in ("name", "uri", "description") if block.get(key)]
            return {"type": "text", "text": "\n".join(parts) or "a link to a resource"}
        case "resource" if isinstance(block.get("resource"), dict) and "text" in block["resource"]:
            return {"type": "text", "text": str(block["resource"]["text"])}
    log.warning("a tool gave content of type %r, which no model can read; it is left out", block.get("type"))
    return None


def hosted(instance: Any) -> Hosted:
    """Raises TypeError for what is no server."""
    if isinstance(instance, Server):
        return instance.apart()
    if hasattr(instance, "handle") and hasattr(instance, "close"):
        server: Hosted = instance
        return server
    if hasattr(instance, "run"):
        from parley.sdk.runtime.mcp_adapter import Foreign

        made: Hosted = Foreign(instance)
        return made
    raise TypeError(f"{type(instance).__name__} is no MCP server")
