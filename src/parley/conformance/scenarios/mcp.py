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
        await engine.ask("mcp_status")
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


@check(
    "mcp.get-405", "mcp.http", on="http-server", basis="users: 405 on GET means failed",
    expects="a server that answers GET with 405 is connected: its stream is optional",
)  # fmt: skip
def optional_stream(log: ScenarioLog) -> None:
    need(status_of(log, "calc") == "connected", log.answer("mcp_status"))


# Servers of another revision, and servers that are slow.


@scenario("new-server")
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


@check(
    "mcp.revision-2026-07-28", "mcp.stdio", on="new-server", basis="users: protocol 2026-07-28 rejected",
    expects="a server without a handshake is discovered, and its tool runs",
)  # fmt: skip
def new_revision(log: ScenarioLog) -> None:
    need("sum=42" in str(log.tool_result("toolu_add").get("content")), log.tool_result("toolu_add"))


@check(
    "mcp.input-required", "ask.elicitation", on="new-server", basis="MCP 2026-07-28, multi round-trip requests",
    expects="a result `input_required` is an elicitation; the call is repeated with the answer and the server's state",
)  # fmt: skip
def input_required(log: ScenarioLog) -> None:
    need([request.get("message") for request in log.asked("elicitation")] == ["How many?"], log.summary())
    need("state=s accept" in str(log.tool_result("toolu_add").get("content")), log.tool_result("toolu_add"))


@scenario("late-servers")
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
    await engine.start(*ASK, *servers, env=PATIENT)
    await engine.initialize()
    engine.user("go")
    await engine.result()
    await engine.ask("mcp_status", "status early")
    engine.put({"ready": ""})
    await engine.wait_connected("last")
    engine.user("again")
    await engine.result()
    await engine.finish()


@check(
    "mcp.ready-in-time", "mcp.stdio", on="late-servers", basis="users: tools lost on the first turn",
    expects="tools of servers that are ready after 0.1 and 3 s can be called in the first turn",
)  # fmt: skip
def ready_in_time(log: ScenarioLog) -> None:
    for id in ("toolu_soon", "toolu_later"):
        need("sum=42" in str(log.tool_result(id).get("content")), log.tool_result(id))


@check(
    "mcp.ready-late", "mcp.stdio", "init.mcp_servers", on="late-servers", basis="users: failed before it connects",
    expects="a server that needs longer is `pending`, not `failed`, and its tools can be called as soon as it is ready",
)  # fmt: skip
def ready_late(log: ScenarioLog) -> None:
    listed = {server.get("name"): server.get("status") for server in log.first("system/init").get("mcp_servers") or []}
    need(listed.get("last") == "pending", listed)
    need(status_of(log, "last", "status early") == "pending", log.answer("status early"))
    need("sum=42" in str(log.tool_result("toolu_last").get("content")), log.tool_result("toolu_last"))


@scenario("silent-server")
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


@check(
    "mcp.never-ready", "mcp.stdio", on="silent-server", basis="users: pending for ever",
    expects="a server that does not answer within MCP_TIMEOUT is `failed`, and the session continues",
)  # fmt: skip
def never_ready(log: ScenarioLog) -> None:
    need(status_of(log, "silent") == "failed", log.answer("mcp_status"))
    need(log.first("result").get("is_error") is False, log.first("result"))


@scenario("always-loaded-server")
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


@check(
    "mcp.always-load", "mcp.extras", on="always-loaded-server", basis="users: alwaysLoad of a server has no effect",
    expects="with tool search, the tools of a server with `alwaysLoad` are in the first request, and not deferred",
)  # fmt: skip
def always_loaded(log: ScenarioLog) -> None:
    tools = {tool.get("name"): tool for tool in log.main_requests()[0].get("tools") or []}
    need("mcp__calc__add" in tools and not tools["mcp__calc__add"].get("defer_loading"), sorted(map(str, tools)))
    need(tools.get("mcp__other__add", {"defer_loading": True}).get("defer_loading"), tools.get("mcp__other__add"))
