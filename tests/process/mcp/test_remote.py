"""Misbehaving remote servers: one that forgets sessions, one that does not close."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from parley.mcp.base import McpTimeouts, ServerSpec, ServerTransport
from parley.mcp.remote import Http, ResponseTooLarge
from parley.mcp.server_connection import McpServer
from parley.protocol.base import Json
from tests.helpers.http_server import loopback, whole

FACTS = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "far"}}
SECONDS = 90


class Far(http.server.ThreadingHTTPServer):
    """A minimal streamable HTTP server without a GET stream. Its sessions are numbered."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.session = 0
        self.lets_go = threading.Event()
        """Set when the end of a session may be answered."""
        self.heard: list[str] = []


class Handler(http.server.BaseHTTPRequestHandler):
    server: Far
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.heard.append(message["method"])
        if message["method"] == "initialize":
            self.server.session += 1
            self.reply(message, result=FACTS, session=str(self.server.session))
        elif self.headers.get("mcp-session-id") != str(self.server.session):
            self.say(404)
        elif message["method"] == "tools/call":
            self.reply(message, error={"code": -32602, "message": "there is no such tool"})
        elif "id" in message:
            self.reply(message, result={"tools": []})
        else:
            self.say(202)

    def do_GET(self) -> None:
        self.say(404)  # some servers send this instead of 405

    def do_DELETE(self) -> None:
        self.server.lets_go.wait(SECONDS)
        with contextlib.suppress(OSError):
            self.say(204)

    def reply(self, message: Json, session: str = "", **content: Any) -> None:
        self.say(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **content}).encode(), session)

    def say(self, status: int, body: bytes = b"", session: str = "") -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if session:
            self.send_header("mcp-session-id", session)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


class Ears:
    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.news = asyncio.Event()

    def on_change(self, server: McpServer) -> None:
        self.heard.append((server.status, server.reason))
        self.news.set()

    async def on_request(self, server: McpServer, method: str, params: Json) -> Json:
        return {}

    def on_notification(self, server: McpServer, method: str, params: Json) -> None:
        pass


@contextlib.contextmanager
def far_away() -> Iterator[Far]:
    with Far() as far:
        threading.Thread(target=far.serve_forever, daemon=True).start()
        try:
            yield far
        finally:
            far.lets_go.set()
            far.shutdown()


def client_of(far: Far, ears: Ears, *, proxy: str | None = None) -> McpServer:
    url = f"http://127.0.0.1:{far.server_port}/mcp" if proxy is None else "http://far.invalid/mcp"
    spec = ServerSpec(name="far", kind="http", source="user", url=url)

    async def wire() -> ServerTransport:
        return Http(spec, proxy)

    return McpServer(spec, wire, ears, McpTimeouts(retry_delays_seconds=(0.01, 0.01)), {})


async def failure(server: McpServer) -> str:
    try:
        await server.call("x", {}, meta={}, seconds=SECONDS)
    except Exception as exc:
        return str(exc)
    raise AssertionError("it went well")


async def test_a_server_that_forgot_the_session_is_greeted_again() -> None:
    async def scenario(far: Far) -> list[tuple[str, str]]:
        ears = Ears()
        server = client_of(far, ears)
        async with asyncio.timeout(SECONDS):
            await server.reconnect()
            # A response is not a disconnect, whatever else was rejected before.
            assert await failure(server) == "MCP server 'far': there is no such tool (error -32602)"
            far.session += 100
            assert "the server no longer knows the session (HTTP 404)" in await failure(server)
            while ears.heard[-1] != ("connected", "") or len(ears.heard) < 4:
                ears.news.clear()
                await ears.news.wait()
            assert await failure(server) == "MCP server 'far': there is no such tool (error -32602)"
            far.lets_go.set()
            await server.close()
        return ears.heard

    with far_away() as far:
        assert await scenario(far) == [
            ("pending", ""),
            ("connected", ""),
            ("pending", "the server no longer knows the session (HTTP 404); reconnecting"),
            ("connected", ""),
        ]


async def test_a_server_that_does_not_let_go_is_left() -> None:
    async def scenario(far: Far) -> None:
        server = client_of(far, Ears())
        async with asyncio.timeout(SECONDS - 5):
            await server.reconnect()
            await server.close()

    with far_away() as far:
        await scenario(far)


async def test_a_server_behind_a_proxy_is_reached_and_a_proxy_that_is_invalid_is_reported_without_its_password() -> (
    None
):
    async def status(far: Far, proxy: str) -> tuple[str, str]:
        far.lets_go.set()
        server = client_of(far, Ears(), proxy=proxy)
        async with asyncio.timeout(SECONDS):
            await server.reconnect()
            found = server.status, server.reason
            await server.close()
        return found

    with far_away() as far:
        assert await status(far, f"http://127.0.0.1:{far.server_port}") == ("connected", "")
        bad = await status(far, "gopher://me:hush@far:1")
    assert bad == ("failed", "the proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY is invalid")


async def test_a_response_is_measured_after_decompression() -> None:
    body = gzip.compress(b"x" * (40 << 20))
    async with (
        loopback(whole(200, body, {"content-encoding": "gzip"})) as server,
        Http(ServerSpec(name="far", kind="http", source="user", url=server.url)).client() as client,
    ):
        with pytest.raises(ResponseTooLarge):
            await client.get(server.url)
