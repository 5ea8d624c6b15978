"""Clients that take what they can get: the others are served, and the memory of the server stays bounded.

    python -m tests.stress.gateway.hostile_load --scale 1

Each case runs in a process of its own, with a token of the tenant `greedy` or without one. Meanwhile a client of
another tenant lists its sessions and prompts one of them, and probes ask for `/healthz`, at the port of the server and
at that of `--health`. Each case prints the memory of the server before, at most and after, and the slowest answers. The
exit code is 0 if everybody was answered and no case held more than `MOST_MB`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.helpers.gateway import Server, user
from tests.helpers.ports import free_port

MOST_MB = 400
"""How much the server may hold because of one case."""
ANSWER_SECONDS = 60
"""How long an answer may take before it counts as none."""
SEND_SECONDS = 2.0
"""How long a client tries to send what the server does not take."""
CASE_SECONDS = 120
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {KEY}")
BLOCK = b"x" * 65_536


def connect(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=SEND_SECONDS)
    made.settimeout(SEND_SECONDS)
    return made


def push(sender: socket.socket, data: bytes, count: int = 1) -> None:
    """Send data several times, as far as the server takes it."""
    with suppress(OSError):
        for _ in range(count):
            sender.sendall(data)


def make_head(method: str, path: str, token: str, *more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *more]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join((*lines, "", "")).encode()


def open_socket(port: int, path: str, token: str = "") -> socket.socket:
    made = connect(port)
    push(made, make_head("GET", path, token, *UPGRADE))
    with suppress(OSError):
        made.recv(4096)
    return made


def frame(data: bytes, claimed: int | None = None) -> bytes:
    """A text frame; `claimed`: how long it says that it is."""
    size = len(data) if claimed is None else claimed
    return bytes((0x81, 0xFF)) + struct.pack(">Q", size) + b"\0\0\0\0" + data


Attack = Callable[[int, str, str, int], list[socket.socket]]
"""Takes the port, the token, a session of the tenant and a count; returns connections to be held open."""


def anonymous_sockets(port: int, token: str, session: str, count: int) -> list[socket.socket]:
    """Sockets without a token that send a part of a long frame."""
    held = [open_socket(port, "/ws") for _ in range(count)]
    for each in held:
        push(each, frame(BLOCK, 60_000_000), 4)
    return held


def endless_heads(port: int, token: str, session: str, count: int) -> list[socket.socket]:
    """Heads that do not end."""
    held = [connect(port) for _ in range(count)]
    for each in held:
        push(each, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + BLOCK, 16)
    return held


def half_bodies(port: int, token: str, session: str, count: int) -> list[socket.socket]:
    """Requests whose bodies stop before their end."""
    held = [connect(port) for _ in range(count)]
    for each in held:
        push(each, make_head("POST", "/sessions", token, "Content-Length: 8000000") + BLOCK)
        push(each, BLOCK, 60)
    return held


def half_frames(port: int, token: str, session: str, count: int) -> list[socket.socket]:
    """The same on WebSockets."""
    held = [open_socket(port, f"/sessions/{session}/ws", token) for _ in range(count)]
    for each in held:
        push(each, frame(BLOCK, 8_000_000))
        push(each, BLOCK, 60)
    return held


def many_lines(port: int, token: str, session: str, count: int) -> list[socket.socket]:
    """Frames of many requests, whose answers nobody reads."""
    asked = [
        json.dumps({"type": "control_request", "request_id": str(number), "request": {"subtype": "get_settings"}})
        for number in range(20_000)
    ]
    data = frame("\n".join(asked).encode())
    held = [open_socket(port, f"/sessions/{session}/ws", token) for _ in range(max(1, count // 20))]
    for each in held:
        push(each, data)
    return held


def long_prompts(port: int, token: str, session: str, count: int) -> list[socket.socket]:
    """Prompts of nearly 8 MB."""
    body = json.dumps(
        {"content": [{"type": "text", "text": text} for text in ("word " * 1_500_000, "say Yes.")]}
    ).encode()
    held = []
    for _ in range(max(1, count // 100)):
        made = connect(port)
        made.settimeout(ANSWER_SECONDS)
        push(made, make_head("POST", f"/sessions/{session}/prompts", token, f"Content-Length: {len(body)}") + body)
        with suppress(OSError):
            made.recv(4096)
        held.append(made)
    return held


def unread_loads(port: int, token: str, session: str, count: int) -> list[socket.socket]:
    """Editors that load a session again and again, and read nothing."""
    params = {"sessionId": session, "cwd": os.environ["STRESS_ROOT"], "mcpServers": []}
    asked: list[dict[str, Any]] = [{"id": 0, "method": "initialize", "params": {"protocolVersion": 1}}]
    asked += [{"id": number, "method": "session/load", "params": params} for number in range(1, 200)]
    lines = [json.dumps({"jsonrpc": "2.0", **each}) for each in asked]
    held = [open_socket(port, "/acp", token) for _ in range(max(1, count // 20))]
    for each in held:
        for line in lines:
            push(each, frame(line.encode()))
    return held


def open_slow(port: int, path: str, token: str, *more: str) -> socket.socket:
    """A request whose client has a small buffer and never reads."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(SEND_SECONDS)
    made.connect(("127.0.0.1", port))
    push(made, make_head("GET", path, token, *more))
    return made


