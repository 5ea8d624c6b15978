"""Measure `parley serve`: idle sessions, paced streams, opening, fan-out, beside one process per session.

    python bench/gateway.py                       all of it
    python bench/gateway.py --only idle,fan-out   some of it
    python bench/gateway.py --quick               with small numbers, to prove that it runs

The server, the model and the viewers have a process each. What is measured:

    idle      memory of the server with 1,000 sessions that had a turn and are idle, loaded and after eviction
    streams   200 sessions that stream 60 events a second at the same time: lag of the server's event loop, its CPU
    open      time from `POST /sessions` to the first prompt accepted
    fan-out   lines delivered per second to 200 viewers of one session
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
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

from websockets.asyncio.client import connect

PARLEY = str(Path(sys.executable).with_name("parley"))
TICKS = os.sysconf("SC_CLK_TCK")
DEADLINE_SECONDS = 300


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


QUICK = Scale(idle_sessions=20, streams=5, stream_seconds=2, opened=5, viewers=5, lines=100)


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

    asyncio.run(serve())


# The server.


class Server:
    def __init__(self, folder: Path, model_port: int, *options: str) -> None:
        (folder / "root").mkdir()
        environment = {
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
                *("--root", str(folder / "root"), "--model", "claude-sonnet-4-5", *options),
            ],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
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
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return int(next(line for line in text.splitlines() if line.startswith("Pss:")).split()[1]) / 1024

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


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


async def follow(port: int, token: str, session: str, lines: int, query: str) -> int:
    """Count the lines that a viewer receives, up to a number."""
    url, count = f"ws://127.0.0.1:{port}/sessions/{session}/ws?numbered=true&{query}", 0
    headers = {"Authorization": f"Bearer {token}"}
    async with connect(url, additional_headers=headers, max_size=None, compression=None) as socket:
        while count < lines:
            await socket.recv()
            count += 1
    return count


def watch(port: int, token: str, sessions: list[str], lines: int, query: str, started: Any, done: Any) -> None:
    """The process of the viewers: all sessions at once."""

    async def run() -> None:
        tasks = [asyncio.create_task(follow(port, token, session, lines, query)) for session in sessions]
        await asyncio.sleep(0)
        started.put(True)
        done.put(sum(await asyncio.gather(*tasks)))

    asyncio.run(run())


def measure_streams(server: Server, scale: Scale) -> dict[str, float]:
    events = scale.events_per_second * scale.stream_seconds
    sessions = [server.create() for _ in range(scale.streams)]
    started, done = multiprocessing.Queue(), multiprocessing.Queue()  # type: ignore[var-annotated]
    viewers = multiprocessing.Process(
        target=watch, args=(server.port, server.token, sessions, events, "partial=true", started, done)
    )
    viewers.start()
    started.get()
    server.wait_until(lambda: server.gauge("parley_clients") == scale.streams)
    cpu, clock = server.cpu_seconds(), time.monotonic()
    for session in sessions:
        server.prompt(session, f"pace:{events}:{scale.events_per_second}")
    received = done.get()
    seconds = time.monotonic() - clock
    lag = server.gauge("parley_loop_lag_p99_seconds")
    used = server.cpu_seconds() - cpu
    viewers.join()
    return {
        "events per second": received / seconds,
        "loop lag p99, ms": lag * 1000,
        "server CPU, share of a core": used / seconds,
        "server CPU per event, us": used / received * 1e6,
    }


def measure_open(server: Server, scale: Scale) -> dict[str, float]:
    times = []
    for _ in range(scale.opened):
        began = time.monotonic()
        server.prompt(server.create(), "Hello")
        times.append((time.monotonic() - began) * 1000)
    ordered = sorted(times)
    return {
        "open to prompt accepted, median ms": statistics.median(times),
        "open to prompt accepted, p95 ms": ordered[int(0.95 * (len(ordered) - 1))],
    }


def measure_fan_out(server: Server, scale: Scale) -> dict[str, float]:
    session = server.create()
    started, done = multiprocessing.Queue(), multiprocessing.Queue()  # type: ignore[var-annotated]
    viewers = multiprocessing.Process(
        target=watch,
        args=(server.port, server.token, [session] * scale.viewers, scale.lines, "partial=true", started, done),
    )
    viewers.start()
    started.get()
    server.wait_until(lambda: server.gauge("parley_clients") == scale.viewers)
    cpu, clock = server.cpu_seconds(), time.monotonic()
    server.prompt(session, f"pace:{scale.lines}:0")
    received = done.get()
    seconds, used = time.monotonic() - clock, server.cpu_seconds() - cpu
    viewers.join()
    return {"deliveries per second": received / seconds, "server CPU per delivery, us": used / received * 1e6}


MEASURED: dict[str, Callable[[Server, Scale], dict[str, float]]] = {
    "open": measure_open,
    "fan-out": measure_fan_out,
    "streams": measure_streams,
    "idle": measure_idle,
}


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
        for label, value in figures[name].items():
            sys.stdout.write(f"{name:8} {label:40} {value:12.2f}\n")
            sys.stdout.flush()
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
