"""Run many engines on one configuration folder: no session is mixed up, damaged or lost.

    python -m tests.stress.stores.concurrent_sessions --engines 50 --rounds 3 --store sqlite

Every engine has a session of its own, which it resumes in each round with a call that writes a file; all of them fork
one shared session, and race to resume it. In the end every transcript must be whole, hold exactly what was
acknowledged, in order, and no process may still hold a lease.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

from parley.stores.base import Entry, Store
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.store import ClaudeStore
from parley.stores.sql.sqlite import SqliteStore
from tests.helpers.environment import base_environment
from tests.helpers.patience import PATIENCE_SECONDS

PARLEY = str(Path(sys.executable).with_name("parley"))
SHARED = str(UUID(int=1, version=4))


class Wrong(Exception):
    """Something was lost, mixed up or left behind."""


class House:
    """One config folder and one project."""

    def __init__(self, folder: Path, parallel: int, store: str) -> None:
        self.config, self.project = folder / "config", folder / "project"
        self._store = store
        self._database = self.config / "sessions.db"
        self.project.mkdir(parents=True)
        self._places = asyncio.Semaphore(parallel)
        self.acknowledged: dict[str, list[str]] = {}
        self.outcomes: Counter[str] = Counter()

    async def ask(self, prompt: str, *argv: str) -> Any:
        """Run one prompt; gives the result line."""
        environment = {
            **base_environment(),
            "HOME": str(self.config.parent / "home"),
            "CLAUDE_CONFIG_DIR": str(self.config),
        }
        flags = (
            "-p",
            "--output-format",
            "json",
            "--model",
            "offline",
            "--allowedTools",
            "Write",
            *self._place(),
            *argv,
        )
        async with self._places:
            engine = await asyncio.create_subprocess_exec(
                PARLEY,
                *flags,
                "--",
                prompt,
                cwd=self.project,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await asyncio.wait_for(engine.communicate(), PATIENCE_SECONDS)
        if not out:
            raise Wrong(f"no result: {err.decode()}")
        result = json.loads(out)
        if not result["is_error"]:
            self.acknowledged.setdefault(result["session_id"], []).append(prompt)
        return result

    def _place(self) -> tuple[str, ...]:
        return ("--db", str(self._database)) if self._store == "sqlite" else ()

    async def live(self, number: int, rounds: int) -> None:
        """The life of one engine after the other, in one session."""
        own = str(UUID(int=1000 + number, version=4))
        for turn in range(rounds):
            note = json.dumps({"file_path": str(self.project / f"{number}-{turn}"), "content": "x"})
            which = ("--resume", own) if turn else ("--session-id", own)
            self._check(await self.ask(f"call Write {note}\nsay {number}-{turn}", *which), own)
            forked = await self.ask(f"say fork {number}-{turn}", "--resume", SHARED, "--fork-session")
            if forked["is_error"] or forked["session_id"] == SHARED:
                raise Wrong(f"a fork failed: {forked}")
            self._count(await self.ask(f"say shared {number}-{turn}", "--resume", SHARED))

    def _check(self, result: Any, session_id: str) -> None:
        if result["is_error"] or result["session_id"] != session_id:
            raise Wrong(f"a session of its own failed: {result}")
        self.outcomes["own"] += 1

    def _count(self, result: Any) -> None:
        if result["is_error"] and "is in use by process" not in result["errors"][0]:
            raise Wrong(f"refused for another reason: {result}")
        self.outcomes["refused" if result["is_error"] else "shared"] += 1

    def inspect(self) -> None:
        """Raises Wrong unless everything that was acknowledged is there, and nothing else."""
        warnings: list[str] = []
        context = EntryContext(cwd=str(self.project), version="2.1.0")
        store: Store = ClaudeStore(self.config, context, warnings.append)
        if self._store == "sqlite":
            store = SqliteStore(self._database, context)
        for session_id, prompts in self.acknowledged.items():
            found = [text for entry in store.read(session_id) if (text := prompt_of(entry)) is not None]
            # A fork begins with what the shared session held by then. Of two engines that ended one after the other
            # we may hear in either order.
            if sorted(found[-len(prompts) :]) != sorted(prompts):
                raise Wrong(f"{session_id} holds {found}, and {prompts} was acknowledged")
        if warnings:
            raise Wrong(f"damaged: {warnings}")
        held = [*self.config.glob("leases/*"), *self.config.glob("*.leases/*")]
        if held:
            raise Wrong(f"left behind: {held}")
        if (self.config.parent / "home").exists():
            raise Wrong("something was written outside of the config folder")


def prompt_of(entry: Entry) -> str | None:
    content = entry.message["message"]["content"] if entry.kind == "user" else None
    return content if isinstance(content, str) else None


async def run(folder: Path, *, engines: int, rounds: int, parallel: int, store: str = "claude") -> Counter[str]:
    house = House(folder, parallel, store)
    await house.ask("say begin", "--session-id", SHARED)
    await asyncio.gather(*(house.live(number, rounds) for number in range(engines)))
    house.inspect()
    files = len(list(house.project.iterdir()))
    if files != engines * rounds:
        raise Wrong(f"{files} files were written")
    return house.outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", choices=("claude", "sqlite"), default="claude")
    given = parser.parse_args()
    size = {"engines": given.engines, "rounds": given.rounds, "parallel": given.engines}
    with tempfile.TemporaryDirectory() as folder:
        outcomes = asyncio.run(run(Path(folder), **size, store=given.store))
    sys.stdout.write(f"{given.engines} engines at once, {given.rounds} rounds: {dict(outcomes)}, nothing lost\n")


if __name__ == "__main__":
    main()
