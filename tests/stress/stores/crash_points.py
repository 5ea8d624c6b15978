"""T-26: an engine stops at every step of a job, in this process, and another one resumes the session.

    python -m tests.stress.stores.crash_points --points 10000

A step is a record that is about to be written: the engine stops there, as if the power had failed, and what it has
done so far remains. The next engine resumes the session and stops at its own n-th record, and so on, until the job is
done (scripted_job.py). The requirements are those for real kills (engine_kills.py): no line that was sent is lost, no
effect happens twice, each happens, and every request is one that the API accepts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from parley.compose.composer import Composer
from parley.engine.clock import Clock
from parley.engine.session.pump import Pump
from parley.engine.session.session import Session
from parley.protocol.base import Role, Struct
from parley.protocol.connection import Connection
from parley.protocol.dialects.base import StreamJson
from parley.protocol.options import CliOptions
from parley.stores.base import Entry, Log
from parley.tools.base import Context, Tool, ToolOutput, ToolRegistry
from parley.transports.base import create_pair
from parley.workspace.base import Scope
from tests.stress.stores.scripted_job import ENDED, Step, Worker

Json = dict[str, Any]
MOST_LIVES = 200


class Died(BaseException):
    """Not an error that anybody may handle: the process is gone."""


class Mortal(Log):
    """A log whose engine dies when its n-th record is about to be written."""

    def __init__(self, log: Log, records: int) -> None:
        self._log = log
        self._left = records

    def append(self, *entries: Entry) -> None:
        if self._left < len(entries):
            raise Died
        self._left -= len(entries)
        self._log.append(*entries)

    def sync(self) -> None:
        self._log.sync()

    def entries(self, after: int = -1) -> Iterator[Entry]:
        return self._log.entries(after)

    def close(self) -> None:
        self._log.close()


class Input(Struct, frozen=True):
    id: str


class Mark(Tool):
    """An effect that can be counted."""

    name = "Mark"
    description = "Leaves a mark."
    reads_only = False
    input = Input

    def __init__(self) -> None:
        self.marks: list[str] = []

    async def run(self, call: Input, context: Context, reach: Scope) -> ToolOutput:
        self.marks.append(call.id)
        return ToolOutput(content="marked")


class Look(Tool):
    """All marks there are."""

    name = "Look"
    description = "Reads the marks."
    reads_only = True
    input = Input

    def __init__(self, mark: Mark) -> None:
        self._mark = mark

    async def run(self, call: Input, context: Context, reach: Scope) -> ToolOutput:
        return ToolOutput(content="\n".join(["marks:", *self._mark.marks]))


class Job:
    """One session, by as many engines as it takes."""

    def __init__(self, folder: Path, dice: Random) -> None:
        self._folder = folder
        kinds = [dice.choice(["Mark", "Mark", "Look"]) for _ in range(dice.randint(1, 5))]
        self._marks = [number for number, kind in enumerate(kinds) if kind == "Mark"]
        steps: list[Step] = [lambda call, kind=kind: (kind, {"id": call}) for kind in kinds]  # type: ignore[misc]
        self.worker = Worker(steps, lambda call: ("Look", {"id": call}))
        self._mark = Mark()
        self._tools: dict[str, Tool] = {"Mark": self._mark, "Look": Look(self._mark)}
        self._asks = dice.random() < 0.5
        self._session_id: str | None = None
        self._told: dict[str, Json] = {}

    async def run(self, records: list[int]) -> int:
        """Live and die, after so many records each, until the job is done; how many died. Raises AssertionError."""
        for life in range(MOST_LIVES):
            if await self._live(records[life] if life < len(records) else sys.maxsize):
                self._check()
                return life
        raise AssertionError("the job never ends")

    async def _live(self, records: int) -> bool:
        again = {} if self._session_id is None else {"resume": self._session_id}
        mode = {"permission_prompt_tool": "stdio"} if self._asks else {"permission_mode": "bypassPermissions"}
        environment = {"HOME": str(self._folder), "IS_SANDBOX": "1", "PARLEY_FSYNC": "off"}
        composer = Composer(CliOptions(model="offline", **mode, **again), environment, str(self._folder), Clock())
        setup = composer.make_config()
        setup = msgspec.structs.replace(
            setup.with_model_opener(lambda choice: self.worker).with_log(Mortal(setup.storage.log, records)),
            tools=ToolRegistry(list(self._tools), self._tools.__getitem__),
        )
        host, engine = create_pair()
        pump = Pump(Connection(Role.ENGINE, StreamJson()), engine, setup.clock.new_uuid)
        session = Session(setup, pump)
        line = {"type": "user", "message": {"role": "user", "content": "go on"}}
        pump.receive(json.dumps(line).encode() + b"\n", session)
        listening = asyncio.create_task(self._listen(host.chunks(), pump, session))
        try:
            await session.run_turns()
        except (Died, BaseExceptionGroup) as exc:
            if isinstance(exc, BaseExceptionGroup) and exc.split(Died)[1] is not None:
                raise
            return False
        finally:
            engine.close()
            await listening
            setup.storage.log.close()
            if any(setup.storage.log.entries()):
                self._session_id = session.id
        return True

    async def _listen(self, chunks: Any, pump: Pump, session: Session) -> None:
        rest = b""
        async for chunk in chunks:
            *whole, rest = (rest + chunk).split(b"\n")
            for line in map(json.loads, whole):
                if line["type"] in ("user", "assistant", "result"):
                    self._told[line["uuid"]] = line
                if line["type"] == "result":
                    session.close_input()
                    assert line.get("result") == ENDED, line
                if line["type"] == "control_request":
                    answer = {"behavior": "allow", "updatedInput": line["request"]["input"]}
                    response = {"subtype": "success", "request_id": line["request_id"], "response": answer}
                    reply = {"type": "control_response", "response": response}
                    pump.receive(json.dumps(reply).encode() + b"\n", session)

    def _check(self) -> None:
        assert self.worker.problems == []
        assert sorted(int(mark.split("_")[1]) for mark in self._mark.marks) == self._marks
        options = CliOptions(model="offline")
        store = Composer(options, {"HOME": str(self._folder)}, str(self._folder)).stores.store()
        kept = {entry.message.get("uuid"): entry.message for entry in store.read(str(self._session_id))}
        for uuid, line in self._told.items():
            assert kept.get(uuid) == line


def run(folder: Path, *, points: int, seed: int) -> int:
    """At least so many deaths; returns how many jobs that took. Raises AssertionError."""
    dice, died, jobs = Random(seed), 0, 0
    while died < points:
        # The first engine dies at each of its records in turn; those that follow die where the dice say.
        for at in range(MOST_LIVES):
            place = folder / f"job-{jobs}"
            place.mkdir()
            job_dice = Random(seed * 1_000_003 + jobs)
            job = Job(place, Random(dice.randint(0, 9)))
            deaths = asyncio.run(job.run([at, *(job_dice.randint(0, 8) for _ in range(job_dice.randint(0, 3)))]))
            died, jobs = died + deaths, jobs + 1
            if deaths == 0 or died >= points:
                break
    return jobs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        jobs = run(Path(folder), points=given.points, seed=given.seed)
    sys.stdout.write(
        f"{given.points} deaths in {jobs} jobs, nothing lost, nothing twice; {time.monotonic() - started:.0f} s\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
