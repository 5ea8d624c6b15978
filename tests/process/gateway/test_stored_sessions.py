"""The sessions that other programs store, as the hub of `parley console` has them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from parley.gateway.hub import SERVER, HubSettings, SessionHub
from parley.gateway.index.session_list import SessionInfo, SessionQuery
from parley.gateway.live_session import LiveSession
from parley.gateway.refusal import Refusal
from parley.gateway.reporting import ServerLog
from parley.gateway.session_options import SessionRequest
from parley.gateway.stored_sessions import StoredSessions
from tests.helpers.forked import ForkedPipes
from tests.helpers.gateway import user
from tests.helpers.patience import PATIENCE_SECONDS

STREAM = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--model", "offline")


class Console:
    """A hub with the sessions of other programs. It takes what is new when `follow` is called."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir(exist_ok=True)
        self.transcripts = folder / "config" / "projects"
        self.environment = {**os.environ, "HOME": str(folder), "CLAUDE_CONFIG_DIR": str(folder / "config")}
        settings = HubSettings(
            state=folder / "state",
            root=str(self.root),
            argv=("--model", "offline"),
            environment=self.environment,
            shows_stored=True,
        )
        self.warnings: list[str] = []
        self.hub = SessionHub(settings, ServerLog(self.warnings.append))
        self.stored = StoredSessions(self.hub)

    async def __aenter__(self) -> Self:
        self.hub.catch_up(self.warnings.append)
        self.watcher = self.hub.events.watch(SERVER)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hub.drain(0)
        self.hub.close()

    async def follow(self) -> list[SessionInfo]:
        """Take what is new; returns the list."""
        await self.stored.follow()
        return self.hub.find_sessions(SERVER, SessionQuery())[0]

    async def prompt(self, live: LiveSession, text: str) -> None:
        """Run a turn here."""
        client = live.attach(SERVER, None, lambda line: True)
        live.prompt(SERVER, user(text).encode())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while live.is_busy:
                await client.subscriber.take()
        live.detach(client)

    @asynccontextmanager
    async def program(self, *options: str) -> AsyncIterator[Program]:
        """Another program with a session below the root."""
        process = await ForkedPipes.start((*STREAM, *options), env=self.environment, cwd=str(self.root))
        try:
            yield Program(process)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()

    async def run_elsewhere(self, text: str, *options: str) -> str:
        """Run a turn in another program, which then ends; returns the session."""
        async with self.program(*options) as program:
            return await program.prompt(text)

    def path(self, session_id: str) -> Path:
        (found,) = self.transcripts.glob(f"*/{session_id}.jsonl")
        return found


