"""A session in virtual time: hours pass in milliseconds, and the same seed gives the same run.

    with SimulatedSession(folder, Random(1)) as simulated:  # a session, a model, a tool and a host, joined in memory
        simulated.play(actor)                               # an async function that sends lines and waits on the loop

The clock is the loop's own (virtual_time.py): it jumps to the next timer as soon as nothing is left to do. If there is
no next timer, TimeoutError is raised: that is a hang.

The model says things of random length at random speed and calls the tool `Work` now and then. The tool
takes its time too. Whether it may is asked of the host, who answers late, with yes or no, or never.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Self

import msgspec

from parley.compose.composer import Composer
from parley.compose.registry import make_dialect
from parley.engine.clock import Clock
from parley.engine.session.pump import Pump, serve
from parley.engine.session.session import Session
from parley.models.base import ModelEvent, ModelRequest
from parley.models.event_synthesis import message_json, synthesize_events
from parley.protocol.base import Role, Struct
from parley.protocol.connection import Connection
from parley.protocol.options import CliOptions
from parley.testing.virtual_time import VirtualTimeLoop
from parley.tools.base import Context, Tool, ToolOutput, ToolRegistry
from parley.transports.base import create_pair
from parley.workspace.base import Scope

Json = dict[str, Any]
LONGEST_PLAY_SECONDS = 24 * 3600
"""In played time."""


class WorkInput(Struct, frozen=True):
    seconds: float


class Work(Tool):
    """A tool that does nothing, and takes its time for it."""

    name = "Work"
    description = "Takes its time."
    reads_only = False
    input: type[Struct] = WorkInput

    def __init__(self) -> None:
        self.running = 0

    async def run(self, call: WorkInput, context: Context, reach: Scope) -> ToolOutput:
        self.running += 1
        try:
            await asyncio.sleep(call.seconds)
        finally:
            self.running -= 1
        return ToolOutput(content="worked")


class Talker:
    """A model that says what the dice say."""

    def __init__(self, dice: Random, results: Callable[[], int]) -> None:
        self._dice = dice
        self._results = results
        self._numbers = count(1)
        self.answers: dict[str, int] = {}
        """The id of each answer, and how many results had been told when it was asked for."""
        self.open = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        dice, number = self._dice, next(self._numbers)
        self.answers[f"msg_{number}"] = self._results()
        blocks: list[Json] = [{"type": "text", "text": "word " * dice.randint(1, 8)}]
        calls = dice.choice([0, 0, 0, 1, 1, 2])
        blocks += [
            {"type": "tool_use", "id": f"call_{number}_{at}", "name": "Work", "input": {"seconds": dice.random() * 3}}
            for at in range(calls)
        ]
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = message_json(blocks, id=f"msg_{number}", model=request.model, usage=usage)
        self.open += 1
        try:
            await asyncio.sleep(dice.random())
            for event in synthesize_events(message, chunk_chars=10):
                if dice.random() < 0.5:
                    await asyncio.sleep(dice.random() / 4)
                yield event
        finally:
            self.open -= 1

    async def close(self) -> None:
        pass


class SimulatedSession:
    def __init__(self, folder: Path, dice: Random, **options: Any) -> None:
        self.dice = dice
        self.lines: list[Json] = []
        self.heard_at: list[float] = []
        """When each line was heard, in played seconds."""
        self.results = 0
        self.work = Work()
        self.model = Talker(dice, lambda: self.results)
        self.loop = VirtualTimeLoop()
        self.warnings: list[str] = []
        numbers = count(1)
        self.stamp = Clock(
            new_uuid=lambda: f"00000000-0000-4000-8000-{next(numbers):012d}",
            seconds=lambda: 1_800_000_000 + self.loop.time(),
            monotonic=self.loop.time,
        )
        environment = {"HOME": str(folder), "TMPDIR": str(folder), "PATH": "/usr/bin:/bin", "IS_SANDBOX": "1"}
        usual = {"permission_prompt_tool": "stdio", "no_session_persistence": True, "include_partial_messages": True}
        chosen = self._options = CliOptions(model="offline", **{**usual, **options})
        setup = Composer(chosen, environment, str(folder), self.stamp, warn=self.warnings.append).make_config()
        setup = setup.with_model_opener(lambda choice: self.model)
        self._setup = msgspec.structs.replace(setup, tools=ToolRegistry(["Work"], lambda name: self.work))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.loop.close()

    def play(self, actor: Callable[[SimulatedSession], Awaitable[None]]) -> None:
        """Play to the end: the actor has nothing more to do, the input has ended, the engine is done."""
        self.loop.run_until_complete(self._play(actor))

    async def _play(self, actor: Callable[[SimulatedSession], Awaitable[None]]) -> None:
        self._host, engine = create_pair()
        pump = Pump(Connection(Role.ENGINE, make_dialect(self._options, self.stamp)), engine, self.stamp.new_uuid)
        self.session = Session(self._setup, pump)
        async with asyncio.timeout(LONGEST_PLAY_SECONDS), asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(self._listen(tasks))
            serving = tasks.create_task(serve(engine, pump, self.session))
            await actor(self)
            self._host.close()
            await serving
            engine.close()
            await listening

    def say(self, line: Json) -> None:
        self._host.write(json.dumps(line).encode() + b"\n")

    def ask(self, request_id: str, subtype: str, **fields: Any) -> None:
        self.say({"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}})

    async def _listen(self, tasks: asyncio.TaskGroup) -> None:
        async for chunk in self._host.chunks():
            for line in chunk.splitlines():
                heard = json.loads(line)
                self.lines.append(heard)
                self.heard_at.append(self.loop.time())
                self.results += heard.get("type") == "result"
                if heard.get("type") == "control_request":
                    tasks.create_task(self._answer(heard["request_id"]))

    async def _answer(self, request_id: str) -> None:
        await asyncio.sleep(self.dice.random() * 2)
        deny = {"behavior": "deny", "message": "no"}
        answer = self.dice.choice([{"behavior": "allow"}, {"behavior": "allow"}, deny])
        try:
            response = {"subtype": "success", "request_id": request_id, "response": answer}
            self.say({"type": "control_response", "response": response})
        except BrokenPipeError:
            pass  # we have hung up meanwhile


def schedules_command(about: str, run: Callable[[Path, int, int, int], Counter[str]]) -> int:
    """A programme of random schedules, from its command line; the exit code."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", type=int, default=14, help="what the host does in a schedule, at most")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ends = run(Path(folder), chosen.schedules, chosen.seed, chosen.lines)
    sys.stdout.write(f"{chosen.schedules} schedules, all laws held: {dict(sorted(ends.items()))}\n")
    return 0
