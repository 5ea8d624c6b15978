"""`API_TIMEOUT_MS` and `CLAUDE_STREAM_IDLE_TIMEOUT_MS` through the executable, against servers that hang in every way.

Without the limits a request would last for minutes, and the test would fail by its own timeout.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep

import pytest

from tests.helpers.environment import base_environment
from tests.helpers.patience import PATIENCE_SECONDS

PARLEY = str(Path(sys.executable).with_name("parley"))
LIMIT_MS = "2000"
"""Enough for a busy machine to send the request."""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
REFUSED = b"HTTP/1.1 503 Busy\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n"
PING = b'event: ping\ndata: {"extra": 1, "type": "ping"}\n\n'
UNKNOWN = b'event: keepalive\ndata: {"type": "keepalive"}\n\n'
COMMENT = b": still there\n\n"
START = {"type": "message_start", "message": {"id": "m", "role": "assistant", "model": "m", "content": [], "usage": {}}}
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}
BEGUN = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in (START, BLOCK, DELTA))
CHUNK = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
EMPTY = b'data: {"choices": [{"index": 0, "delta": {}}]}\n\n'
LONG = b"data: " + b"x" * 1000

ANTHROPIC: dict[str, tuple[bytes, bytes]] = {
    "before the head": (b"", b""),
    "half a head": (HEAD[:20], b""),
    "behind the head": (HEAD, b""),
    "pings": (HEAD, PING),
    "unknown events": (HEAD, UNKNOWN),
    "comments": (HEAD, COMMENT),
    "behind a delta": (HEAD + BEGUN, b""),
    "pings behind a delta": (HEAD + BEGUN, PING),
    "an event byte by byte": (HEAD + BEGUN + LONG, b"x"),
    "the body of an error": (REFUSED, b" "),
}
"""What a server sends first, and then repeatedly."""
OPENAI: dict[str, tuple[bytes, bytes]] = {
    "behind the head": (HEAD, b""),
    "comments": (HEAD, COMMENT),
    "empty chunks behind a word": (HEAD + CHUNK, EMPTY),
    "a chunk byte by byte": (HEAD + CHUNK + LONG, b"x"),
}


@contextmanager
def hanging(first: bytes, again: bytes) -> Iterator[tuple[str, list[str]]]:
    """A server that never finishes; its URL and the requests it received."""
    listener, asked = socket.create_server(("127.0.0.1", 0)), []

    def serve(peer: socket.socket) -> None:
        with peer, suppress(OSError):
            asked.append(peer.recv(65536).split(b"\r\n")[0].decode())
            peer.sendall(first)
            while again:
                sleep(0.02)  # the interval of the data, not a wait
                peer.sendall(again)
            while peer.recv(65536):
                pass

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", asked
    finally:
        listener.close()


def told(folder: Path, model: str, **environment: str) -> tuple[dict[str, object], list[str]]:
    done = subprocess.run(
        [PARLEY, "-p", "--verbose", "--output-format", "stream-json", "--model", model, "say something"],
        cwd=folder,
        env={"HOME": str(folder), **base_environment(), "CLAUDE_CODE_MAX_RETRIES": "1", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines[-1], [line["subtype"] for line in lines if line.get("subtype") == "api_retry"]


CASES = [
    *((f"anthropic, {name}", "m", *case) for name, case in ANTHROPIC.items()),
    *((f"openai, {name}", "openai:m", *case) for name, case in OPENAI.items()),
]


@pytest.mark.parametrize("variable", ["API_TIMEOUT_MS", "CLAUDE_STREAM_IDLE_TIMEOUT_MS"])
def test_a_server_that_hangs_is_given_up_in_time(tmp_path: Path, variable: str) -> None:
    """All cases in one test, side by side, because they spend their time waiting."""

    def play(name: str, model: str, first: bytes, again: bytes) -> tuple[object, bool, list[str], int]:
        folder = tmp_path / name
        folder.mkdir()
        with hanging(first, again) as (address, asked):
            base = {"ANTHROPIC_BASE_URL": f"http://{address}", "OPENAI_BASE_URL": f"http://{address}/v1"}
            result, retries = told(folder, model, **base, **{variable: LIMIT_MS})
        return result["terminal_reason"], "did not answer in time" in str(result["result"]), retries, len(asked)

    # Before its head there is no stream that could be idle.
    cases = [case for case in CASES if variable == "API_TIMEOUT_MS" or case[2].startswith((HEAD, REFUSED))]
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip([case[0] for case in cases], pool.map(lambda case: play(*case), cases), strict=True))
    assert found == {name: ("api_error", True, ["api_retry"], 2) for name in found}


def test_a_proxy_that_does_not_connect_is_given_up_in_time(tmp_path: Path) -> None:
    with hanging(b"", b"") as (address, asked):
        result, _ = told(
            tmp_path,
            "m",
            ANTHROPIC_BASE_URL="https://models.example",
            ANTHROPIC_API_KEY="a-key-for-tests",
            HTTPS_PROXY=f"http://{address}",
            API_TIMEOUT_MS=LIMIT_MS,
        )
    assert "did not answer in time" in str(result["result"])
    assert asked == ["CONNECT models.example:443 HTTP/1.1"] * 2
