"""Connections as fast as the machine makes them: the server keeps answering, and nothing is left of them.

    python -m tests.stress.gateway.connects --rate 10000 --seconds 10

Several processes connect. Some close at once, some are silent, some send half a request, garbage or a wrong token, and
some ask for a WebSocket. Meanwhile a client sends prompts and others ask for `/healthz`. The exit code is 0 if each of
them was answered, and if the server has no more open files afterwards than before.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.helpers.gateway import Server

CONFIG = "[limits]\nhead_seconds = 2\nconnections = {connections}\nwaiting = 200\n"
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
SENT = (
    None,  # close at once
    b"",
    b"GET /sess",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20,
    b"GET /sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n\r\n",
    UPGRADE,
)
HELD = 300
"""How many connections a process keeps open."""
PROBE_SECONDS = 30
"""How long an answer may take before it counts as none."""


def flood(port: int, rate: float, seconds: float, seed: int, counts: Any) -> None:
    """Connect for a while; `counts` gets what became of it."""
    dice, outcomes, held = Random(seed), Counter[str](), list[socket.socket]()
    started = time.monotonic()
    made = 0
    while (passed := time.monotonic() - started) < seconds:
        if made >= passed * rate:
            time.sleep(0.001)
            continue
        made += 1
        sender = socket.socket()
        sender.setblocking(False)
        try:
            sender.connect_ex(("127.0.0.1", port))
            data = dice.choice(SENT)
            if data is None:
                sender.close()
            else:
                held.append(sender)
                if len(held) > HELD:
                    outcomes[finish(held.pop(0), data)] += 1
        except OSError as exc:
            outcomes[f"{type(exc).__name__} {exc.errno}"] += 1
            sender.close()
    for sender in held:
        sender.close()
    counts.put((made, outcomes))


def finish(sender: socket.socket, data: bytes) -> str:
    """Send what a connection has to say, and close it."""
    try:
        sender.send(data)
        return "sent"
    except OSError as exc:
        return type(exc).__name__
    finally:
        sender.close()


class Probe:
    """A client that is served all the time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.slowest_seconds = 0.0
        self.answers: Counter[str] = Counter()

    async def run(self) -> None:
        session = await self._server.create()
        while True:
            await asyncio.gather(
                self._measure("healthz", self._health), self._measure("prompt", lambda: self._ask(session))
            )

    async def _measure(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        started = time.monotonic()
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await work()
            self.answers[name] += 1
        except Exception as exc:
            self.answers[f"{name}: {type(exc).__name__} {exc}"] += 1
        self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - started)

    async def _health(self) -> None:
        status, _ = await self._server.request("GET", "/healthz")
        assert status == 200, status

    async def _ask(self, session: str) -> None:
        assert (await self._server.ask(session, "say Yes."))["result"] == "Yes."


def count_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


async def run(folder: Path, rate: float, seconds: float, processes: int = 2) -> list[str]:
    config = folder / "serve.toml"
    config.write_text(CONFIG.format(connections=2 * HELD * processes))
    async with Server(folder, "--model", "offline", "--config", str(config)) as server:
        assert server.process is not None
        probe = Probe(server)
        await server.ask(await server.create(), "say Ready.")
        files = count_files(server.process.pid)
        probing = asyncio.create_task(probe.run())
        counts: Any = multiprocessing.get_context("spawn").Queue()
        senders = [
            multiprocessing.get_context("spawn").Process(
                target=flood, args=(server.port, rate / processes, seconds, seed, counts)
            )
            for seed in range(processes)
        ]
        for sender in senders:
            sender.start()
        found = [await asyncio.to_thread(counts.get) for _ in senders]
        for sender in senders:
            await asyncio.to_thread(sender.join)
        probing.cancel()
        await asyncio.gather(probing, return_exceptions=True)
        outcomes = sum((each for _, each in found), Counter[str]())
        made = sum(made for made, _ in found)
        report(f"{made} connections, {made / seconds:.0f} a second: {dict(outcomes)}")
        report(f"served meanwhile: {dict(probe.answers)}; the slowest took {probe.slowest_seconds:.2f} s")
        problems = [name for name in probe.answers if name not in ("healthz", "prompt")]
        if not {"healthz", "prompt"} <= set(probe.answers):
            problems.append("the server did not serve")
        left = await wait_for_files(server.process.pid, files)
        report(f"open files of the server: {files} before, {left} after")
        if left > files + 20:
            problems.append(f"{left - files} files stay open")
        said = [line for line in server.stderr if not line.startswith(("created the token file", "listening"))]
        return problems + said[-20:]


async def wait_for_files(pid: int, most: int) -> int:
    """Wait until the connections of the flood are gone."""
    for _ in range(200):
        if count_files(pid) <= most + 5:
            break
        await asyncio.sleep(0.1)
    return count_files(pid)


def report(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=10_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        problems = asyncio.run(run(Path(folder), given.rate, given.seconds, given.processes))
    for problem in (*problems[:30], f"{len(problems)} problems"):
        report(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
