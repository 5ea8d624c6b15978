"""MCP servers: hosted by the client, started by the engine, over HTTP, and broken ones."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from parley.conformance.conditions import answered, asks_for, asks_with, line_has, server_is, tool_says
from parley.conformance.driver import ASK, EngineDriver, say, use
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import ScenarioLog, need
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


NEW_SERVER = """
import json, os, sys, time
META = "io.modelcontextprotocol/"
wait = sys.argv[1] if len(sys.argv) > 1 else "0"
if wait.startswith("/"):
    while not os.path.exists(wait):
        time.sleep(0.05)
else:
    time.sleep(float(wait))
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    base = {"jsonrpc": "2.0", "id": message.get("id")}
    if "id" not in message:
        continue
    meta = params.get("_meta") or {}
    if meta.get(META + "protocolVersion") != "2026-07-28" or META + "clientCapabilities" not in meta:
        error = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": ["2026-07-28"]}}
        print(json.dumps({**base, "error": error}), flush=True)
        continue
    if method == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0}
    elif method == "tools/list":
        result = {"tools": [TOOL], "ttlMs": 0, "cacheScope": "private"}
    elif method == "tools/call" and "inputResponses" not in params and params["arguments"].get("ask"):
        question = {"mode": "form", "message": "How many?", "requestedSchema": {"type": "object", "properties": {}}}
        asked = {"q": {"method": "elicitation/create", "params": question}}
        result = {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}
    elif method == "tools/call":
        given, answers = params["arguments"], params.get("inputResponses") or {}
        text = "sum=" + str(given["a"] + given["b"]) + " state=" + str(params.get("requestState"))
        result = {"content": [{"type": "text", "text": text + " " + str(answers.get("q", {}).get("action"))}]}
    else:
        result = {}
    print(json.dumps({**base, "result": {"resultType": "complete", **result}}), flush=True)
