"""Sessions in windows that are far too small for them, with a backend that does everything wrong, on the executable.

    python -m tests.stress.engine.small_context_windows --sessions 200

A session has a dozen prompts, some of them larger than the window, some of them `/compact` and `/clear`; some are
interrupted, some queue up, and now and then the engine is killed and the session resumed. The backend has a count
of its own, tells lies about it, refuses what is too long as two APIs do, and gives summaries that are empty, refusals,
calls, far too long, or none at all. What must hold:

    every request is one that the API would take: each call has its result
    every prompt that a living engine got comes to one end
    nothing that was called in place of a summary runs
    as soon as the backend is well, the next prompt has an answer: no session is lost
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import msgspec

from parley.engine.context.compactor import SUMMARY_REQUEST
from parley.errors import ModelError
from parley.models.base import ModelEvent, ModelRequest
from parley.models.event_synthesis import message_json, synthesize_events
from parley.testing.model_server import ModelServer, ModelSource
from tests.helpers.environment import base_environment
from tests.helpers.process import kill
from tests.stress.stores.scripted_job import flaw_in

Json = dict[str, Any]
PARLEY = str(Path(sys.executable).with_name("parley"))
WINDOW = 12_000
ARGV = ("--model", "m", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--print")
MORE = ("--tools", "Bash", "--allowedTools", "Bash", "--system-prompt", "Be brief.", "--autocompact", str(WINDOW))
STORES = ((), (), ("--store", "folder"), ("--store", "sqlite:sessions.db"), ("--db", "memory.db"))
ENVIRONMENT = {
    "ANTHROPIC_API_KEY": "a-key-for-tests",
    "BASH_MAX_OUTPUT_LENGTH": "60000",
    "CLAUDE_CODE_MAX_RETRIES": "1",
    **base_environment(),
}
COMMANDS = (
    "echo hi",
    "false",
    "sleep 0.1",
    "seq 1 2000",
    "head -c 29000 /dev/zero | tr '\\0' x",
    "head -c 20000 /dev/urandom",
)
PROMPTS = (
    "/compact",
    "/compact heed the numbers",
    "/clear",
    "p " * 5_000,
    "p " * 30_000,
    "问" * 9_000,
    *("hello",) * 8,
)
ENDED = ("completed", "cancelled")
SILENCE_SECONDS = 60
"""Whoever says nothing for so long hangs."""


class Hostile:
    """A backend at its worst, until it is `well`."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._bytes_per_token = dice.choice([3.2, 4, 5])
        self._lies = dice.random() < 0.3
        self._numbers = count(1)
        self.well = False
        self.requests = self.refused = self.summaries = 0
        self.problems: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests += 1
        if wrong := flaw_in(request.messages):
            self.problems.append(wrong)
        asks = any(SUMMARY_REQUEST in block.get("text", "") for block in request.messages[-1]["content"])
        self.summaries += asks
        tokens = int(len(msgspec.json.encode([request.system, request.messages])) / self._bytes_per_token)
        if tokens > WINDOW:
            self.refused += 1
            status = self._dice.choice([400, 413])
            raise ModelError(f"prompt is too long: {tokens} > {WINDOW}", status=status, kind="invalid_request_error")
        await asyncio.sleep(self._dice.choice([0, 0, 0.2]))
        blocks, stop_reason = ([said("Well.")], None) if self.well else self._summary() if asks else self._answer()
        usage = {"input_tokens": 1 if self._lies else tokens, "output_tokens": 1}
        id = f"msg_{next(self._numbers)}_{self.requests}"
        message = message_json(blocks, id=id, model=request.model, usage=usage, stop_reason=stop_reason)
        for event in synthesize_events(message, chunk_chars=4_000):
            yield event

    async def close(self) -> None:
        pass

    def _answer(self) -> tuple[list[Json], str | None]:
        dice, kind = self._dice, self._dice.random()
        if kind < 0.06:
            status = dice.choice([400, 529])
            raise ModelError("odd", status=status, kind="invalid_request_error")
        if kind < 0.5:
            calls = [
                called(f"call_{next(self._numbers)}", dice.choice(COMMANDS)) for _ in range(dice.choice([1, 1, 3]))
            ]
            return [said("I look."), *calls], None
        thought: Json = {"type": "thinking", "thinking": "hm " * dice.randrange(500), "signature": "s"}
        words = said(dice.choice(["word ", "说"]) * dice.randrange(1, 3_000))
        return [*([thought] if kind < 0.7 else []), words], None

    def _summary(self) -> tuple[list[Json], str | None]:
        dice = self._dice
        match dice.randrange(9):
            case 0:
                return [], None
            case 1:
                return [said("I will not.")], "refusal"
            case 2:
                return [said("s" * dice.randrange(100_000))], None
            case 3:
                raise ModelError("no", status=dice.choice([400, 403, 500]), kind="api_error")
            case 4:
                return [said("First"), called(f"call_{next(self._numbers)}", "touch never")], None
            case _:
                return [said("What matters. " * dice.randrange(1, 300))], None