def post(port: int, path: str, token: str, body: Any) -> None:
    data = json.dumps(body).encode()
    with connect(port) as made:
        made.settimeout(ANSWER_SECONDS)
        push(made, make_head("POST", path, token, f"Content-Length: {len(data)}") + data)
        with suppress(OSError):
            made.recv(4096)


def slow_readers(port: int, token: str, session: str, count: int) -> list[socket.socket]:
    """Clients that ask for a line of nearly 8 MB in every way, and read nothing."""
    post(port, f"/sessions/{session}/prompts", token, {"content": "say " + "x" * 7_900_000})
    paths = ("ws?after=0", "events?after=0", "lines?limit=2000", "wire?limit=2000")
    held = []
    for number in range(max(len(paths), count // 5)):
        path = paths[number % len(paths)]
        held.append(open_slow(port, f"/sessions/{session}/{path}", token, *(UPGRADE if path.startswith("ws") else ())))
    return held


def unread_replies(port: int, token: str, session: str, count: int) -> list[socket.socket]:
    """Lines with long ids that are posted without an event stream, which would take the replies."""
    for number in range(max(1, count // 25)):
        asked = {"type": "control_request", "request_id": f"{number}" + "r" * 2_000_000, "request": {"subtype": "x"}}
        post(port, f"/v1/code/sessions/{session}/events", token, {"events": [{"payload": asked}]})
    return []


def searches(port: int, token: str, session: str, count: int) -> list[socket.socket]:
    """Searches of a long log for a message that it does not have."""
    for _ in range(max(1, count // 100)):
        post(port, f"/sessions/{session}/prompts", token, {"content": "say " + "ab " * 2_600_000})
    path = f"/sessions/{session}/lines?around_uuid=zzzz"
    return [open_slow(port, path, token) for _ in range(max(1, count // 4))]


def long_questions(port: int, token: str, session: str, count: int) -> list[socket.socket]:
    """Questions of nearly 8 MB, which slow clients list and watch."""
    call = json.dumps({"file_path": "long.txt", "content": "x" * 7_700_000})
    for _ in range(max(1, count // 100)):
        body = {"content": f"call Write {call}"}
        post(port, f"/sessions/{session}/prompts", token, body)
    paths = ("/questions", "/questions/events")
    return [open_slow(port, paths[number % 2], token) for number in range(max(2, count // 10))]


CASES: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        *(anonymous_sockets, endless_heads, half_bodies, half_frames),
        *(many_lines, long_prompts, unread_loads),
        *(slow_readers, unread_replies, searches, long_questions),
    )
}


def attack(name: str, port: int, token: str, session: str, count: int, root: str, stop: Any, done: Any) -> None:
    """Run a case in this process, and hold its connections until the end."""
    os.environ["STRESS_ROOT"] = root
    held = CASES[name](port, token, session, count)
    done.set()
    stop.wait(CASE_SECONDS)
    for each in held:
        each.close()


class Probe:
    """How slow the answers to one kind of request were."""

    def __init__(self, ask: Callable[[], Awaitable[object]]) -> None:
        self._ask = ask
        self.slowest_seconds = 0.0
        self.problem = ""

    async def run(self) -> None:
        while not self.problem:
            started = time.monotonic()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._ask()
            except Exception as exc:
                self.problem = f"{type(exc).__name__} {exc}"
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - started)
            await asyncio.sleep(0.01)  # a probe is not a flood


def read_memory_mb(pid: int, field: str = "VmRSS") -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def fetch_health(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        status = (await reader.read()).split()[1]
        assert status == b"200", status
    finally:
        writer.close()


async def make_tenant(server: Server, name: str) -> tuple[str, str]:
    """A token of a tenant, and a session of it with some history."""
    wanted = {"name": name, "tenant": name, "scopes": ["create", "prompt", "approve"]}
    token = (await server.request("POST", "/tokens", wanted))[1]["token"]
    session = (await server.request("POST", "/sessions", {}, token))[1]["session_id"]
    client = await server.connect(f"/sessions/{session}/ws", token)
    for _ in range(20):
        await client.send(user("say " + "history " * 5000))
        async for line in client:
            if '"type":"result"' in str(line):
                break
    await client.close()
    return token, session


async def run_case(name: str, folder: Path, count: int) -> list[str]:
    folder.mkdir()
    health = free_port()
    async with Server(folder, "--model", "offline", "--health", f"127.0.0.1:{health}") as server:
        assert server.process is not None
        pid = server.process.pid
        greedy, session = await make_tenant(server, "greedy")
        modest, own = await make_tenant(server, "modest")

        async def ask_other() -> None:
            status, found = await server.request("GET", "/sessions", token=modest)
            assert status == 200, found
            assert [each["id"] for each in found["sessions"]] == [own]
            status, found = await server.request("POST", f"/sessions/{own}/prompts", {"content": "say Yes."}, modest)
            assert status == 202, found

        probes = {
            "health check": Probe(lambda: fetch_health(server.port)),
            "health check of --health": Probe(lambda: fetch_health(health)),
            "requests of another tenant": Probe(ask_other),
        }
        before, most = read_memory_mb(pid), 0.0
        probing = [asyncio.create_task(probe.run()) for probe in probes.values()]
        context = multiprocessing.get_context("spawn")
        stop, done = context.Event(), context.Event()
        sender = context.Process(
            target=attack, args=(name, server.port, greedy, session, count, str(server.root), stop, done)
        )
        sender.start()
        try:
            while not await asyncio.to_thread(done.wait, 0.2):
                most = max(most, read_memory_mb(pid))
            for _ in range(10):
                most = max(most, read_memory_mb(pid))
                await asyncio.sleep(0.1)
        finally:
            stop.set()
            await asyncio.to_thread(sender.join)
        for task in probing:
            task.cancel()
        await asyncio.gather(*probing, return_exceptions=True)
        after = read_memory_mb(pid)
        slow = ", ".join(f"{what} {probe.slowest_seconds:.2f} s" for what, probe in probes.items())
        report(f"{name}: RSS {before:.0f} MB before, {most:.0f} at most, {after:.0f} after; slowest {slow}")
        problems = [f"{name}: {what}: {probe.problem}" for what, probe in probes.items() if probe.problem]
        if most - before > MOST_MB:
            problems.append(f"{name}: the server took {most - before:.0f} MB more")
        return problems


async def run(folder: Path, scale: float, names: tuple[str, ...] = tuple(CASES)) -> list[str]:
    return [problem for name in names for problem in await run_case(name, folder / name, max(1, int(1000 * scale)))]


def report(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--case", choices=CASES, action="append")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        problems = asyncio.run(run(Path(folder), given.scale, tuple(given.case or CASES)))
    for problem in (*problems, f"{len(problems)} problems"):
        report(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
