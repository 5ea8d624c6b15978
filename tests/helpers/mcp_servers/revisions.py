"""A server of any revisions of MCP, without a package: `revisions.py stdio|http REVISIONS MANNER`.

    REVISIONS    those that it speaks: `2025-11-25`, or several with commas
    MANNER       what it does with unknown requests before the handshake: `error`, `silence`, `exit`, or an HTTP status

It is strict where the newest revision is: a request that lacks its `_meta` or its headers is refused. Over HTTP it
writes its port to stdout, has no GET stream, and ends with its stdin. `Server` can also be a server in a client.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NEW = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
NAMES = {"tools/call": "name", "resources/read": "uri", "tasks/get": "taskId", "tasks/update": "taskId"}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
QUESTION = {"method": "elicitation/create", "params": {"mode": "form", "message": "Who?", "requestedSchema": FORM}}
Json = dict[str, Any]


class Refused(Exception):
    def __init__(self, code: int, text: str, data: Any = None) -> None:
        super().__init__(text)
        self.error = {"code": code, "message": text, **({} if data is None else {"data": data})}


class Ignored(Exception):
    """The request is not answered in JSON-RPC."""


class Server:
    def __init__(self, revisions: tuple[str, ...], manner: str = "error") -> None:
        self.revisions = revisions
        self.manner = manner
        self.spoken = ""
        self.tools = ["revision", "ask", "job", "dropped_job", "grow", "reads"]
        self.drops = False
        """Whether the next poll of a task is cut off (over HTTP)."""
        self.reads = 0
        self.polls = 0
        self.cancelled = False
        self.name = ""
        self.listeners: list[tuple[Any, Callable[[Json], None]]] = []

    async def handle(self, message: Json) -> Json:
        return self.answer(message, None, lambda line: None) or {"jsonrpc": "2.0", "result": {}}

    async def close(self) -> None:
        pass

    def answer(self, message: Json, headers: Any, push: Callable[[Json], None]) -> Json | None:
        """The response; None to a notification, and to a request that stays open. Raises Ignored."""
        if "id" not in message:
            return None
        base: Json = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            result = self.result(message, headers, push)
        except Refused as exc:
            return {**base, "error": exc.error}
        return None if result is None else {**base, "result": result}

    def result(self, message: Json, headers: Any, push: Callable[[Json], None]) -> Json | None:
        method, params = message["method"], message.get("params") or {}
        meta = params.get("_meta") or {}
        version, old = meta.get(PREFIX + "protocolVersion"), [one for one in self.revisions if one < NEW]
        if method == "initialize":
            if not old:
                supported = {"supported": [*self.revisions], "requested": ""}
                raise Refused(-32022, "Unsupported protocol version", supported)
            self.spoken = params["protocolVersion"] if params["protocolVersion"] in old else old[-1]
            return {"protocolVersion": self.spoken, "capabilities": {"tools": {}}, "serverInfo": {"name": "far"}}
        if version is None and self.spoken:
            return self.old_result(method, params)
        if old and NEW not in self.revisions:
            if self.manner == "error":
                raise Refused(-32601, f"Method not found: {method}")
            raise Ignored
        if version not in self.revisions:
            raise Refused(
                -32022, "Unsupported protocol version", {"supported": [*self.revisions], "requested": version}
            )
        if not {PREFIX + "clientInfo", PREFIX + "clientCapabilities"} <= meta.keys():
            raise Refused(-32602, "a request lacks its _meta")
        wanted = {"mcp-protocol-version": NEW, "mcp-method": method}
        if method in NAMES:
            wanted["mcp-name"] = params[NAMES[method]]
        if headers is not None and (
            differs := {key: headers.get(key) for key in wanted if headers.get(key) != wanted[key]}
        ):
            raise Refused(-32020, f"headers do not match the body: {differs}")
        self.spoken = NEW
        result = self.new_result(message["id"], method, params, push)
        return result if result is None else {"resultType": "complete", **result}

    def old_result(self, method: str, params: Json) -> Json:
        if method == "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]}
        if method == "tools/call":
            return {"content": [{"type": "text", "text": self.spoken}]}
        raise Refused(-32601, f"Method not found: {method}")

    def new_result(self, id: Any, method: str, params: Json, push: Callable[[Json], None]) -> Json | None:
        match method:
            case "server/discover":
                changes = {"listChanged": True}
                offered = {"tools": changes, "resources": changes, "extensions": {PREFIX + "tasks": {}}}
                named = {PREFIX + "serverInfo": {"name": "far", "version": "1"}}
                return {"supportedVersions": [*self.revisions], "capabilities": offered, "ttlMs": 0, "_meta": named}
            case "tools/list":
                return {**self.old_result(method, params), "ttlMs": 0, "cacheScope": "private"}
            case "tools/call":
                return self.call(params, params["name"])
            case "resources/list":
                return {"resources": [{"uri": "ui://one", "name": "one"}], "ttlMs": 60_000, "cacheScope": "private"}
            case "resources/read":
                self.reads += 1
                return {"contents": [{"uri": "ui://one", "text": str(self.reads)}], "ttlMs": 60_000}
            case "subscriptions/listen":
                self.listeners.append((id, push))
                self.announce("subscriptions/acknowledged", {"notifications": params["notifications"]})
                return None
            case "tasks/get":
                return self.poll(params["taskId"])
            case "tasks/update":
                self.name = params["inputResponses"]["q"]["content"]["name"]
                return {}
            case "tasks/cancel":
                self.cancelled = True
                return {}
        raise Refused(-32601, f"Method not found: {method}")

    def call(self, params: Json, name: str) -> Json:
        answers: Json = params.get("inputResponses") or {}
        if name == "ask" and not answers:
            return {"resultType": "input_required", "inputRequests": {"q": QUESTION}, "requestState": "where we were"}
        if name in ("job", "dropped_job"):
            self.polls, self.drops = 0, name == "dropped_job"
            stamps = {"createdAt": "2026-11-18T00:00:00Z", "lastUpdatedAt": "2026-11-18T00:00:00Z", "ttlMs": None}
            return {"resultType": "task", "taskId": "t1", "status": "working", "pollIntervalMs": 10, **stamps}
        text = self.spoken
        if name == "ask":
            text = f"{answers['q']['content']['name']}, {params.get('requestState')}"
        elif name == "reads":
            text = str(self.reads)
        elif name == "grow":
            self.tools.append("grown")
            self.announce("tools/list_changed", {})
        return {"content": [{"type": "text", "text": text}]}

    def poll(self, id: str) -> Json:
        self.polls += 1
        if self.name:
            result = {"content": [{"type": "text", "text": f"done by {self.name}"}]}
            return {"taskId": id, "status": "completed", "result": result}
        if self.polls == 1:
            return {"taskId": id, "status": "working", "pollIntervalMs": 10}
        return {"taskId": id, "status": "input_required", "pollIntervalMs": 10, "inputRequests": {"q": QUESTION}}

    def announce(self, what: str, params: Json) -> None:
        for id, push in self.listeners:
            meta = {PREFIX + "subscriptionId": id}
            push({"jsonrpc": "2.0", "method": f"notifications/{what}", "params": {**params, "_meta": meta}})


def serve_stdio(server: Server) -> None:
    def push(message: Json) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    for line in sys.stdin:
        try:
            response = server.answer(json.loads(line), None, push)
        except Ignored:
            if server.manner == "exit":
                os._exit(1)
            continue
        if response is not None:
            push(response)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    revisions: Server

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        events: queue.Queue[Json] = queue.Queue()
        if message.get("method") == "tasks/get" and self.revisions.drops:
            self.revisions.drops = False
            self.close_connection = True
            return
        try:
            response = self.revisions.answer(message, self.headers, events.put)
        except Ignored:
            self.ignore()
            return
        if message.get("method") == "subscriptions/listen":
            self.stream(events)
        else:
            error = (response or {}).get("error", {}).get("code")
            self.reply(202 if response is None else {None: 200, -32601: 404}.get(error, 400), response)

    def do_GET(self) -> None:
        self.reply(405)

    def ignore(self) -> None:
        if self.revisions.manner == "silence":
            threading.Event().wait()
        elif self.revisions.manner == "exit":
            self.close_connection = True
        else:
            self.reply(int(self.revisions.manner))

    def stream(self, events: queue.Queue[Json]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        while True:
            self.wfile.write(b"data: " + json.dumps(events.get()).encode() + b"\n\n")
            self.wfile.flush()

    def reply(self, status: int, body: Json | None = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: object) -> None:
        pass


def serve_http(server: Server) -> None:
    Handler.revisions = server
    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    sys.stdout.write(f"{listener.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    transport, revisions, manner = sys.argv[1:]
    {"stdio": serve_stdio, "http": serve_http}[transport](Server(tuple(revisions.split(",")), manner))
