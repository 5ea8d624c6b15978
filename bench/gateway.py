"""Measure `parley serve`: idle sessions, paced streams, opening, fan-out, beside one process per session.

    python bench/gateway.py                       all of it
    python bench/gateway.py --only idle,fan-out   some of it
    python bench/gateway.py --quick               with small numbers, to prove that it runs

The server, the model and the viewers have a process each. What is measured:

    open      time from `POST /sessions` to the first prompt accepted
    fan-out   lines delivered per second to 200 viewers of one session
    streams   200 sessions that stream 60 events a second at the same time: lag of the server's event loop, its CPU
    idle      memory of the server with 1,000 sessions that had a turn and are idle, loaded and after eviction
    process   the same turns in one engine process per session

At the end, the cost of a session and of an event is printed as a ratio to that of one process per session.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import uvloop

PARLEY = str(Path(sys.executable).with_name("parley"))
TICKS = os.sysconf("SC_CLK_TCK")
DEADLINE_SECONDS = 300
MODEL = "claude-sonnet-4-5"
STREAM = ("--print", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
RESULT = b'{"type":"result"'
LEAD_LINES = 10
"""The lines of a turn before its events flow."""


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    idle_sessions: int = 1000
    streams: int = 200
    events_per_second: int = 60
    stream_seconds: int = 10
    opened: int = 100
    viewers: int = 200
    lines: int = 2000
    processes: int = 10


QUICK = Scale(idle_sessions=20, streams=5, stream_seconds=2, opened=5, viewers=5, lines=100, processes=2)


@dataclass(frozen=True)
class Cost:
    """The time that something took, and the processor time of the server."""

    seconds: float
    cpu_seconds: float


# A model that streams at a given pace.


def event(kind: str, **fields: Any) -> bytes:
    data = json.dumps({"type": kind, **fields}, separators=(",", ":"))
    text = f"event: {kind}\ndata: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(text), text)


async def answer_paced(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests for ever: `pace:EVENTS:PER_SECOND` in the newest message says how; 0 per second is at once."""
    number = 0
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            body = await reader.readexactly(length)
            mark = body.rpartition(b"pace:")[2].split(b'"')[0].split(b"\\")[0] if b"pace:" in body else b"1:0"
            events, per_second = (int(part) for part in mark.split(b":"))
            number += 1
            message = {"id": f"msg_{id(writer)}_{number}", "type": "message", "role": "assistant", "model": "m"}
            usage = {"input_tokens": 10, "output_tokens": events}
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            writer.write(event("message_start", message={**message, "content": [], "usage": usage}))
            writer.write(event("content_block_start", index=0, content_block={"type": "text", "text": ""}))
            delta = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "some words "})
            started = time.monotonic()
            for at in range(events):
                writer.write(delta)
                if per_second:
                    await asyncio.sleep(max(0, started + (at + 1) / per_second - time.monotonic()))
                    if writer.is_closing():
                        return
            writer.write(event("content_block_stop", index=0))
            writer.write(event("message_delta", delta={"stop_reason": "end_turn"}, usage=usage))
            writer.write(event("message_stop") + b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def serve_model(ready: Any) -> None:
    async def serve() -> None:
        server = await asyncio.start_server(answer_paced, "127.0.0.1", 0, limit=1 << 26)
        ready.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(serve())


# The server.


class Server:
    def __init__(self, folder: Path, model_port: int, *options: str) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "CLAUDE_CONFIG_DIR": str(folder / "config"),
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model_port}",
            "ANTHROPIC_API_KEY": "sk-bench",
        }
        self._token_file = folder / "token"
        self.process = subprocess.Popen(
            [
                *(PARLEY, "serve", "--listen", "127.0.0.1:0", "--token-file", str(self._token_file)),
                *("--root", str(self.root), "--model", MODEL, *options),
            ],
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith("listening on "):
                self.port = int(line.rpartition(":")[2])
                return
        raise SystemExit("the server did not start")

    @property
    def token(self) -> str:
        return self._token_file.read_text().strip()

    def request(self, method: str, path: str, body: Any = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Authorization": f"Bearer {self.token}"})
        response = connection.getresponse()
        text = response.read()
        connection.close()
        if response.status >= 400:
            raise SystemExit(f"{method} {path}: {response.status} {text!r}")
        return json.loads(text) if text.startswith((b"{", b"[")) else text.decode()

    def create(self) -> str:
        return str(self.request("POST", "/sessions", {})["session_id"])

    def prompt(self, session: str, text: str) -> None:
        self.request("POST", f"/sessions/{session}/prompts", {"content": text})

    def gauge(self, name: str) -> float:
        lines = [line for line in self.request("GET", "/metrics").splitlines() if line.startswith(f"{name} ")]
        return float(lines[0].split()[1])

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit("the server did not get there in time")
            time.sleep(0.05)

    def memory_mb(self) -> float:
        return memory_mb(self.process.pid)

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def memory_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("Pss:")).split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def finished(server: Server) -> int:
    page = server.request("GET", "/metrics")
    lines = [line for line in page.splitlines() if line.startswith("parley_results_total{")]
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))


