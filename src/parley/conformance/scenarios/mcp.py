"""MCP servers: hosted by the client, started by the engine, over HTTP, and broken ones."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from parley.conformance.driver import ASK, EngineDriver
from parley.conformance.model import say, use
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import Mismatch, ScenarioLog, need
from parley.conformance.scenarios.permissions import allow
from parley.protocol.base import Json

ADD_TOOL = {
    "name": "add", "description": "Add two numbers",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
}  # fmt: skip
PATIENT: dict[str, str | None] = {"MCP_TIMEOUT": "120000"}
"""Some engines load their HTTP client first, which takes long on a busy machine."""
ADD = use("mcp__calc__add", {"a": 2, "b": 40}, "toolu_add")

STDIO_SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, base = message.get("method"), {"jsonrpc": "2.0", "id": message.get("id")}
    if method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "calc", "version": "1.0.0"}}
    elif method == "tools/list":
        result = {"tools": [TOOL]}
    elif method == "tools/call":
        given = message["params"]["arguments"]
        result = {"content": [{"type": "text", "text": "sum=" + str(given["a"] + given["b"])}]}
    elif "id" in message:
        result = {}
    else:
        continue
    print(json.dumps({**base, "result": result}), flush=True)
"""


def answer_rpc(message: Json) -> Json | None:
    """What a server with one tool answers; None to a notification."""
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        return None
    result: Json = {}
    if method == "initialize":
        server = {"name": "calc", "version": "1.0.0"}
        result = {"protocolVersion": params.get("protocolVersion"), "capabilities": {"tools": {}}, "serverInfo": server}
    elif method == "tools/list":
        result = {"tools": [ADD_TOOL]}
    elif method == "tools/call":
        given = params.get("arguments") or {}
        result = {"content": [{"type": "text", "text": f"sum={given.get('a', 0) + given.get('b', 0)}"}]}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def hosted(request: Json) -> Json:
    """The answer of a server that the client hosts."""
    message = request.get("message")
    answer = answer_rpc(message if isinstance(message, dict) else {})
    return {"mcp_response": answer if answer is not None else {"jsonrpc": "2.0", "result": {}}}


def config(**servers: Json) -> tuple[str, str]:
    return "--mcp-config", json.dumps({"mcpServers": servers})


def status_of(log: ScenarioLog, name: str, label: str = "mcp_status") -> str:
    """The state of a server, as mcp_status tells it. Raises Mismatch."""
    servers = log.answer(label).get("mcpServers") or []
    found = [server for server in servers if server.get("name") == name]
    if not found:
        raise Mismatch(f"no server {name!r} in {servers}")
    return str(found[0].get("status"))


@scenario("hosted-server")
async def hosted_server(engine: EngineDriver) -> None:
    engine.on("mcp_message", hosted)
    engine.on("can_use_tool", allow)
    engine.model.play(ADD, say("ok"))
    await engine.start(*ASK, *config(calc={"type": "sdk", "name": "calc"}), "--allowedTools", "mcp__calc__add")
    await engine.initialize()
    engine.user("go")
    await engine.result()
    await engine.ask("mcp_status")
    await engine.finish()


@check(
    "ask.mcp_message", "mcp.sdk", on="hosted-server", basis="trace 067; control.md §10",
    expects="the handshake, tools/list and tools/call travel in mcp_message: server_name and a JSON-RPC message",
)  # fmt: skip
def bridge(log: ScenarioLog) -> None:
    asked = log.asked("mcp_message")
    methods = [str((request.get("message") or {}).get("method")) for request in asked]
    wanted = ["initialize", "notifications/initialized", "tools/list", "tools/call"]
    need([name for name in methods if name in wanted] == wanted, f"{methods}; {log.summary()}")
    need(all(request.get("server_name") == "calc" for request in asked), asked)


@check(
    "tool.mcp__server__tool", "flag.mcp-config", "init.mcp_servers", on="hosted-server", basis="trace 067",
    expects="the tool is called mcp__calc__add, is in init, and its text is the result; the server is connected",
)  # fmt: skip
def hosted_tool(log: ScenarioLog) -> None:
    need("sum=42" in str(log.tool_result("toolu_add").get("content")), log.tool_result("toolu_add"))
    need(not log.asked("can_use_tool"), "an allowed tool was asked for")
    need(status_of(log, "calc") == "connected", log.answer("mcp_status"))
    listed = [server.get("name") for server in log.first("system/init").get("mcp_servers") or []]
    need(listed == ["calc"], listed)


