"""The server side of MCP: one client that lists tools and calls them. Without I/O.

    server = ToolServer(tools, call, send)
    server.receive(line)      # for every line of the client
    await server.close()      # when the client is gone: running calls are cancelled

Calls run concurrently; a client can cancel one. A client of the revision 2025-11-25 or an earlier one starts with
`initialize`. One of 2026-07-28 names its revision in the `_meta` of each request, and there is no handshake.

See also: `client.py` for the other side, `cli/commands/server/mcp.py` for what runs the calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from parley.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RpcError,
    RunningRequests,
    make_error,
    make_result,
)
from parley.protocol.base import Json, encode_json
from parley.protocol.framing import Line, OverlongLine
from parley.version import __version__

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


class ToolServer:
    def __init__(
        self, tools: Sequence[Json], call: Callable[[str, Json], Awaitable[Json]], send: Callable[[bytes], None]
    ) -> None:
        """`call(name, arguments)` runs a tool and returns the result of `tools/call`."""
        self._tools = {str(tool["name"]): tool for tool in tools}
        self._call = call
        self._send = send
        self._running = RunningRequests()

    @property
    def is_busy(self) -> bool:
        """Whether a call runs."""
        return len(self._running) > 0

    def receive(self, line: Line) -> None:
        """Handle a line of the client. What is wrong with it is answered with an error."""
        if isinstance(line, OverlongLine):
            self._refuse(None, INVALID_REQUEST, f"a line is longer than {line.cap_bytes:,} bytes")
            return
        try:
            message: Any = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            self._refuse(None, PARSE_ERROR, f"the line is not JSON: {exc}")
            return
        if not isinstance(message, dict):
            self._refuse(None, INVALID_REQUEST, "a message must be a JSON object")
            return
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        if not isinstance(method, str):
            return  # a response: nothing was requested
        if not isinstance(params, dict):
            self._refuse(id, INVALID_PARAMS, "params must be an object")
        elif id is None:
            if method == "notifications/cancelled":
                self._running.cancel(params.get("requestId"))
        elif isinstance(id, bool) or not isinstance(id, str | int):
            self._refuse(None, INVALID_REQUEST, "the id of a request must be a string or a whole number")
        else:
            self._handle_request(id, method, params)

    async def close(self) -> None:
        """Cancel the running calls and wait for them."""
        await self._running.close()

    def _handle_request(self, id: str | int, method: str, params: Json) -> None:
        try:
            complete = complete_result if names_version(params) else keep_result
            if method == "tools/call":
                self._start_call(id, params, complete)
            else:
                result = self._result(method, params, has_handshake=complete is keep_result)
                self._write(make_result(id, complete(result)))
        except RpcError as exc:
            self._write(make_error(id, exc))

    def _result(self, method: str, params: Json, *, has_handshake: bool) -> Json:
        """Raises RpcError."""
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
        raise RpcError(METHOD_NOT_FOUND, f"{method[:100]} is not supported")

    def _start_call(self, id: str | int, params: Json, complete: Callable[[Json], Json]) -> None:
        """Raises RpcError."""
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or name not in self._tools:
            raise RpcError(INVALID_PARAMS, f"unknown tool {str(name)[:100]!r}")
        if not isinstance(arguments, dict):
            raise RpcError(INVALID_PARAMS, "arguments must be an object")
        if id in self._running:
            raise RpcError(INVALID_REQUEST, f"a call with the id {id!r:.100} is running already")
        if len(self._running) >= MAX_CALLS:
            raise RpcError(INTERNAL_ERROR, f"{MAX_CALLS} calls are running already")
        self._running.start(self._run(id, name, arguments, complete), id)

    async def _run(self, id: str | int, name: str, arguments: Json, complete: Callable[[Json], Json]) -> None:
        """Answers the request, unless it is cancelled: the client does not wait for it any more."""
        try:
            self._write(make_result(id, complete(await self._call(name, arguments))))
        except BrokenPipeError:
            pass  # the client is gone
        except Exception as exc:
            self._refuse(id, INTERNAL_ERROR, f"{type(exc).__name__}: {ascii(str(exc))[1:-1]}")

    def _refuse(self, id: Any, code: int, text: str) -> None:
        self._write(make_error(id, RpcError(code, text)))

    def _write(self, message: Json) -> None:
        self._send(encode_json(message) + b"\n")


def names_version(params: Json) -> bool:
    """Whether a request names its revision, so that it needs no handshake. Raises RpcError."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or VERSION_KEY not in meta:
        return False
    version = meta[VERSION_KEY]
    if not isinstance(version, str):
        raise RpcError(INVALID_PARAMS, f"_meta: {VERSION_KEY} must be a string")
    if version not in META_VERSIONS:
        data = {"supported": list(META_VERSIONS), "requested": version[:100]}
        raise RpcError(UNSUPPORTED_VERSION, f"unsupported protocol version {version[:100]!r}", data)
    if not isinstance(meta.get(CAPABILITIES_KEY), dict):
        raise RpcError(INVALID_PARAMS, f"_meta: {CAPABILITIES_KEY} is missing, or is not an object")
    return True


def complete_result(result: Json) -> Json:
    """A result as 2026-07-28 wants it."""
    return {"resultType": "complete", **result, "_meta": {SERVER_KEY: SERVER}}


def keep_result(result: Json) -> Json:
    return result
