"""An MCP server with one tool, `add`, for scenarios: hosted by the client, on a pipe, or over HTTP.

python -m parley.conformance.calculator                 on a pipe
python -m parley.conformance.calculator --new 3         speaks only MCP 2026-07-28, and is ready after 3 s
python -m parley.conformance.calculator --new /file     the same, as soon as the file exists
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

Message = dict[str, Any]
REVISION = "2026-07-28"
META = "io.modelcontextprotocol/"
NUMBER = {"type": "number"}
TOOL = {
    "name": "add",
    "description": "Add two numbers",
    "inputSchema": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}},
}
QUESTION = {"mode": "form", "message": "How many?", "requestedSchema": {"type": "object", "properties": {}}}


def answer(message: Any) -> Message | None:
    """The answer to a JSON-RPC message; None to a notification."""
    if not isinstance(message, dict) or "id" not in message:
        return None
    params = message.get("params") or {}
    result: Message = {}
    match message.get("method"):
        case "initialize":
            server = {"name": "calc", "version": "1.0.0"}
            version = params.get("protocolVersion")
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            result = {"tools": [TOOL]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": add(params)}]}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def add(params: Message) -> str:
    given = params.get("arguments") or {}
    return f"sum={given.get('a', 0) + given.get('b', 0)}"


def answer_new(message: Message) -> Message | None:
    """The same in revision 2026-07-28, which has no handshake. If its input has `ask`, the tool asks the user."""
    if "id" not in message:
        return None
    base = {"jsonrpc": "2.0", "id": message["id"]}
    params = message.get("params") or {}
    meta = params.get("_meta") or {}
    if meta.get(f"{META}protocolVersion") != REVISION or f"{META}clientCapabilities" not in meta:
        error = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": [REVISION]}}
        return {**base, "error": error}
    result: Message = {}
    match message.get("method"):
        case "server/discover":
            result = {"supportedVersions": [REVISION], "capabilities": {"tools": {}}, "ttlMs": 0}
        case "tools/list":
            result = {"tools": [TOOL], "ttlMs": 0, "cacheScope": "private"}
        case "tools/call" if "inputResponses" not in params and params["arguments"].get("ask"):
            asked = {"q": {"method": "elicitation/create", "params": QUESTION}}
            result = {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}
        case "tools/call":
            action = (params.get("inputResponses") or {}).get("q", {}).get("action")
            text = f"{add(params)} state={params.get('requestState')} {action}"
            result = {"content": [{"type": "text", "text": text}]}
    return {**base, "result": {"resultType": "complete", **result}}


def serve_lines(reply: Callable[[Message], Message | None]) -> None:
    for line in sys.stdin:
        if (found := reply(json.loads(line))) is not None:
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


def wait_for(when: str) -> None:
    """Wait so many seconds, or until a file exists."""
    if not when.startswith("/"):
        time.sleep(float(when))
        return
    while not os.path.exists(when):
        time.sleep(0.05)


@asynccontextmanager
async def serve_http(*, sse: bool) -> AsyncIterator[str]:
    """A server on loopback: streamable HTTP, or the older form with an event stream."""
    streams: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = next((line[15:] for line in head.split("\r\n") if line.startswith("content-length:")), "0")
                body = await reader.readexactly(int(length))
                if head.startswith("get") and sse:
                    streams.append(writer)
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
                    writer.write(b"event: endpoint\ndata: /messages?session=1\n\n")
                elif head.startswith("post"):
                    respond(writer, json.loads(body))
                else:
                    writer.write(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError, ValueError):
            writer.close()

    def respond(writer: asyncio.StreamWriter, message: Any) -> None:
        found = answer(message)
        data = b"" if found is None else json.dumps(found).encode()
        if sse:
            if data and streams:
                streams[-1].write(b"event: message\ndata: " + data + b"\n\n")
            data = b""
        status = b"200 OK" if data else b"202 Accepted"
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(data))
        writer.write(head + data)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for stream in streams:
            stream.close()


def main(argv: Sequence[str]) -> None:
    if argv[:1] == ["--new"]:
        wait_for(argv[1] if len(argv) > 1 else "0")
        serve_lines(answer_new)
    else:
        serve_lines(answer)


if __name__ == "__main__":
    main(sys.argv[1:])
