"""The engine that a client under test starts: `python -m parley.conformance.client.fake_engine ARGS...`.

It plays the steps of a scenario (CONFORM_STEPS, a file) and writes both directions down (CONFORM_LOG, a file). It is a
program of its own: the standard library is all that it uses.

A step is a JSON list:

    ["send", {...}]        write a line; {id} in it becomes a new id, {session} the session's
    ["raw", "text"]        write bytes as they are
    ["prompt"]             wait for a user line, answering control requests
    ["reply", "id"]        wait for the control_response with this id, answering control requests
    ["pause", seconds]     let time pass
    ["exit", code]         end at once
    ["eof"]                wait for the end of input
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from typing import Any
from uuid import uuid4

SESSION = "11111111-2222-4333-8444-555555555555"
WAIT_SECONDS = 15.0
VERSION = "2.1.327 (Parley conformance)\n"


class ClientTestEngine:
    """Plays one scenario to one client."""

    def __init__(self, log_path: str) -> None:
        self._log = open(log_path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - open until the end
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            self._lines.put(line)
        self._lines.put(None)

    def note(self, kind: str, value: Any) -> None:
        self._log.write(json.dumps({"kind": kind, "value": value}) + "\n")

    def write(self, data: bytes) -> None:
        self.note("sent", data.decode(errors="replace")[:400])
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except OSError:
            self.note("closed", "stdout")

    def send(self, message: Any) -> None:
        text = json.dumps(message).replace("{session}", SESSION)
        while "{id}" in text:
            text = text.replace("{id}", str(uuid4()), 1)
        self.write(text.encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """The next line of the client; None at its end. Raises queue.Empty at the deadline."""
        data = self._lines.get(timeout=WAIT_SECONDS)
        if data is None:
            self.note("eof", None)
            return None
        text = data.decode(errors="replace")
        try:
            message = json.loads(text)
        except ValueError:
            message = None
        self.note("received", message if message is not None else {"_raw": text[:400]})
        if isinstance(message, dict) and message.get("type") == "control_request":
            body: dict[str, Any] = {"subtype": "success", "request_id": message.get("request_id")}
            self.send({"type": "control_response", "response": {**body, "response": {"commands": []}}})
        return message if isinstance(message, dict) else {}

    def wait(self, wanted: str, request_id: str = "") -> None:
        """Read until a line of a type has come, or the end."""
        while True:
            message = self.receive()
            if message is None:
                return
            if message.get("type") == wanted:
                response = message.get("response")
                if not request_id or (isinstance(response, dict) and response.get("request_id") == request_id):
                    return

    def play(self, steps: list[list[Any]]) -> int:
        for kind, *values in steps:
            try:
                if kind == "send":
                    self.send(values[0])
                elif kind == "raw":
                    self.write(values[0].encode())
                elif kind == "prompt":
                    self.wait("user")
                elif kind == "reply":
                    self.wait("control_response", values[0])
                elif kind == "pause":
                    time.sleep(values[0])
                elif kind == "exit":
                    return int(values[0])
                elif kind == "eof":
                    while self.receive() is not None:
                        pass
            except queue.Empty:
                self.note("missed", kind)
                return 1
        return 0


def main() -> int:
    if sys.argv[1:2] in (["-v"], ["--version"]):
        sys.stdout.write(VERSION)
        return 0
    engine = ClientTestEngine(os.environ["CONFORM_LOG"])
    engine.note("argv", sys.argv[1:])
    with open(os.environ["CONFORM_STEPS"], encoding="utf-8") as file:
        return engine.play(json.load(file))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
