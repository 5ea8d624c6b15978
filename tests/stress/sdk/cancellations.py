"""Cancel turns at random moments, on every kind of engine: the next prompt runs, and nothing of the old turn is left.

    python -m tests.stress.sdk.cancellations --cancellations 1000 --seed 1

The model is one that rejects an invalid conversation (tests/helpers/strict_model.py). A turn thinks, streams and
hangs, runs commands that would take an hour, or calls functions of the program that never return; a permission callback
may wait, too. A random way cancels it: `task.cancel()`, a timeout, a generator that is closed, `interrupt()`. After
each, a prompt must be answered. Each session ends with a client that leaves in mid turn.

At the end: no command is left, no callback runs, no request was rejected. The report has how long the next prompt took
to start, in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

from parley import Client, Options, PermissionResultAllow, ResultError, tool
from parley.models.base import ModelRequest
from parley.testing.model_server import ModelServer
from tests.helpers.gateway import Server
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.strict_model import Reply, StrictModel, encode

ENGINES = ("process", "local", "gateway")
PER_SESSION = 25
PROBE = "probe"
MOMENTS = (0, 0.001, 0.005, 0.02, 0.05, 0.1, 0.3)


class CancelledSession:
    """One client, its turns, and what they left."""

    def __init__(self, dice: Random, command: str) -> None:
        self._dice = dice
        self._command = command
        self.callbacks = 0
        """How many run."""
        self.starts_ms: list[float] = []
        self.counts: Counter[str] = Counter()

    def choose(self, request: ModelRequest) -> Reply:
        dice, last = self._dice, encode(request.messages[-1]).decode()
        if PROBE in last:
            return Reply([{"type": "text", "text": "Here."}])
        blocks: list[Any] = [{"type": "thinking", "thinking": "Hm."}] if dice.random() < 0.5 else []
        blocks.append({"type": "text", "text": "I work."})
        kind = dice.random()
        if kind < 0.3:
            return Reply(blocks, cut_after=dice.randint(0, 3 * len(blocks)), hangs=True)
        for _ in range(dice.choice([1, 1, 2])):
            if dice.random() < 0.5:
                given = {"command": dice.choice(["true", self._command]), "description": "Work"}
                blocks.append({"type": "tool_use", "name": "Bash", "input": given})
            else:
                blocks.append({"type": "tool_use", "name": "mcp__tools__hold", "input": {"seconds": 3600}})
        return Reply(blocks, "tool_use")

    @asynccontextmanager
    async def _callback(self) -> AsyncIterator[None]:
        self.callbacks += 1
        try:
            yield
        finally:
            self.callbacks -= 1

    async def hold(self, seconds: float) -> None:
        """Wait."""
        async with self._callback():
            await asyncio.sleep(seconds)

    async def permit(self, name: str, input: Any, context: Any) -> PermissionResultAllow:
        async with self._callback():
            await asyncio.sleep(self._dice.choice([0, 0, 3600]))
        return PermissionResultAllow()

    async def run(self, options: Options[Any], cancellations: int) -> None:
        given = {"tools": ["default", tool(self.hold)], "can_use_tool": self.permit, "include_partial_messages": True}
        client: Client[Any] = Client(Options(**{**vars(options), **given}))
        async with client:
            for number in range(cancellations):
                way = self._dice.choice(list(WAYS))
                await WAYS[way](self, client, f"work {number}")
                self.counts[way] += 1
                asked = time.perf_counter()
                turn = await client.ask(f"{PROBE} {number}")
                await turn.until("started")
                self.starts_ms.append((time.perf_counter() - asked) * 1000)
                assert "Here." in await turn.text()
            await client.ask("work and be left")
            await asyncio.sleep(self._dice.choice(MOMENTS))

    # The ways.

    async def cancel_task(self, client: Client[Any], prompt: str) -> None:
        job = asyncio.create_task(client.run(prompt))
        await asyncio.sleep(self._dice.choice(MOMENTS))
        job.cancel()
        with suppress(asyncio.CancelledError, ResultError):
            await job

    async def time_out(self, client: Client[Any], prompt: str) -> None:
        with suppress(TimeoutError, ResultError):
            async with asyncio.timeout(self._dice.choice(MOMENTS)):
                await client.run(prompt)

    async def close_generator(self, client: Client[Any], prompt: str) -> None:
        turn = await client.ask(prompt)
        with suppress(TimeoutError, ResultError):
            async with asyncio.timeout(self._dice.choice(MOMENTS) + 0.05), aclosing(turn.text_stream()) as texts:
                async for _ in texts:
                    break

    async def interrupt(self, client: Client[Any], prompt: str) -> None:
        turn = await client.ask(prompt)
        await turn.until("started")
        await asyncio.sleep(self._dice.choice(MOMENTS))
        await client.interrupt()
        await turn.wait(check=False)


WAYS = {
    "task": CancelledSession.cancel_task,
    "timeout": CancelledSession.time_out,
    "generator": CancelledSession.close_generator,
    "interrupt": CancelledSession.interrupt,
}


async def run_engine(engine: str, cancellations: int, seed: int) -> dict[str, Any]:
    """Returns what was counted and what went wrong."""
    dice, wrong, starts = Random(f"{seed} {engine}"), [], list[float]()
    counts: Counter[str] = Counter()
    hour = f"3600.{os.getpid()}{ENGINES.index(engine)}"
    while (done := sum(counts.values())) < cancellations:
        with tempfile.TemporaryDirectory(prefix="parley-cancel-") as name:
            folder = Path(name)
            session = CancelledSession(Random(dice.random()), f"sleep {hour}")
            strict = StrictModel(session.choose)
            async with ModelServer(strict, keeps=0) as server, make_options(engine, folder, server.url) as options:
                try:
                    async with asyncio.timeout(PATIENCE_SECONDS * 5):
                        await session.run(options, min(PER_SESSION, cancellations - done))
                except Exception as exc:
                    wrong.append(f"after {done}: {type(exc).__name__}: {exc}")
                    counts["broken"] += PER_SESSION
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while find_commands(hour):  # noqa: ASYNC110  # other processes
                        await asyncio.sleep(0.05)
            counts += session.counts
            starts += session.starts_ms
            wrong += strict.rejections
            if session.callbacks:
                wrong.append(f"after {done}: {session.callbacks} callbacks still run")
    took = statistics.quantiles(starts or [0, 0], n=100)
    return {
        "engine": engine,
        **counts,
        "start_ms": {"median": round(took[49], 1), "p99": round(took[98], 1), "max": round(max(starts, default=0), 1)},
        "wrong": wrong,
    }


@asynccontextmanager
async def make_options(engine: str, folder: Path, url: str) -> AsyncIterator[Options[Any]]:
    own = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "key", "IS_SANDBOX": "1"}
    model = "claude-sonnet-4-5"
    if engine == "gateway":
        async with Server(folder, "--model", model, environment=own) as server:
            yield Options(engine=server.url, token=server.token, model=model)
        return
    home = {"HOME": str(folder), "CLAUDE_CONFIG_DIR": str(folder / "config")}
    yield Options(engine=engine, model=model, cwd=folder, env={**own, **home}, stderr=lambda line: None)


def find_commands(hour: str) -> list[int]:
    """The processes of commands that are left."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", hour.encode()]:
                found.append(int(pid))
    return found


async def main(cancellations: int, seed: int) -> int:
    failed = False
    for engine in ENGINES:
        found = await run_engine(engine, cancellations, seed)
        failed |= bool(found["wrong"])
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cancellations", type=int, default=1000, help="for each kind of engine")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    sys.exit(asyncio.run(main(chosen.cancellations, chosen.seed)))