def said(words: str) -> Json:
    return {"type": "text", "text": words}


def called(id: str, command: str) -> Json:
    return {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command}}


class Life:
    """One session, however many engines it takes."""

    def __init__(self, folder: Path, dice: Random) -> None:
        self._folder = folder
        self._dice = dice
        self._store = dice.choice(STORES)
        self.backend = Hostile(dice)
        self.seen: Counter[str] = Counter()
        self._session_id: str | None = None

    async def run(self) -> list[str]:
        """What was wrong."""
        async with ModelServer(ModelSource(self.backend, "m")) as server:
            self._environment = {**ENVIRONMENT, "HOME": str(self._folder), "ANTHROPIC_BASE_URL": server.url}
            await self._begin()
            try:
                for _ in range(self._dice.randrange(6, 14)):
                    await self._step()
                await self._settled()
                self.backend.well = True
                answer = await self._asked("Are you well?")
            finally:
                await self._end()
        problems = [*self.backend.problems]
        if answer["is_error"]:
            problems.append(f"the last prompt has no answer: {answer}")
        if (self._folder / "never").exists():
            problems.append("a call ran that was made in place of a summary")
        if b"Traceback" in self._complaint:
            problems.append(self._complaint.decode())
        return problems

    async def _step(self) -> None:
        """A prompt and what becomes of it."""
        self._say(self._dice.choice(PROMPTS))
        match self._dice.randrange(10):
            case 0 | 1:
                return  # the next one waits behind it
            case 2 | 3:
                await self._hear_for(self._dice.random() * 0.4)
                self._write({"type": "control_request", "request_id": "stop", "request": {"subtype": "interrupt"}})
                await self._settled()
            case 4 if self._session_id is not None:
                await self._hear_for(self._dice.random() * 0.4)
                self.seen["killed"] += 1
                kill(self._engine)
                await self._end()
                await self._begin()
            case _:
                await self._settled()

    async def _begin(self) -> None:
        again = () if self._session_id is None else ("--resume", self._session_id)
        self._open: set[str] = set()
        self._engine = await asyncio.create_subprocess_exec(
            *(PARLEY, *ARGV, *MORE, *self._store, *again),
            cwd=self._folder,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=2**22,
        )

    async def _end(self) -> None:
        assert self._engine.stdin is not None
        self._engine.stdin.close()
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                _, self._complaint = await self._engine.communicate()
        except TimeoutError:
            kill(self._engine)
            raise

    def _say(self, text: str) -> str:
        uuid = str(UUID(int=self._dice.getrandbits(128), version=4))
        self._open.add(uuid)
        self._write({"type": "user", "message": {"role": "user", "content": text}, "uuid": uuid})
        return uuid

    def _write(self, line: Json) -> None:
        assert self._engine.stdin is not None
        self._engine.stdin.write(json.dumps(line).encode() + b"\n")

    async def _hear(self) -> Json:
        assert self._engine.stdout is not None
        raw = await self._engine.stdout.readline()
        if not raw:
            raise AssertionError(f"the engine ended: {(await self._engine.communicate())[1].decode()}")
        line: Json = json.loads(raw)
        self._session_id = line.get("session_id") or self._session_id
        if line["type"] == "command_lifecycle" and line["state"] in ENDED:
            self._open.remove(line["command_uuid"])  # a second end is a KeyError
        self.seen[line["subtype"] if line["type"] == "system" else line["type"]] += 1
        return line

    async def _hear_for(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while True:
                    await self._hear()
        except TimeoutError:
            pass

    async def _settled(self) -> None:
        """Every prompt has come to its end."""
        async with asyncio.timeout(SILENCE_SECONDS):
            while self._open:
                await self._hear()

    async def _asked(self, text: str) -> Json:
        self._say(text)
        async with asyncio.timeout(SILENCE_SECONDS):
            while (line := await self._hear())["type"] != "result":
                pass
        return line


async def storm(folder: Path, *, sessions: int, parallel: int, seed: int) -> tuple[Counter[str], list[str]]:
    """What was seen, and what was wrong."""
    seen: Counter[str] = Counter()
    problems: list[str] = []
    numbers = iter(range(seed, seed + sessions))

    async def live() -> None:
        for number in numbers:
            (folder / str(number)).mkdir()
            life = Life(folder / str(number), Random(number))
            try:
                found = await life.run()
            except (AssertionError, KeyError, TimeoutError) as exc:
                found = [repr(exc)]
            problems.extend(f"session {number}: {problem}" for problem in found)
            backend = life.backend
            seen.update(life.seen, requests=backend.requests, refused=backend.refused, summaries=backend.summaries)

    async with asyncio.TaskGroup() as together:
        for _ in range(parallel):
            together.create_task(live())
    return seen, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen, problems = asyncio.run(
            storm(Path(folder), sessions=chosen.sessions, parallel=chosen.parallel, seed=chosen.seed)
        )
    sys.stdout.write("\n".join([*problems, f"{chosen.sessions} sessions: {dict(sorted(seen.items()))}", ""]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
