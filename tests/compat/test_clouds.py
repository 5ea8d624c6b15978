"""Bedrock and Vertex, on the real executable: requests signed by the `anthropic` package, answered on loopback."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.compat.harness import installed
from tests.compat.install import LIBRARIES
from tests.helpers.environment import base_environment

EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude",
        "content": [], "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
]  # fmt: skip


class Cloud(BaseHTTPRequestHandler):
    """Both clouds at once, and the place where Google gives out tokens."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/token":
            self._answer("application/json", b'{"access_token": "a-token", "expires_in": 3600, "token_type": "Bearer"}')
            return
        self.server.heard.append((self.path, dict(self.headers), json.loads(body)))  # type: ignore[attr-defined]
        if "invoke-with-response-stream" in self.path:
            self._answer("application/vnd.amazon.eventstream", b"".join(map(frame, EVENTS)))
        else:
            lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in EVENTS)
            self._answer("text/event-stream", "".join(lines).encode())

    def _answer(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words: object) -> None:
        pass


def frame(event: dict[str, Any]) -> bytes:
    """An event in Amazon's framing: lengths, checksums, headers, payload."""
    payload = json.dumps({"bytes": base64.b64encode(json.dumps(event).encode()).decode()}).encode()
    named = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + len(value).to_bytes(2, "big") + value.encode()
        for name, value in named.items()
    )
    prelude = (16 + len(headers) + len(payload)).to_bytes(4, "big") + len(headers).to_bytes(4, "big")
    start = prelude + zlib.crc32(prelude).to_bytes(4, "big") + headers + payload
    return start + zlib.crc32(start).to_bytes(4, "big")


@contextmanager
def serving() -> Iterator[tuple[str, list[Any]]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Cloud)
    heard: list[Any] = []
    server.heard = heard  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", heard
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


def parley(folder: Path, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The engine, with the package within its reach."""
    package = next((installed(LIBRARIES).place / "lib").glob("python*/site-packages"))
    environment = {"HOME": str(folder), **base_environment(), "PYTHONPATH": str(package), **variables}
    return run([sys.executable, "-m", "parley", "-p", "--output-format", "json", *argv, "Hi"], folder, environment)


def run(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


def test_a_request_to_bedrock_is_signed_and_its_frames_are_understood(tmp_path: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_REGION": "us-east-1"}
    model = "us.anthropic.claude-sonnet-4-5-v1:0"
    with serving() as (url, heard):
        cloud = {"CLAUDE_CODE_USE_BEDROCK": "1", "ANTHROPIC_BEDROCK_BASE_URL": url}
        done = parley(tmp_path, "--model", model, "--betas=a-1", **cloud, **keys)

    result = json.loads(done.stdout)
    assert (result["result"], result["usage"]["output_tokens"], done.returncode) == ("Hello.", 2, 0)
    [(path, headers, body)] = heard
    assert path == f"/model/{model}/invoke-with-response-stream"
    assert headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert "/us-east-1/bedrock/aws4_request" in headers["Authorization"]
    assert body["anthropic_beta"] == ["a-1", "interleaved-thinking-2025-05-14"]
    assert result["total_cost_usd"] > 0
    assert "metadata" not in body
    assert "hush" not in done.stdout + done.stderr + json.dumps([headers, body])


def service_account(folder: Path, url: str) -> Path:
    make = ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]
    account = {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "1",
        "private_key": subprocess.run(make, capture_output=True, text=True, check=True).stdout,
        "client_email": "me@p.test",
        "client_id": "1",
        "token_uri": f"{url}/token",
    }
    path = folder / "account.json"
    path.write_text(json.dumps(account))
    return path


def test_a_request_to_vertex_carries_the_token_of_a_service_account(tmp_path: Path) -> None:
    with serving() as (url, heard):
        cloud = {
            "CLAUDE_CODE_USE_VERTEX": "1",
            "CLOUD_ML_REGION": "europe-west1",
            "ANTHROPIC_VERTEX_PROJECT_ID": "p",
            "ANTHROPIC_VERTEX_BASE_URL": url,
            "GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, url)),
        }
        done = parley(tmp_path, "--model", "claude-sonnet-4-5@20250929", **cloud)

    result = json.loads(done.stdout)
    assert (result["result"], done.returncode) == ("Hello.", 0)
    [(path, headers, body)] = heard
    where = "/projects/p/locations/europe-west1/publishers/anthropic/models"
    assert path == f"{where}/claude-sonnet-4-5@20250929:streamRawPredict"
    assert headers["Authorization"] == "Bearer a-token"
    assert "model" not in body


def test_a_cloud_without_a_region_is_one_sentence_in_the_result(tmp_path: Path) -> None:
    done = parley(tmp_path, CLAUDE_CODE_USE_VERTEX="1")

    result = json.loads(done.stdout)
    assert (result["is_error"], done.returncode) == (True, 1)
    assert "region" in result["result"]


WITHOUT = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "anthropic" else found(name, *more)
from parley.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_cloud_without_its_extra_is_one_sentence(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), **base_environment(), "CLAUDE_CODE_USE_BEDROCK": "1"}
    done = run([sys.executable, "-c", WITHOUT, "-p", "Hi"], tmp_path, environment)

    assert (done.returncode, done.stdout) == (1, "")
    command = "pip install 'parley-agent[bedrock]' (in a checkout: pip install '.[bedrock]')"
    extra = f"requires an extra that is not installed: {command}"
    assert done.stderr == f"Error: CLAUDE_CODE_USE_BEDROCK {extra}\n"
