"""The executable under settings that forbid something, and a Messages API that hears what reaches it.

machine = Machine(tmp_path)
done = machine.run(managed={"deniedModels": ["opus"]}, script=HELLO)
done.lines, done.stderr, done.code
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from parley.protocol.base import Struct
from tests.helpers.environment import base_environment
from tests.helpers.forked import run_parley
from tests.helpers.patience import PATIENCE_SECONDS

Json = dict[str, Any]
PARLEY = str(Path(sys.executable).with_name("parley"))
HELLO = 'at_end = "repeat"\n[[turn]]\ntext = "Hello."\n'


def calls(*wanted: tuple[str, Json]) -> str:
    """A model that makes these calls, one after the other, and ends."""
    parts = []
    for number, (name, input) in enumerate(wanted, 1):
        fields = ", ".join(f"{key} = {json.dumps(value)}" for key, value in input.items())
        parts.append(f"[[turn]]\ntools = [{{ name = '{name}', id = 't{number}', input = {{ {fields} }} }}]\n")
    return "".join([*parts, "[[turn]]\ntext = 'Done.'\n"])


class Run(Struct, frozen=True):
    """What one run of the executable wrote."""

    code: int
    lines: list[Json]
    stderr: str

    def of(self, kind: str, subtype: str | None = None) -> list[Json]:
        return [line for line in self.lines if line["type"] == kind and subtype in (None, line.get("subtype"))]

    @property
    def result(self) -> Json:
        (found,) = self.of("result")
        return found

    @property
    def init(self) -> Json:
        return self.of("system", "init")[0]

    @property
    def notices(self) -> list[str]:
        return [line["content"] for line in self.of("system", "informational")]

    @property
    def outputs(self) -> list[tuple[bool, str]]:
        """Every tool result: whether it is an error, and its text."""
        found = []
        for line in self.of("user"):
            content = line["message"]["content"]
            for block in content if isinstance(content, list) else []:
                if block.get("type") == "tool_result":
                    inner = block["content"]
                    text = inner if isinstance(inner, str) else "".join(part.get("text", "") for part in inner)
                    found.append((block.get("is_error") is True, text))
        return found


class Machine:
    """A folder to work in, a home, and nothing else of the person who runs the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.config = folder / "config"
        for each in (self.work, self.config, folder / "home"):
            each.mkdir()
        self.prefix: list[str] = []
        """A program that runs the engine."""
        self.environment = {
            "HOME": str(folder / "home"),
            "CLAUDE_CONFIG_DIR": str(self.config),
            **base_environment(),
            "IS_SANDBOX": "1",
        }

    def write(self, name: str, content: str | Json) -> Path:
        """A file in the working directory, or in the config directory if its name starts with `config/`."""
        path = (self.folder if name.startswith(("config/", "outside/")) else self.work) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def run(
        self,
        *argv: str,
        managed: Json | None = None,
        settings: Json | None = None,
        user: Json | None = None,
        script: str | None = HELLO,
        send: tuple[Json, ...] = (),
        prompt: str = "Go",
        until: str | None = None,
        **environment: Any,
    ) -> Run:
        """Run one prompt. `send` are lines before it; `script=None` leaves the model to the arguments.

        `until` is the type of the line after which the input ends; without it, it ends at once.
        """
        if user is not None:
            self.write("config/settings.json", user)
        arguments = ["--print", "--verbose", "--output-format", "stream-json", "--input-format", "stream-json"]
        for flag, value in (("--managed-settings", managed), ("--settings", settings)):
            arguments += [flag, json.dumps(value)] if value is not None else []
        if script is not None:
            (self.folder / "script.toml").write_text(script)
            arguments += ["--model", f"scripted:{self.folder / 'script.toml'}"]
        lines = [*send, {"type": "user", "message": {"role": "user", "content": prompt}}]
        data = "".join(json.dumps(line) + "\n" for line in lines)
        if until is None and not self.prefix:
            done = run_parley([*arguments, *argv], cwd=self.work, env={**self.environment, **environment}, stdin=data)
            return Run(done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr)
        with subprocess.Popen(
            [*self.prefix, PARLEY, *arguments, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.work,
            env={**self.environment, **environment},
        ) as engine:
            assert engine.stdin is not None
            assert engine.stdout is not None
            engine.stdin.write(data)
            engine.stdin.flush()
            heard: list[str] = []
            while until is not None and (not heard or json.loads(heard[-1])["type"] != until):
                heard.append(engine.stdout.readline())
                assert heard[-1], "the engine ended too soon"
            rest, stderr = engine.communicate(timeout=PATIENCE_SECONDS)
        said = [*heard, *rest.splitlines()]
        return Run(engine.returncode, [json.loads(line) for line in said], stderr)


def control(subtype: str, request_id: str = "r1", **fields: Any) -> Json:
    return {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}}


class MessagesApi:
    """What a server of the Messages API heard, and what it answers: one content list per request, then text."""

    def __init__(self) -> None:
        self.requests: list[Json] = []
        self.answers: list[list[Json]] = []
        self.failures: dict[str, int] = {}
        """The status with which requests for a model fail."""
        self.url = ""

    @property
    def models(self) -> list[str]:
        return [request["model"] for request in self.requests]

    def answer(self, request: Json) -> tuple[int, bytes]:
        self.requests.append(request)
        if status := self.failures.get(request["model"]):
            return status, b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'
        is_main = bool(request.get("tools"))
        content = self.answers.pop(0) if self.answers and is_main else [{"type": "text", "text": "Done."}]
        stop = "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"
        return 200, b"".join(
            f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            for event in events(request, content, stop)
        )


def events(request: Json, content: list[Json], stop: str) -> Iterator[Json]:
    usage = {"input_tokens": 1_000_000, "output_tokens": 1_000_000}
    message = {"id": "m", "type": "message", "role": "assistant", "model": request["model"], "content": []}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}
    for index, block in enumerate(content):
        if block["type"] == "text":
            yield {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
            delta: Json = {"type": "text_delta", "text": block["text"]}
        else:
            yield {"type": "content_block_start", "index": index, "content_block": {**block, "input": {}}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


@contextmanager
def messages_api() -> Iterator[MessagesApi]:
    """A server on loopback."""
    api = MessagesApi()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, body = api.answer(request)
            self.send_response(status)
            self.send_header("content-type", "text/event-stream" if status == 200 else "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