# What is measured.


def measure_idle(server: Server, scale: Scale) -> dict[str, float]:
    empty = server.memory_mb()
    before = finished(server)
    for _ in range(scale.idle_sessions):
        server.prompt(server.create(), "Hello")
    server.wait_until(lambda: finished(server) - before >= scale.idle_sessions)
    loaded = server.memory_mb()
    server.wait_until(lambda: server.gauge("parley_sessions_loaded") == 0)
    return {
        "empty server, MB": empty,
        f"{scale.idle_sessions} sessions loaded, MB": loaded,
        "MB per loaded session": (loaded - empty) / scale.idle_sessions,
        f"{scale.idle_sessions} sessions evicted, MB": server.memory_mb(),
    }


class Viewer:
    """A WebSocket client that counts lines. A library would take longer to read them than the server to send them."""

    def __init__(self, port: int, token: str, session: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS)
        self.lines = 0
        self.flows_at = 0.0
        """When its first events had come."""
        self._rest = b""
        self.socket.sendall(
            f"GET /sessions/{session}/ws?numbered=true&partial=true HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Authorization: Bearer {token}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.socket.recv(1)
        if not head.startswith(b"HTTP/1.1 101 "):
            raise SystemExit(f"the server refused a viewer: {head!r}")

    def read(self) -> None:
        """Count the lines that have come."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise SystemExit("the server closed the connection of a viewer")
        data, position = self._rest + data, 0
        while position + 10 <= len(data):
            kind, size, start = data[position], data[position + 1], position + 2
            if size >= 126:
                start += 2 if size == 126 else 8
                size = int.from_bytes(data[position + 2 : start], "big")
            if start + size > len(data):
                break
            position = start + size
            if kind == 0x81:
                self.lines += 1
            elif kind == 0x89:  # a ping; the mask of the reply is zero
                self.socket.sendall(bytes((0x8A, 0x80 | size, 0, 0, 0, 0)) + data[start:position])
        self._rest = data[position:]
        if not self.flows_at and self.lines >= LEAD_LINES:
            self.flows_at = time.monotonic()


def watch(port: int, token: str, sessions: list[str], lines: int, ready: Any, done: Any) -> None:
    """The process of the viewers. Reports how many lines a second each of them got while its events flowed."""
    selector = selectors.DefaultSelector()
    rates: list[float] = []
    for session in sessions:
        viewer = Viewer(port, token, session)
        selector.register(viewer.socket, selectors.EVENT_READ, viewer)
    ready.put(True)
    while len(rates) < len(sessions):
        for key, _ in selector.select():
            viewer = key.data
            viewer.read()
            if viewer.lines >= lines:
                rates.append((viewer.lines - LEAD_LINES) / max(time.monotonic() - viewer.flows_at, 1e-9))
                selector.unregister(viewer.socket)
    done.put(rates)


def run_viewers(server: Server, sessions: list[str], lines: int, start: Callable[[], None]) -> tuple[list[float], Cost]:
    """Follow sessions in another process while their turns run; returns the rates of the viewers, and the cost."""
    ready, done = multiprocessing.Queue(), multiprocessing.Queue()  # type: ignore[var-annotated]
    arguments = (server.port, server.token, sessions, lines, ready, done)
    viewers = multiprocessing.Process(target=watch, args=arguments)
    viewers.start()
    ready.get()
    server.wait_until(lambda: server.gauge("parley_clients") == len(sessions))
    turns, cpu, clock = finished(server) + len(set(sessions)), server.cpu_seconds(), time.monotonic()
    start()
    rates = done.get()
    cost = Cost(time.monotonic() - clock, server.cpu_seconds() - cpu)
    viewers.join()
    server.wait_until(lambda: finished(server) >= turns)
    return rates, cost


def measure_streams(server: Server, scale: Scale) -> dict[str, float]:
    events = scale.events_per_second * scale.stream_seconds
    sessions = [server.create() for _ in range(scale.streams)]

    def start() -> None:
        for session in sessions:
            server.prompt(session, f"pace:{events}:{scale.events_per_second}")

    rates, cost = run_viewers(server, sessions, events, start)
    return {
        f"events per second, of {scale.streams * scale.events_per_second}": sum(rates),
        f"events per second of the slowest, of {scale.events_per_second}": min(rates),
        "loop lag p99, ms": server.gauge("parley_loop_lag_p99_seconds") * 1000,
        "server CPU, share of a core": cost.cpu_seconds / cost.seconds,
        "server CPU per event, us": cost.cpu_seconds / (events * scale.streams) * 1e6,
    }


def measure_open(server: Server, scale: Scale) -> dict[str, float]:
    times, cpu = [], server.cpu_seconds()
    for _ in range(scale.opened):
        began = time.monotonic()
        server.prompt(server.create(), "Hello")
        times.append((time.monotonic() - began) * 1000)
    server.wait_until(lambda: finished(server) == scale.opened)
    ordered = sorted(times)
    return {
        "open to prompt accepted, median ms": statistics.median(times),
        "open to prompt accepted, p95 ms": ordered[int(0.95 * (len(ordered) - 1))],
        "server CPU until the first result, ms": (server.cpu_seconds() - cpu) / scale.opened * 1000,
    }


def measure_fan_out(server: Server, scale: Scale) -> dict[str, float]:
    session = server.create()
    sessions = [session] * scale.viewers
    _, cost = run_viewers(server, sessions, scale.lines, lambda: server.prompt(session, f"pace:{scale.lines}:0"))
    received = scale.lines * scale.viewers
    return {
        "deliveries per second": received / cost.seconds,
        "server CPU per delivery, us": cost.cpu_seconds / received * 1e6,
    }


def measure_process(server: Server, scale: Scale) -> dict[str, float]:
    """The turns of `open`, `idle` and `streams` in engine processes without a server."""
    events = scale.events_per_second * scale.stream_seconds
    pipe = subprocess.PIPE
    argv = [PARLEY, *STREAM, "--model", MODEL, "--include-partial-messages"]
    engines = [
        subprocess.Popen(argv, stdin=pipe, stdout=pipe, env=server.environment, cwd=server.root)
        for _ in range(scale.processes)
    ]
    run_turn(engines, "Hello")
    opened = [cpu_seconds(engine.pid) for engine in engines]
    memory = [memory_mb(engine.pid) for engine in engines]
    run_turn(engines, f"pace:{events}:{scale.events_per_second}")
    used = sum(cpu_seconds(engine.pid) for engine in engines) - sum(opened)
    for engine in engines:
        engine.communicate()
    return {
        "CPU until the first result, ms": statistics.mean(opened) * 1000,
        "MB per process": statistics.mean(memory),
        "CPU per event, us": used / (events * scale.processes) * 1e6,
    }


def run_turn(engines: list[subprocess.Popen[bytes]], prompt: str) -> None:
    """A turn in all engines at once."""
    line = json.dumps({"type": "user", "message": {"role": "user", "content": prompt}}) + "\n"
    selector = selectors.DefaultSelector()
    for engine in engines:
        assert engine.stdin is not None
        assert engine.stdout is not None
        engine.stdin.write(line.encode())
        engine.stdin.flush()
        selector.register(engine.stdout, selectors.EVENT_READ)
    tails = {engine.stdout.fileno(): b"" for engine in engines if engine.stdout is not None}
    while tails:
        for key, _ in selector.select():
            data = tails[key.fd] + os.read(key.fd, 1 << 20)
            tails[key.fd] = data[-len(RESULT) :]
            if RESULT in data:
                selector.unregister(key.fileobj)
                del tails[key.fd]


MEASURED: dict[str, Callable[[Server, Scale], dict[str, float]]] = {
    "open": measure_open,
    "fan-out": measure_fan_out,
    "streams": measure_streams,
    "idle": measure_idle,
    "process": measure_process,
}
RATIOS = {
    "CPU until the first result": (("open", "server CPU until the first result, ms"), "CPU until the first result, ms"),
    "memory of a session": (("idle", "MB per loaded session"), "MB per process"),
    "CPU per event": (("streams", "server CPU per event, us"), "CPU per event, us"),
}
"""What is compared: a figure of the gateway, and the same of one process per session."""


def write(name: str, figures: dict[str, float]) -> None:
    for label, value in figures.items():
        sys.stdout.write(f"{name:8} {label:46} {value:12.3f}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(MEASURED), help="what to measure, separated by commas")
    parser.add_argument("--quick", action="store_true", help="with small numbers")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    scale, figures = QUICK if given.quick else Scale(), {}
    ready = multiprocessing.Queue()  # type: ignore[var-annotated]
    model = multiprocessing.Process(target=serve_model, args=(ready,), daemon=True)
    model.start()
    port = ready.get()
    for name in given.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(Path(folder), port, "--idle-seconds", "2" if name == "idle" else "300")
            try:
                figures[name] = MEASURED[name](server, scale)
            finally:
                server.close()
        write(name, figures[name])
    if "process" in figures:
        write(
            "ratio",
            {
                label: figures[name][own] / figures["process"][other]
                for label, ((name, own), other) in RATIOS.items()
                if name in figures
            },
        )
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
