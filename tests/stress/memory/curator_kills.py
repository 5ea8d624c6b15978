"""The real executable is killed while its memory is being tidied up, and resumed until that is done.

    python -m tests.stress.memory.curator_kills --kills 200

The curator is a script: it creates entries with long bodies, and changes every second one. After each SIGKILL, at some
time between the start of the process and the end of the consolidation, the memory is looked at as it lies there; then
another process resumes the session, and the script begins anew. What must hold at any time:

    an entry is whole: its text is one that was written, its versions are 1, 2 … without a gap, the last is what counts
    the index finds exactly what the entries say
    a change that was made is not made twice, and none is missing in the end
    one `system/consolidation` for each consolidation that a process came to the end of
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from parley.memory.knowledge_tree import KnowledgeTree, MemoryDatabase
from tests.helpers.environment import base_environment
from tests.helpers.process import kill

Json = dict[str, Any]
PARLEY = str(Path(sys.executable).with_name("parley"))
ENTRIES = 12
BODY_WORDS = 700
STEP_MS = 8
START_SECONDS, WORK_SECONDS = 0.5, 0.6
"""One in five dies so soon after its start, the others so soon after the result of their turn."""
RUN_SECONDS = 60


@dataclass
class Seen:
    """What a number of sessions came to."""

    kills: int = 0
    in_the_middle: int = 0
    """Kills that left some of the work done, and some not."""
    sessions: int = 0
    problems: list[str] = field(default_factory=list)


def body(slug: str, version: int) -> str:
    number = slug.partition("-")[2]
    return " ".join(f"e{number}v{version}w{word}" for word in range(BODY_WORDS))


def wanted() -> dict[str, int]:
    """The entries there shall be in the end, and their versions."""
    return {f"entry-{number}": 1 + number % 2 for number in range(ENTRIES)}


def script() -> str:
    turns = []
    for slug, version in wanted().items():
        given: Json = {"slug": slug, "title": slug, "body": body(slug, 1), "sources": [0]}
        turns.append(call("memory_create", given))
        if version > 1:
            turns.append(call("memory_update", {"slug": slug, "version": 1, "body": body(slug, 2), "sources": [0]}))
    return "".join([*turns, "[[turn]]\ntext = 'Done.'\n"])


def call(tool: str, input: Json) -> str:
    fields = ", ".join(f"{name} = {json.dumps(value)}" for name, value in input.items())
    return f'[[turn]]\ndelay_ms = {STEP_MS}\ntools = [{{ name = "{tool}", input = {{ {fields} }} }}]\n'


class Life:
    """One session, and all its processes."""

    def __init__(self, folder: Path, dice: Random, kills: int, seen: Seen) -> None:
        folder.mkdir()
        (folder / "curator.toml").write_text(script())
        self._folder = folder
        self._dice = dice
        self._kills = kills
        self._seen = seen
        self._killer: asyncio.TimerHandle | None = None
        self._id = f"{dice.getrandbits(32):08x}-1111-4111-8111-111111111111"

    async def run(self) -> None:
        self._seen.sessions += 1
        async with asyncio.timeout(RUN_SECONDS):
            while not await self._process():
                self._check(is_end=False)
        self._check(is_end=True)

    async def _process(self) -> bool:
        """One process; whether it came to the end of its consolidation."""
        engine = await asyncio.create_subprocess_exec(
            *(PARLEY, *self._argv()),
            cwd=self._folder,
            env={"HOME": str(self._folder), **base_environment()},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert engine.stdout is not None
        assert engine.stderr is not None
        is_early, lines = self._dice.random() < 0.2, list[Json]()
        if is_early:
            self._kill_in(START_SECONDS, engine)
        while (raw := await engine.stdout.readline()).endswith(b"\n"):
            line = json.loads(raw)
            if line["type"] == "result" and not is_early:
                self._kill_in(WORK_SECONDS, engine)
            lines += [line] if line.get("subtype") == "consolidation" else []
        warnings = await engine.stderr.read()
        await engine.wait()
        if self._killer is not None:
            self._killer.cancel()
        if engine.returncode == 0 and (len(lines) != 1 or "fail" in str(lines[0].get("summary"))):
            self._seen.problems.append(f"{self._folder.name}: told {lines}, {warnings.decode()}")
        elif engine.returncode not in (0, -9):
            self._seen.problems.append(f"{self._folder.name}: ended with {engine.returncode}: {warnings.decode()}")
            return True
        return engine.returncode == 0

    def _argv(self) -> list[str]:
        memory = {"model": f"scripted:{self._folder / 'curator.toml'}", "trivialTokens": 0, "maxCalls": 99}
        known = self._is_kept()
        which = ["--resume", self._id] if known else ["--session-id", self._id]
        flags = ["--model", "offline", "--db", "agent.db", "--settings", json.dumps({"memory": memory})]
        return ["-p", "--output-format", "stream-json", "--verbose", *flags, *which, "say It was a long day."]

    def _is_kept(self) -> bool:
        """Whether the session has a record by now."""
        if not (self._folder / "agent.db").exists():
            return False
        with closing(sqlite3.connect(self._folder / "agent.db")) as database:
            tables = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'parley_sessions'").fetchone()
            return bool(tables and database.execute("SELECT 1 FROM parley_sessions").fetchone())

    def _kill_in(self, seconds: float, engine: asyncio.subprocess.Process) -> None:
        if self._kills > 0:
            loop = asyncio.get_running_loop()
            self._killer = loop.call_later(self._dice.random() * seconds, self._kill, engine)

    def _kill(self, engine: asyncio.subprocess.Process) -> None:
        if engine.returncode is None:
            kill(engine)
            self._kills -= 1
            self._seen.kills += 1

    def _check(self, *, is_end: bool) -> None:
        path, name, seen = self._folder / "agent.db", self._folder.name, self._seen
        tree = KnowledgeTree(MemoryDatabase(path), str)
        there = {entry.slug: entry for entry in tree.entries(archived=True)}
        for slug, entry in there.items():
            history = tree.history(slug)
            if [each.version for each in history] != list(range(1, entry.version + 1)) or history[-1] != entry:
                seen.problems.append(f"{name}: {slug} has the versions {[each.version for each in history]}")
            seen.problems += [
                f"{name}: {slug} is not whole at version {each.version}"
                for each in history
                if each.body != body(slug, each.version) or not each.sources
            ]
            if tree.search(entry.body.split()[-1], 3) != [entry]:
                seen.problems.append(f"{name}: {slug} is not found by what it says")
        if too_many := {slug for slug, entry in there.items() if entry.version > wanted().get(slug, 0)}:
            seen.problems.append(f"{name}: changed too often: {too_many}")
        done = {slug: entry.version for slug, entry in there.items()}
        seen.in_the_middle += bool(done) and done != wanted()
        if is_end and done != wanted():
            seen.problems.append(f"{name}: in the end there is {done}")
        self._check_file(path)

    def _check_file(self, path: Path) -> None:
        if not path.exists():
            return
        with closing(sqlite3.connect(path)) as database:
            checks = [database.execute("PRAGMA integrity_check").fetchone()[0]]
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'memory_entry_words'").fetchone():
                database.execute("INSERT INTO memory_entry_words (memory_entry_words) VALUES ('integrity-check')")
        self._seen.problems += [f"{self._folder.name}: {check}" for check in checks if check != "ok"]


async def storm(folder: Path, *, kills: int, parallel: int, seed: int, each: int = 5) -> Seen:
    """At least so many kills, a few to each session."""
    seen, dice = Seen(), Random(seed)

    async def work() -> None:
        while seen.kills < kills:
            await Life(folder / f"life-{seen.sessions}", Random(dice.random()), each, seen).run()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(parallel):
            tasks.create_task(work())
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen = asyncio.run(storm(Path(folder), kills=given.kills, parallel=given.parallel, seed=given.seed))
    told = f"{seen.kills} kills in {seen.sessions} sessions, {seen.in_the_middle} of them in the middle of the work"
    sys.stdout.write("\n".join([told, *seen.problems]) + "\n")
    return 1 if seen.problems else 0


if __name__ == "__main__":
    sys.exit(main())
