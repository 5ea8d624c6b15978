"""A session of a gateway as if it were an engine on a pipe: `python -m parley.conformance.gateway_bridge URL FLAGS...`.

It creates a session with the flags and the model of its own environment (ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY),
passes lines between its pipes and the session's WebSocket, and deletes the session at the end. The token is in
PARLEY_TOKEN. It must be an administrator's, because only they may give a session arbitrary flags.

A gateway has no end of input: after it, the bridge waits for the result of the last prompt, and exits as an engine.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import httpx2
import msgspec
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from parley.protocol.peek import peek

TOKEN = "PARLEY_TOKEN"
DROPPED = {"--print": 0, "--verbose": 0, "--output-format": 1, "--input-format": 1, "--permission-prompt-tool": 1}
"""Flags of a pipe, and how many values they have: a gateway always speaks stream-json and always asks."""
MODEL_VARIABLES = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")
TIMEOUT_SECONDS = 30
SETTLE_SECONDS = 0.3
"""How long lines may follow the last result."""
MAX_BYTES = 64 << 20


def session_flags(flags: Sequence[str]) -> list[str]:
    """The flags for a session, with the model of our environment in its settings."""
    kept, settings, skip = [], {}, 0
    words = list(flags)
    while words:
        word = words.pop(0)
        if skip:
            skip -= 1
        elif word in DROPPED:
            skip = DROPPED[word]
        elif word == "--settings":
            settings = json.loads(words.pop(0))
        else:
            kept.append(word)
    variables = {name: os.environ[name] for name in MODEL_VARIABLES if name in os.environ}
    settings["env"] = {**settings.get("env", {}), **variables}
    return [*kept, "--settings", json.dumps(settings)]


def call(method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Raises SystemExit with the gateway's reason."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ.get(TOKEN, '')}"}
    try:
        response = httpx2.request(method, url, json=body, headers=headers, timeout=TIMEOUT_SECONDS)
    except httpx2.HTTPError as exc:
        raise SystemExit(f"{method} {url}: {exc}") from None
    if response.status_code >= 300:
        raise SystemExit(f"{method} {url}: {response.status_code} {response.text[:400]}")
    found = response.json() if response.content else {}
    return found if isinstance(found, dict) else {}


class Bridge:
    """Passes lines in both directions."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._is_error = False
        self._idle = threading.Event()
        self._idle.set()

    def send_lines(self) -> None:
        for line in sys.stdin.buffer:
            with suppress(msgspec.DecodeError):  # what is wrong with a line is for the gateway to say
                if peek(line).type == "user":
                    self._idle.clear()
            self._socket.send(line.decode(errors="replace"))

    def receive_lines(self) -> None:
        try:
            for frame in self._socket:
                text = frame if isinstance(frame, str) else frame.decode()
                for line in text.splitlines():
                    sys.stdout.write(line + "\n")
                    sys.stdout.flush()
                    self._note(line)
        except ConnectionClosed:
            pass
        self._idle.set()

    def _note(self, line: str) -> None:
        with suppress(msgspec.DecodeError):  # the client that reads our output finds it, too
            if peek(line.encode()).type == "result":
                self._is_error = json.loads(line).get("is_error") is True
                self._idle.set()

    def run(self) -> int:
        threading.Thread(target=self.receive_lines, daemon=True).start()
        self.send_lines()
        self._idle.wait()
        time.sleep(SETTLE_SECONDS)
        return int(self._is_error)


def main(argv: Sequence[str]) -> int:
    url, *flags = argv
    base = url.rstrip("/")
    made = call("POST", f"{base}/sessions", {"cwd": os.getcwd(), "options": {"args": session_flags(flags)}})
    headers = {"Authorization": f"Bearer {os.environ.get(TOKEN, '')}"}
    try:
        with connect(made["ws_url"], additional_headers=headers, max_size=MAX_BYTES) as socket:
            return Bridge(socket).run()
    finally:
        call("DELETE", f"{base}/sessions/{made['session_id']}")


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