@scenario("stdio-server")
async def stdio_server(engine: EngineDriver) -> None:
    """A server beside a broken one; it is switched off and on and connected again."""
    engine.put({"server.py": STDIO_SERVER.replace("[TOOL]", f"[{ADD_TOOL!r}]")})
    engine.on("can_use_tool", allow)
    engine.model.play(ADD, say("ok"))
    good = {"command": sys.executable, "args": [str(engine.cwd / "server.py")], "env": {"X": "1"}}
    await engine.start(*ASK, *config(calc=good, broken={"command": "/nonexistent/server"}))
    await engine.initialize()
    engine.user("go")
    await engine.result()
    await engine.ask("mcp_status")
    await engine.ask("mcp_toggle", "off", serverName="calc", enabled=False)
    await engine.ask("mcp_status", "status off")
    await engine.ask("mcp_toggle", "on", serverName="calc", enabled=True)
    await engine.ask("mcp_reconnect", serverName="calc")
    await engine.ask("mcp_status", "status on")
    await engine.finish()


@check(
    "mcp.stdio", on="stdio-server", basis="trace 069",
    expects="the tool is asked for, runs, and its text is the result",
)  # fmt: skip
def stdio_tool(log: ScenarioLog) -> None:
    need([request.get("tool_name") for request in log.asked("can_use_tool")] == ["mcp__calc__add"], log.summary())
    need("sum=42" in str(log.tool_result("toolu_add").get("content")), log.tool_result("toolu_add"))


@check(
    "mcp.broken", "mcp.stdio", "request.mcp_status", on="stdio-server", basis="trace 069; users.md U-17.1",
    expects="a server that cannot start is `failed`, and does not stop the session",
)  # fmt: skip
def broken_server(log: ScenarioLog) -> None:
    need(status_of(log, "broken") == "failed" and status_of(log, "calc") == "connected", log.answer("mcp_status"))


@check(
    "request.mcp_toggle", on="stdio-server", basis="trace 069", expects="off: the server is `disabled`; on: success",
)  # fmt: skip
def toggled(log: ScenarioLog) -> None:
    log.answer("off")
    need(status_of(log, "calc", "status off") == "disabled", log.answer("status off"))
    log.answer("on")


@check(
    "mcp.reconnect", "request.mcp_reconnect", on="stdio-server", basis="trace 069", expects="success; connected again",
)  # fmt: skip
def reconnected(log: ScenarioLog) -> None:
    log.answer("mcp_reconnect")
    need(status_of(log, "calc", "status on") == "connected", log.answer("status on"))


# Servers over HTTP.


@asynccontextmanager
async def http_server(*, sse: bool) -> AsyncIterator[str]:
    """A server with one tool on loopback: streamable HTTP, or the older form with an event stream."""
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
        answer = answer_rpc(message if isinstance(message, dict) else {})
        data = b"" if answer is None else json.dumps(answer).encode()
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


async def http_turn(engine: EngineDriver, kind: str) -> None:
    async with http_server(sse=kind == "sse") as url:
        engine.on("can_use_tool", allow)
        engine.model.play(ADD, say("ok"))
        await engine.start(
            *ASK, *config(calc={"type": kind, "url": f"{url}/mcp", "headers": {"x-a": "1"}}), env=PATIENT
        )
        await engine.initialize()
        await engine.wait_connected("calc")
        engine.user("go")
        await engine.result()
        await engine.finish()


@scenario("http-server")
async def server_over_http(engine: EngineDriver) -> None:
    await http_turn(engine, "http")


@scenario("sse-server")
async def server_over_sse(engine: EngineDriver) -> None:
    await http_turn(engine, "sse")


@check("mcp.http", on="http-server", basis="control.md §10", expects="a tool of a server over HTTP runs")
def http_tool(log: ScenarioLog) -> None:
    need("sum=42" in str(log.tool_result("toolu_add").get("content")), log.tool_result("toolu_add"))


@check("mcp.sse", on="sse-server", basis="control.md §10", expects="a tool of a server over an event stream runs")
def sse_tool(log: ScenarioLog) -> None:
    need("sum=42" in str(log.tool_result("toolu_add").get("content")), log.tool_result("toolu_add"))
