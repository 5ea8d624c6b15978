"""The server side of MCP: one client that lists tools and calls them. Without I/O.

    server = ToolServer(tools, call, send)
    server.receive(line)      # for every line of the client
    await server.close()      # when the client is gone: running calls are cancelled

Calls run concurrently; a client can cancel one. A client of the revision 2025-11-25 or an earlier one starts with
`initialize`. One of 2026-07-28 names its revision in the `_meta` of each request, and there is no handshake.

See also: `client.py` for the other side, `cli/commands/mcp/serve.py` for what runs the calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from parley.protocol.base import Json, encode_json
from parley.protocol.framing import Line, OverlongLine
from parley.version import __version__

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
META_VERSIONS = ("2026-07-28",)
"""The revisions without a handshake."""
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
CACHE_HINTS = {"ttlMs": 300_000, "cacheScope": "private"}
"""The tools stay the same while the server runs."""
SERVER = {"name": "parley", "title": "Parley", "version": __version__}
MAX_CALLS = 64
"""How many calls run at a time. Further ones are refused."""


class RequestRefused(Exception):
    """A request is answered with a JSON-RPC error."""

    def __init__(self, code: int, text: str, data: Json | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.data = data


class ToolServer:
    def __init__(
        self, tools: Sequence[Json], call: Callable[[str, Json], Awaitable[Json]], send: Callable[[bytes], None]
    ) -> None:
        """`call(name, arguments)` runs a tool and returns the result of `tools/call`."""
        self._tools = {str(tool["name"]): tool for tool in tools}
        self._call = call
        self._send = send
        self._running: dict[str | int, asyncio.Task[None]] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a call runs."""
        return bool(self._running)

    def receive(self, line: Line) -> None:
        """Handle a line of the client. What is wrong with it is answered with an error."""
        if isinstance(line, OverlongLine):
            self._answer_error(None, INVALID_REQUEST, f"a line is longer than {line.cap_bytes:,} bytes")
            return
        try:
            message: Any = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            self._answer_error(None, PARSE_ERROR, f"the line is not JSON: {exc}")
            return
        if not isinstance(message, dict):
            self._answer_error(None, INVALID_REQUEST, "a message must be a JSON object")
            return
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        if not isinstance(method, str):
            return  # a response: nothing was requested
        if not isinstance(params, dict):
            self._answer_error(id, INVALID_PARAMS, "params must be an object")
        elif id is None:
            self._handle_notification(method, params)
        elif isinstance(id, bool) or not isinstance(id, str | int):
            self._answer_error(None, INVALID_REQUEST, "the id of a request must be a string or a whole number")
        else:
            self._handle_request(id, method, params)

    async def close(self) -> None:
        """Cancel the running calls and wait for them."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _handle_notification(self, method: str, params: Json) -> None:
        if method == "notifications/cancelled":
            id = params.get("requestId")
            task = self._running.get(id) if isinstance(id, str | int) else None
            if task is not None:
                task.cancel()

    def _handle_request(self, id: str | int, method: str, params: Json) -> None:
        try:
            complete = complete_result if names_version(params) else keep_result
            if method == "tools/call":
                self._start_call(id, params, complete)
            else:
                self._answer(id, complete(self._result(method, params, has_handshake=complete is keep_result)))
        except RequestRefused as exc:
            self._answer_error(id, exc.code, str(exc), exc.data)

    def _result(self, method: str, params: Json, *, has_handshake: bool) -> Json:
        """Raises RequestRefused."""
        match method:
            case "initialize" if has_handshake:
                asked = params.get("protocolVersion")
                version = asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
                return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": SERVER}
            case "ping" if has_handshake:
                return {}
            case "server/discover" if not has_handshake:
                return {"supportedVersions": list(META_VERSIONS), "capabilities": {"tools": {}}, **CACHE_HINTS}
            case "tools/list":
                return {"tools": list(self._tools.values()), **({} if has_handshake else CACHE_HINTS)}
        raise RequestRefused(METHOD_NOT_FOUND, f"{method[:100]} is not supported")

    def _start_call(self, id: str | int, params: Json, complete: Callable[[Json], Json]) -> None:
        """Raises RequestRefused."""
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or name not in self._tools:
            raise RequestRefused(INVALID_PARAMS, f"unknown tool {str(name)[:100]!r}")
        if not isinstance(arguments, dict):
            raise RequestRefused(INVALID_PARAMS, "arguments must be an object")
        if id in self._running:
            raise RequestRefused(INVALID_REQUEST, f"a call with the id {id!r:.100} is running already")
        if len(self._running) >= MAX_CALLS:
            raise RequestRefused(INTERNAL_ERROR, f"{MAX_CALLS} calls are running already")
        task = self._running[id] = asyncio.get_running_loop().create_task(self._run(id, name, arguments, complete))
        task.add_done_callback(lambda _: self._running.pop(id, None))

    async def _run(self, id: str | int, name: str, arguments: Json, complete: Callable[[Json], Json]) -> None:
        """Answers the request, unless it is cancelled: the client does not wait for it any more."""
        try:
            self._answer(id, complete(await self._call(name, arguments)))
        except BrokenPipeError:
            pass  # the client is gone
        except Exception as exc:
            self._answer_error(id, INTERNAL_ERROR, f"{type(exc).__name__}: {ascii(str(exc))[1:-1]}")

    def _answer(self, id: str | int, result: Json) -> None:
        self._write({"jsonrpc": "2.0", "id": id, "result": result})

    def _answer_error(self, id: Any, code: int, text: str, data: Json | None = None) -> None:
        more = {} if data is None else {"data": data}
        self._write({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text, **more}})

    def _write(self, message: Json) -> None:
        self._send(encode_json(message) + b"\n")


def names_version(params: Json) -> bool:
    """Whether a request names its revision, so that it needs no handshake. Raises RequestRefused."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or VERSION_KEY not in meta:
        return False
    version = meta[VERSION_KEY]
    if not isinstance(version, str):
        raise RequestRefused(INVALID_PARAMS, f"_meta: {VERSION_KEY} must be a string")
    if version not in META_VERSIONS:
        data = {"supported": list(META_VERSIONS), "requested": version[:100]}
        raise RequestRefused(UNSUPPORTED_VERSION, f"unsupported protocol version {version[:100]!r}", data)
    if not isinstance(meta.get(CAPABILITIES_KEY), dict):
        raise RequestRefused(INVALID_PARAMS, f"_meta: {CAPABILITIES_KEY} is missing, or is not an object")
    return True


def complete_result(result: Json) -> Json:
    """A result as 2026-07-28 wants it."""
    return {"resultType": "complete", **result, "_meta": {SERVER_KEY: SERVER}}


def keep_result(result: Json) -> Json:
    return result
