"""T-29: every N-th open, write, fsync and rename fails, and works again for the next prompt.

    python -m tests.stress.stores.failing_disk --most 400

A session does a job (scripted_job.py) with marks that can be counted and files that are written for real. The N-th
operation on a file fails with ENOSPC, EIO or EROFS: once, three times, or until the prompt has
its result. Then the disk is well again, and the next prompt has to finish the job. What must hold: each prompt has
one result, nothing that was told is lost, no mark is made twice, every request is one that the API would take, and
no fault of the disk is taken for one of the engine.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from parley.compose.composer import Composer
from parley.compose.tools import make_tool
from parley.engine.session.pump import Pump
from parley.engine.session.session import Session
from parley.errors import SessionError
from parley.protocol.base import Role
from parley.protocol.connection import Connection
from parley.protocol.dialects.base import StreamJson
from parley.protocol.options import CliOptions
from parley.tools.base import Tool, ToolRegistry
from parley.transports.base import create_pair
from tests.helpers.patience import PATIENCE_SECONDS
from tests.stress.stores.crash_points import Look, Mark
from tests.stress.stores.scripted_job import ENDED, Step, Worker

Json = dict[str, Any]
OPERATIONS = ("open", "write", "pwrite", "fsync", "fdatasync", "rename", "replace", "ftruncate", "mkdir")
FLAWS = (errno.ENOSPC, errno.EIO, errno.EROFS)
LENGTHS = (1, 3, sys.maxsize)
"""How many operations in a row fail."""
PROMPT = {"type": "user", "message": {"role": "user", "content": "go on"}}


class Disk:
    """Where the engine keeps its files and works, and what goes wrong there."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.done = 0
        self.failed: Counter[str] = Counter()
        self.first, self.length, self.problem = sys.maxsize, 0, errno.EIO

    @contextmanager
    def between(self) -> Iterator[None]:
        """Stand between everybody and the operating system."""
        real = {name: getattr(os, name) for name in OPERATIONS}
        for name, function in real.items():
            setattr(os, name, self._wrapped(name, function))
        try:
            yield
        finally:
            for name, function in real.items():
                setattr(os, name, function)

    def _wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def operate(target: Any, *args: Any, **named: Any) -> Any:
            within = named.get("dir_fd", named.get("src_dir_fd"))
            if self._is_ours(target if within is None else within):
                self.done += 1
                if self.first <= self.done < self.first + self.length:
                    self.failed[name] += 1
                    raise OSError(self.problem, os.strerror(self.problem), None if isinstance(target, int) else target)
            return function(target, *args, **named)

        return operate

    def _is_ours(self, target: Any) -> bool:
        try:
            path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.fspath(target)
        except (OSError, TypeError):
            return False
        return os.fsdecode(path).startswith(self._folder)


class Job:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mark = Mark()
        own: dict[str, Tool] = {"Mark": self._mark, "Look": Look(self._mark)}
        self._tools = ToolRegistry([*own, "Write"], lambda name: own.get(name) or make_tool(name))
        kinds = ("Mark", "Write", "Look", "Look", "Write", "Mark")
        steps: list[Step] = [self._step(kind) for kind in kinds]
        self.worker = Worker(steps, lambda call: ("Look", {"id": call}), lenient=True)
        self.warnings: list[str] = []
        self.told: list[Json] = []
        self._heard = asyncio.Semaphore(0)

    def _step(self, kind: str) -> Step:
        if kind == "Write":
            return lambda call: (kind, {"file_path": str(self._folder / "note"), "content": call})
        return lambda call: (kind, {"id": call})

    async def run(self, disk: Disk) -> bool:
        """Whether the session could be opened at all. Raises AssertionError."""
        environment = {"HOME": str(self._folder), "IS_SANDBOX": "1"}
        options = CliOptions(model="offline", permission_mode="bypassPermissions")
        composer = Composer(options, environment, str(self._folder), warn=self.warnings.append)
        try:
            setup = composer.make_config()
            setup = msgspec.structs.replace(setup.with_model_opener(lambda choice: self.worker), tools=self._tools)
            host, engine = create_pair()
            pump = Pump(Connection(Role.ENGINE, StreamJson()), engine, setup.clock.new_uuid)
            session = Session(setup, pump)
        except (SessionError, OSError):
            return False  # the door tells the one result there is
        listening = asyncio.create_task(self._listen(host.chunks()))
        running = asyncio.create_task(session.run_turns())
        for _ in range(2):
            pump.receive(json.dumps(PROMPT).encode() + b"\n", session)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._heard.acquire()
            disk.first = sys.maxsize  # it is well again
        session.close_input()
        await running
        engine.close()
        await listening
        setup.storage.log.close()
        self._check(composer, session.id)
        return True

    async def _listen(self, chunks: Any) -> None:
        rest = b""
        async for chunk in chunks:
            *whole, rest = (rest + chunk).split(b"\n")
            for line in map(json.loads, whole):
                self.told.append(line)
                if line["type"] == "result":
                    self._heard.release()

    def _check(self, composer: Composer, session_id: str) -> None:
        results = [line for line in self.told if line["type"] == "result"]
        assert len(results) == 2, results
        assert results[1]["result"] == ENDED, results[1]
        assert self.worker.problems == []
        assert "Traceback" not in "\n".join(self.warnings), "\n".join(self.warnings)
        assert sorted(int(mark.split("_")[1]) for mark in self._mark.marks) == [0, 5]
        kept = {entry.message.get("uuid"): entry.message for entry in composer.stores.store().read(session_id)}
        for line in self.told:
            if line["type"] in ("user", "assistant"):
                assert kept.get(line["uuid"]) == line


def run(folder: Path, *, most: int, every: int = 1) -> Counter[str]:
    """Let each operation fail, up to the last there is; returns what failed how often. Raises AssertionError."""
    failed: Counter[str] = Counter()
    for first in range(1, most + 1, every):
        ended = True
        for at, problem in enumerate(FLAWS):
            place = folder / f"{first}-{problem}"
            place.mkdir()
            disk = Disk(place)
            disk.first, disk.length, disk.problem = first, LENGTHS[(first + at) % len(LENGTHS)], problem
            with disk.between():
                opened = asyncio.run(Job(place).run(disk))
            failed += disk.failed
            failed["jobs"] += 1
            failed["not opened"] += not opened
            ended = ended and not disk.failed
        if ended:
            break
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1000, help="the last operation to fail, if there are so many")
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        failed = run(Path(folder), most=given.most, every=given.every)
    sys.stdout.write(f"{dict(failed)}; one result each, nothing lost; {time.monotonic() - started:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