class Program:
    def __init__(self, process: ForkedPipes) -> None:
        self.process = process

    async def prompt(self, text: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(user(text).encode())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (line := json.loads(await self.process.stdout.readline()))["type"] != "result":
                pass
        return str(line["session_id"])


def lines(live: LiveSession) -> list[dict[str, Any]]:
    return [json.loads(line) for _, line in live.log.read(0, 1 << 30)]


def results(live: LiveSession) -> list[str]:
    return [line["result"] for line in lines(live) if line["type"] == "result"]


def assert_nothing_is_repeated(live: LiveSession) -> None:
    ids = [line["uuid"] for line in lines(live) if "uuid" in line]
    assert len(ids) == len(set(ids))


async def test_a_damaged_transcript_does_not_hide_the_others_and_is_reported_once(tmp_path: Path) -> None:
    async with Console(tmp_path) as console:
        sound = [await console.run_elsewhere("say Sound.") for _ in range(2)]
        damaged = await console.run_elsewhere("say Damaged.")
        path = console.path(damaged)
        first, second, *rest = path.read_bytes().split(b"\n")
        path.write_bytes(b"\n".join([first, second[:40], *rest]))
        os.utime(path, (0, 0))
        for _ in range(3):
            assert {info.id for info in await console.follow()} == set(sound)
        (warning,) = console.warnings
        assert damaged in warning


async def test_a_session_that_runs_here_while_nobody_watches_is_logged_once(tmp_path: Path) -> None:
    async with Console(tmp_path) as console:
        session = await console.run_elsewhere("say Theirs.")
        await console.follow()
        live = console.hub.get(SERVER, session)
        await console.prompt(live, "say Ours.")
        await console.hub.release(SERVER, session)
        await console.run_elsewhere("say Again.", "--resume", session)
        await console.follow()
        assert results(live) == ["Theirs.", "Ours.", "Again."]
        assert_nothing_is_repeated(live)


async def test_what_another_program_said_before_a_prompt_here_comes_before_it(tmp_path: Path) -> None:
    async with Console(tmp_path) as console:
        session = await console.run_elsewhere("say One.")
        await console.follow()
        await console.run_elsewhere("say Two.", "--resume", session)
        live = console.hub.get(SERVER, session)
        await console.prompt(live, "say Three.")
        await console.follow()
        await console.hub.release(SERVER, session)
        await console.follow()
        assert results(live) == ["One.", "Two.", "Three."]
        assert_nothing_is_repeated(live)


async def test_a_prompt_that_arrives_while_the_transcript_is_read(tmp_path: Path) -> None:
    async with Console(tmp_path) as console:
        session = await console.run_elsewhere("say One.")
        await console.follow()
        await console.run_elsewhere("say Two.", "--resume", session)
        live = console.hub.get(SERVER, session)
        following = asyncio.create_task(console.follow())
        await asyncio.sleep(0)
        await console.prompt(live, "say Three.")
        (info,) = await following
        assert not info.is_elsewhere
        await console.follow()
        await console.hub.release(SERVER, session)
        await console.follow()
        assert results(live) == ["One.", "Two.", "Three."]
        assert_nothing_is_repeated(live)


async def test_a_session_that_was_released_while_nobody_watched_takes_prompts(tmp_path: Path) -> None:
    async with Console(tmp_path) as console:
        async with console.program() as program:
            session = await program.prompt("say Theirs.")
            (info,) = await console.follow()
            assert info.is_elsewhere is True
            live = console.hub.get(SERVER, session)
            with pytest.raises(Refusal, match="another process runs the session"):
                live.prompt(SERVER, user("say No.").encode())
        await console.prompt(live, "say Ours.")
        assert results(live) == ["Theirs.", "Ours."]
        (info,) = await console.follow()
        assert not info.is_elsewhere


async def test_a_holder_that_was_not_noticed_is_named_and_can_be_taken_over(tmp_path: Path) -> None:
    async with Console(tmp_path) as console:
        session = await console.run_elsewhere("say One.")
        await console.follow()
        live = console.hub.get(SERVER, session)
        async with console.program("--resume", session) as program:
            await program.prompt("say Two.")
            with pytest.raises(Refusal, match="another process runs the session"):
                live.prompt(SERVER, user("say No.").encode())
            console.hub.take(SERVER, session)
            await console.prompt(live, "say Three.")
            (info,) = await console.follow()
            assert (info.is_loaded, bool(info.is_elsewhere)) == (True, False)
        assert results(live) == ["One.", "Two.", "Three."]
        assert_nothing_is_repeated(live)


async def test_a_session_that_continues_under_another_id_is_listed_once(tmp_path: Path) -> None:
    async with Console(tmp_path) as console:
        live = console.hub.create(SERVER, SessionRequest())
        for text in ("say One.", "/clear", "say Two.", "/clear", "say Three."):
            await console.prompt(live, text)
        assert len(list(console.transcripts.glob("*/*.jsonl"))) == 3
        assert [info.id for info in await console.follow()] == [live.id]

        await console.hub.release(SERVER, live.id)
        await console.run_elsewhere("say Four.", "--resume", live.engine_id)
        assert [info.id for info in await console.follow()] == [live.id]
        assert [result for result in results(live) if result] == ["One.", "Two.", "Three.", "Four."]
        assert_nothing_is_repeated(live)

    async with Console(tmp_path) as console:
        assert [info.id for info in await console.follow()] == [live.id]
        await console.hub.delete(SERVER, live.id)
        assert await console.follow() == []
    async with Console(tmp_path) as console:
        assert await console.follow() == []
        assert console.warnings == []


async def test_a_fork_that_is_being_copied_is_no_session_of_another_program(tmp_path: Path) -> None:
    async with Console(tmp_path) as console:
        live = console.hub.create(SERVER, SessionRequest())
        for number in range(20):
            await console.prompt(live, f"say {number}.")
        forking = asyncio.create_task(console.hub.fork(SERVER, live.id, None, "Fork"))
        while not forking.done():
            await console.follow()
        fork = await forking
        titles = {info.id: info.title for info in await console.follow()}
        assert (set(titles), titles[fork.id]) == ({live.id, fork.id}, "Fork")
        assert results(fork) == results(live)
        assert_nothing_is_repeated(fork)
