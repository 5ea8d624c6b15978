"""Fake engines in the process of the test, for a client that takes a transport.

async with Client(options, transport=scenario_wire("notes.toml")) as client: ...
async with Client(options, transport=replay_wire("talk.jsonl")) as client: ...
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parley.inspector.recorder import ConversationRecorder, RecordedTransport
from parley.inspector.recording import WireHeader, WireRecording, read_wire_recording
from parley.inspector.redaction import WireRedactor, clean_command
from parley.local_engine import LocalEngine
from parley.sdk.errors import CLIConnectionError
from parley.sdk.runtime.transport import Ended
from parley.testing.fake.engine import FakeEngine
from parley.testing.fake.link import FakeOptions
from parley.testing.fake.scenario import Scenario, load_scenario
from parley.testing.replay import replay_engine
from parley.transports.base import Transport, create_pair

if TYPE_CHECKING:
    from parley.engine.clock import Clock

Play = Callable[[Transport, Callable[[str], None]], Awaitable[int]]
"""Play an engine on a transport, with a function for its stderr; the exit code."""


class InProcessWire:
    """A fake engine for one client, once."""

    pid = None

    def __init__(
        self,
        play: Play,
        *,
        record: Path | None = None,
        command: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`record`: write the conversation to this file, with `command` as the command of the engine.

        Secrets among the values of `env`, and of the variables of this process, are not recorded.
        """
        self._play = play
        self._record = record
        self._command = tuple(command)
        self._env = {**os.environ, **(env or {})}
        self._stderr: list[str] = []
        self._exit_code: int | None = None
        self._host, self._engine = create_pair()
        self._playing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._playing = asyncio.create_task(self._run())

    async def _run(self) -> None:
        if self._record is None:
            try:
                self._exit_code = await self._play(self._engine, self._stderr.append)
            finally:
                self._engine.close()
            return
        redactor = WireRedactor(self._env)
        command = tuple(clean_command(self._command, redactor.redact_text))
        # Without the time of day, so that two recordings of one conversation are equal.
        header = WireHeader(command=command, cwd=os.getcwd())
        recorder = ConversationRecorder(self._record, header, redactor, asyncio.get_running_loop().time)
        transport = RecordedTransport(self._engine, recorder)
        try:
            self._exit_code = await self._play(transport, self._stderr.append)
        finally:
            transport.close()
            recorder.end(self._exit_code)

    def chunks(self) -> AsyncIterator[bytes]:
        return self._host.chunks()

    def write(self, data: bytes) -> None:
        if self._exit_code is not None:
            raise CLIConnectionError("the engine no longer reads its input")
        self._host.write(data)

    async def flush(self) -> None:
        """Nothing is buffered."""

    async def end_input(self) -> None:
        self._host.close()

    async def ended(self) -> Ended:
        if self._playing is not None:
            await asyncio.wait([self._playing])
        return Ended(self._exit_code, "\n".join(self._stderr))

    async def close(self, busy: bool) -> Ended:
        self._host.close()
        if self._playing is not None and busy:
            self._playing.cancel()
        return await self.ended()

    def abandon(self) -> None:
        if self._playing is not None:
            self._playing.get_loop().call_soon_threadsafe(self._playing.cancel)


def engine_wire(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    clock: Clock | None = None,
    record: Path | None = None,
    program: str = "parley",
) -> InProcessWire:
    """A real engine, started with these arguments. `clock`: its ids and times (`make_virtual_clock`).

    `record`: write a recording, which names `program` as the executable.
    """
    words = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose", *argv]
    engine = LocalEngine(words, cwd, env, clock=clock)

    async def play(transport: Transport, stderr: Callable[[str], None]) -> int:
        await engine.run(transport)
        for line in engine.stderr().splitlines():
            stderr(line)
        return engine.exit_code or 0

    return InProcessWire(play, record=record, command=[program, *words], env=env)


def scenario_wire(
    scenario: Scenario | str | os.PathLike[str], *, partial: bool = False, record: Path | None = None
) -> InProcessWire:
    """An engine that plays a scenario, given as a file or with `read_scenario`. Raises UsageError."""
    loaded = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    options = FakeOptions(cwd=os.getcwd(), partial=partial)
    return InProcessWire(
        lambda transport, stderr: FakeEngine(loaded, transport, options, stderr).run(),
        record=record,
        command=["parley", "fake", loaded.name],
    )


def replay_wire(
    recording: WireRecording | str | os.PathLike[str], *, pace: float = 0, record: Path | None = None
) -> InProcessWire:
    """An engine that replays its side of a recording; `pace` 1 is the recorded pace. Raises UsageError."""
    loaded = recording if isinstance(recording, WireRecording) else read_wire_recording(recording)
    return InProcessWire(
        lambda transport, stderr: replay_engine(loaded, transport, stderr, pace=pace),
        record=record,
        command=loaded.header.command,
    )
