"""An MCP server on loopback that requires a login: authorization code grant, PKCE, dynamic registration.

with login_server() as server:
    server.url                    # of the MCP endpoint
    server.approve(address)       # what a browser does: returns the address that it is redirected to
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

TOOL = {"name": "secret", "description": "Tells the secret.", "inputSchema": {"type": "object", "properties": {}}}


class LoginServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server_address[1]}"
        self.url = f"{self.origin}/mcp"
        self.clients: dict[str, Any] = {}
        self.codes: dict[str, Any] = {}
        self.tokens: set[str] = set()
        self.refresh_tokens: set[str] = set()
        self.open_methods: set[str] = set()
        """Requests that need no login."""

    def approve(self, address: str) -> str:
        """Open the authorization page as a browser that does not follow redirects."""

        class KeepRedirect(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_: Any) -> None:
                return None

        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), KeepRedirect)
        try:
            opener.open(address)
        except urllib.error.HTTPError as redirect:
            return str(redirect.headers["Location"])
        raise AssertionError("the authorization page did not redirect")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LoginServer

    def log_message(self, *_: Any) -> None:
        """Nothing on stderr."""

    def reply(self, status: int, body: Any = None, **headers: str) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        parts, origin = urlsplit(self.path), self.server.origin
        if parts.path.startswith("/.well-known/oauth-protected-resource"):
            self.reply(200, {"resource": self.server.url, "authorization_servers": [origin]})
        elif parts.path.startswith("/.well-known/oauth-authorization-server"):
            self.reply(
                200,
                {
                    "issuer": origin,
                    "authorization_endpoint": f"{origin}/authorize",
                    "token_endpoint": f"{origin}/oauth/token",
                    "registration_endpoint": f"{origin}/register",
                    "response_types_supported": ["code"],
                    "grant_types_supported": ["authorization_code", "refresh_token"],
                    "code_challenge_methods_supported": ["S256"],
                    "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
                },
            )
        elif parts.path == "/authorize":
            asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
            known = self.server.clients.get(asked["client_id"])
            if known is None or asked["redirect_uri"] not in known["redirect_uris"]:
                self.reply(400, {"error": "invalid_client"})
                return
            code = secrets.token_hex(8)
            self.server.codes[code] = asked
            self.reply(302, Location=f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}")
        else:
            self.reply(405 if parts.path == "/mcp" else 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match urlsplit(self.path).path:
            case "/register":
                known = {**json.loads(body), "client_id": secrets.token_hex(4)}
                self.server.clients[known["client_id"]] = known
                self.reply(201, known)
            case "/oauth/token":
                self.exchange({key: values[0] for key, values in parse_qs(body.decode()).items()})
            case "/mcp":
                self.serve(json.loads(body))
            case _:
                self.reply(404)

    def do_DELETE(self) -> None:
        self.reply(200)

    def exchange(self, given: dict[str, str]) -> None:
        asked = self.server.codes.pop(given.get("code", ""), None)
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        is_proven = asked is not None and asked["code_challenge"] == challenge
        if not is_proven and given.get("refresh_token") not in self.server.refresh_tokens:
            self.reply(400, {"error": "invalid_grant"})
            return
        token, refresh = f"token-{secrets.token_hex(8)}", f"refresh-{secrets.token_hex(8)}"
        self.server.tokens.add(token)
        self.server.refresh_tokens.add(refresh)
        grant = {"access_token": token, "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh}
        self.reply(200, grant)

    def serve(self, message: Any) -> None:
        is_known = self.headers.get("Authorization", "").removeprefix("Bearer ") in self.server.tokens
        if not is_known and message["method"] not in self.server.open_methods:
            metadata = f"{self.server.origin}/.well-known/oauth-protected-resource/mcp"
            self.reply(401, WWW_Authenticate=f'Bearer resource_metadata="{metadata}"')
            return
        if "id" not in message:
            self.reply(202)
            return
        answers: dict[str, Any] = {
            "initialize": lambda: {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "login", "version": "1"},
            },
            "tools/list": lambda: {"tools": [TOOL]},
            "tools/call": lambda: {"content": [{"type": "text", "text": "42"}]},
        }
        self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": answers[message["method"]]()})


@contextmanager
def login_server() -> Iterator[LoginServer]:
    with LoginServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