"""
"""Speaks only MCP 2026-07-28, after a time in seconds or as soon as a file exists."""


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


def servers_in_init(log: ScenarioLog) -> Json:
    """The state of each server, as `system/init` tells it. Raises Mismatch."""
    return {server.get("name"): server.get("status") for server in log.first("system/init").get("mcp_servers") or []}


def bridge(log: ScenarioLog) -> None:
    asked = log.asked("mcp_message")
    methods = [str((request.get("message") or {}).get("method")) for request in asked]
    wanted = ["initialize", "notifications/initialized", "tools/list", "tools/call"]
    need([name for name in methods if name in wanted] == wanted, f"{methods}; {log.summary()}")
    need(all(request.get("server_name") == "calc" for request in asked), asked)


@scenario(
    "hosted-server",
    check("ask.mcp_message mcp.sdk", "trace 067; control.md §10",
          "the handshake, tools/list and tools/call travel in mcp_message: server_name and a JSON-RPC message", bridge),
    check("tool.mcp__server__tool flag.mcp-config init.mcp_servers", "trace 067",
          "the tool is called mcp__calc__add, is in init, and its text is the result; the server is connected",
          tool_says("toolu_add", "sum=42"), asks_for(), server_is("calc", "connected"),
          lambda log: need(list(servers_in_init(log)) == ["calc"], servers_in_init(log))),
)  # fmt: skip
async def hosted_server(engine: EngineDriver) -> None:
    engine.on("mcp_message", hosted)
    engine.on("can_use_tool", allow)
    engine.model.play(ADD, say("ok"))
    await engine.begin("go", *ASK, *config(calc={"type": "sdk", "name": "calc"}), "--allowedTools", "mcp__calc__add")
    await engine.result()
    await engine.ask("mcp_status")
    await engine.finish()


@scenario(
    "stdio-server",
    check("mcp.stdio", "trace 069",
          "the tool is asked for, runs, and its text is the result",
          asks_with("can_use_tool", "tool_name", ["mcp__calc__add"]), tool_says("toolu_add", "sum=42")),
    check("mcp.broken mcp.stdio request.mcp_status", "trace 069; users.md U-17.1",
          "a server that cannot start is `failed`, and does not stop the session",
          server_is("broken", "failed"), server_is("calc", "connected")),
    check("request.mcp_toggle", "trace 069",
          "off: the server is `disabled`; on: success",
          answered("off", "on"), server_is("calc", "disabled", "status off")),
    check("mcp.reconnect request.mcp_reconnect", "trace 069",
          "success; connected again", answered("mcp_reconnect"), server_is("calc", "connected", "status on")),
)  # fmt: skip
async def stdio_server(engine: EngineDriver) -> None:
    """A server beside a broken one; it is switched off and on and connected again."""
    engine.put({"server.py": STDIO_SERVER.replace("[TOOL]", f"[{ADD_TOOL!r}]")})
    engine.on("can_use_tool", allow)
    engine.model.play(ADD, say("ok"))
    good = {"command": sys.executable, "args": [str(engine.cwd / "server.py")], "env": {"X": "1"}}
    await engine.begin("go", *ASK, *config(calc=good, broken={"command": "/nonexistent/server"}))
    await engine.result()
    await engine.ask("mcp_status")
    await engine.ask("mcp_toggle", "off", serverName="calc", enabled=False)
    await engine.ask("mcp_status", "status off")
    await engine.ask("mcp_toggle", "on", serverName="calc", enabled=True)
    await engine.ask("mcp_reconnect", serverName="calc")
    await engine.ask("mcp_status", "status on")
    await engine.finish()


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
        await engine.ask("mcp_status")
        await engine.finish()


@scenario(
    "http-server",
    check("mcp.http", "control.md §10", "a tool of a server over HTTP runs", tool_says("toolu_add", "sum=42")),
    check("mcp.get-405 mcp.http", "users: 405 on GET means failed",
          "a server that answers GET with 405 is connected: its stream is optional", server_is("calc", "connected")),
)  # fmt: skip
async def server_over_http(engine: EngineDriver) -> None:
    await http_turn(engine, "http")


@scenario(
    "sse-server",
    check("mcp.sse", "control.md §10",
          "a tool of a server over an event stream runs", tool_says("toolu_add", "sum=42")),
)  # fmt: skip
async def server_over_sse(engine: EngineDriver) -> None:
    await http_turn(engine, "sse")


# Servers of another revision, and servers that are slow.


@scenario(
    "new-server",
    check("mcp.revision-2026-07-28 mcp.stdio", "users: protocol 2026-07-28 rejected",
          "a server without a handshake is discovered, and its tool runs", tool_says("toolu_add", "sum=42")),
    check("mcp.input-required ask.elicitation", "MCP 2026-07-28, multi round-trip requests",
          "a result `input_required` is an elicitation; the call is repeated with the answer and the server's state",
          asks_with("elicitation", "message", ["How many?"]), tool_says("toolu_add", "state=s accept")),
)  # fmt: skip
async def new_server(engine: EngineDriver) -> None:
    """A server that speaks only MCP 2026-07-28. Its tool asks the user."""
    engine.put({"new.py": NEW_SERVER.replace("[TOOL]", f"[{ADD_TOOL!r}]")})
    engine.on("can_use_tool", allow)
    engine.on("elicitation", lambda request: {"action": "accept", "content": {}})
    engine.model.play(use("mcp__calc__add", {"a": 2, "b": 40, "ask": True}, "toolu_add"), say("ok"))
    await engine.start(*ASK, *config(calc={"command": sys.executable, "args": [str(engine.cwd / "new.py")]}))
    await engine.initialize()
    await engine.wait_connected("calc")
    engine.user("go")
    await engine.result()
    await engine.finish()


@scenario(
    "late-servers",
    check("mcp.ready-in-time mcp.stdio", "users: tools lost on the first turn",
          "tools of servers that are ready after 0.1 and 3 s can be called in the first turn",
          tool_says("toolu_soon", "sum=42"), tool_says("toolu_later", "sum=42")),
    check("mcp.ready-late mcp.stdio init.mcp_servers", "users: failed before it connects",
          "a server that needs longer is `pending`, not `failed`, and its tools can be called as soon as it is ready",
          lambda log: need(servers_in_init(log).get("last") == "pending", servers_in_init(log)),
          server_is("last", "pending", "status early"), tool_says("toolu_last", "sum=42")),
)  # fmt: skip
async def late_servers(engine: EngineDriver) -> None:
    """Servers that are ready after 0.1 s, after 3 s, and long after the first turn."""
    engine.put({"new.py": NEW_SERVER.replace("[TOOL]", f"[{ADD_TOOL!r}]")})
    engine.on("can_use_tool", allow)
    engine.model.play(
        use("mcp__soon__add", {"a": 2, "b": 40}, "toolu_soon"),
        use("mcp__later__add", {"a": 2, "b": 40}, "toolu_later"),
        say("ok"),
        use("mcp__last__add", {"a": 2, "b": 40}, "toolu_last"),
        say("ok"),
    )
    waits = {"soon": "0.1", "later": "3", "last": str(engine.cwd / "ready")}
    program = str(engine.cwd / "new.py")
    servers = config(**{name: {"command": sys.executable, "args": [program, wait]} for name, wait in waits.items()})
    await engine.begin("go", *ASK, *servers, env=PATIENT)
    await engine.result()
    await engine.ask("mcp_status", "status early")
    engine.put({"ready": ""})
    await engine.wait_connected("last")
    engine.user("again")
    await engine.result()
    await engine.finish()


@scenario(
    "silent-server",
    check("mcp.never-ready mcp.stdio", "users: pending for ever",
          "a server that does not answer within MCP_TIMEOUT is `failed`, and the session continues",
          server_is("silent", "failed"), line_has("result", is_error=False)),
)  # fmt: skip
async def silent_server(engine: EngineDriver) -> None:
    """A server that never answers."""
    engine.put({"silent.py": "import sys\nfor line in sys.stdin: pass\n"})
    engine.model.play(say("ok"))
    silent = {"command": sys.executable, "args": [str(engine.cwd / "silent.py")]}
    await engine.start(*ASK, *config(silent=silent), env={"MCP_TIMEOUT": "2000"})
    await engine.initialize()
    await engine.wait_connected("silent")
    engine.user("go")
    await engine.result()
    await engine.ask("mcp_status")
    await engine.finish()


def always_loaded(log: ScenarioLog) -> None:
    tools = {tool.get("name"): tool for tool in log.main_requests()[0].get("tools") or []}
    need("mcp__calc__add" in tools and not tools["mcp__calc__add"].get("defer_loading"), sorted(map(str, tools)))
    need(tools.get("mcp__other__add", {"defer_loading": True}).get("defer_loading"), tools.get("mcp__other__add"))


@scenario(
    "always-loaded-server",
    check("mcp.always-load mcp.extras", "users: alwaysLoad of a server has no effect",
          "with tool search, the tools of a server with `alwaysLoad` are in the first request, and not deferred",
          always_loaded),
)  # fmt: skip
async def always_loaded_server(engine: EngineDriver) -> None:
    """Two servers with tool search; the tools of one are always loaded."""
    engine.put({"server.py": STDIO_SERVER.replace("[TOOL]", f"[{ADD_TOOL!r}]")})
    engine.model.play(say("ok"))
    server: Json = {"command": sys.executable, "args": [str(engine.cwd / "server.py")]}
    servers = config(calc={**server, "alwaysLoad": True}, other=server)
    await engine.start(*ASK, *servers, env={**PATIENT, "ENABLE_TOOL_SEARCH": "true"})
    await engine.initialize()
    await engine.wait_connected("calc")
    await engine.wait_connected("other")
    engine.user("go")
    await engine.result()
    await engine.finish()
