"""Certificates of a private authority through the executable: for model calls and for an MCP server at a URL."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.environment import base_environment
from tests.helpers.patience import PATIENCE_SECONDS

PARLEY = str(Path(sys.executable).with_name("parley"))
USAGE = {"input_tokens": 1, "output_tokens": 1}
ANSWER = (
    {"type": "message_start", "message": {"id": "m", "role": "assistant", "model": "m", "content": [], "usage": USAGE}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "over TLS"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE},
    {"type": "message_stop"},
)
RESULTS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "far", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]},
}


class Handler(BaseHTTPRequestHandler):
    """A Messages API, and an MCP server at `/mcp`."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/mcp":
            events = "".join(f"data: {json.dumps(event)}\n\n" for event in ANSWER)
            self.answer(200, events.encode(), "text/event-stream")
        elif "id" not in asked:
            self.answer(202, b"", "application/json")
        else:
            result = {"jsonrpc": "2.0", "id": asked["id"], "result": RESULTS.get(asked["method"], {})}
            self.answer(200, json.dumps(result).encode(), "application/json")

    def do_GET(self) -> None:
        self.answer(405, b"", "text/plain")

    def answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    key, certificate = tmp_path / "key.pem", certificates / "authority.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", *curve, *name, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(make, check=True, capture_output=True)
    subprocess.run(["openssl", "rehash", str(certificates)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def told(folder: Path, url: str, *flags: str, **environment: str) -> tuple[list[dict[str, Any]], str]:
    """The lines of a turn, and stderr."""
    servers = {"mcpServers": {"far": {"type": "http", "url": f"{url}/mcp"}}}
    argv = [PARLEY, "-p", "--verbose", "--output-format", "stream-json", "--model", "m"]
    done = subprocess.run(
        [*argv, *flags, "--mcp-config", json.dumps(servers), "--", "hello"],
        cwd=folder,
        env={
            "HOME": str(folder),
            **base_environment(),
            "ANTHROPIC_BASE_URL": url,
            "CLAUDE_CODE_MAX_RETRIES": "0",
            **environment,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def reached(lines: list[dict[str, Any]]) -> tuple[bool, str]:
    """Whether the model answered, and the status of the MCP server."""
    [init] = [line for line in lines if line.get("subtype") == "init"]
    return lines[-1].get("result") == "over TLS", init["mcp_servers"][0]["status"]


@pytest.mark.parametrize("variable", ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR"])
@pytest.mark.parametrize("by_settings", [False, True])
def test_a_private_authority_is_trusted_by_model_calls_and_servers(
    tmp_path: Path, server: str, variable: str, by_settings: bool
) -> None:
    folder = tmp_path / "certificates"
    value = str(folder if variable == "SSL_CERT_DIR" else folder / "authority.pem")
    if by_settings:
        lines, _ = told(tmp_path, server, "--settings", json.dumps({"env": {variable: value}}))
    else:
        lines, _ = told(tmp_path, server, **{variable: value})
    assert reached(lines) == (True, "connected")


def test_an_authority_that_nothing_names_is_not_trusted(tmp_path: Path, server: str) -> None:
    lines, _ = told(tmp_path, server)
    assert reached(lines) == (False, "failed")
    assert "certificate" in lines[-1]["result"]


def test_extra_certificates_that_cannot_be_read_are_reported_and_the_rest_is_trusted(
    tmp_path: Path, server: str
) -> None:
    trusted = str(tmp_path / "certificates" / "authority.pem")
    lines, errors = told(tmp_path, server, SSL_CERT_FILE=trusted, NODE_EXTRA_CA_CERTS="missing.pem")
    assert reached(lines) == (True, "connected")
    assert "the certificates in missing.pem (NODE_EXTRA_CA_CERTS) cannot be read and are not trusted" in errors


def test_certificates_that_cannot_be_read_fail_the_call_by_name(tmp_path: Path, server: str) -> None:
    lines, _ = told(tmp_path, server, SSL_CERT_FILE="missing.pem")
    assert reached(lines) == (False, "failed")
    assert "the certificates in SSL_CERT_FILE or SSL_CERT_DIR cannot be read" in lines[-1]["result"]
