"""Fake engines in the process of the test, for a client that takes a transport.

async with Client(options, transport=scenario_wire("notes.toml")) as client: ...
async with Client(options, transport=replay_wire("conversation.jsonl")) as client: ...
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parley.fake.engine import FakeEngine
from parley.fake.link import FakeOptions
from parley.fake.replay import replay_engine
from parley.fake.scenario import Scenario, load_scenario
from parley.inspector.recorder import ConversationRecorder, RecordedTransport
from parley.local_engine import LocalEngine
from parley.sdk.launch.in_process import SameLoop
from parley.sdk.runtime.transport import Ended
from parley.stores.wire_recording import WireHeader, WireRecording, read_wire_recording
from parley.stores.wire_redaction import WireRedactor, clean_command
from parley.transports.base import Transport

if TYPE_CHECKING:
    from parley.engine.clock import Clock

Play = Callable[[Transport, Callable[[str], None]], Awaitable[int]]
"""Play an engine on a transport, with a function for its stderr; the exit code."""


class FakePlayer:
    """Plays an engine for one client, once."""

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
        self._playing: asyncio.Task[object] | None = None

    async def run(self, transport: Transport) -> None:
        self._playing = asyncio.current_task()
        if self._record is None:
            self._exit_code = await self._play(transport, self._stderr.append)
            return
        redactor = WireRedactor(self._env)
        command = tuple(clean_command(self._command, redactor.redact_text))
        # Without the time of day, so that two recordings of one conversation are equal.
        header = WireHeader(command=command, cwd=os.getcwd())
        recorder = ConversationRecorder(self._record, header, redactor, asyncio.get_running_loop().time)
        recorded = RecordedTransport(transport, recorder)
        try:
            self._exit_code = await self._play(recorded, self._stderr.append)
        finally:
            recorded.close()
            recorder.end(self._exit_code)

    def stop(self) -> None:
        if self._playing is not None:
            self._playing.cancel()

    def ended(self) -> Ended:
        return Ended(self._exit_code, "\n".join(self._stderr))


def engine_wire(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    clock: Clock | None = None,
    record: Path | None = None,
    program: str = "parley",
) -> SameLoop:
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

    return SameLoop(FakePlayer(play, record=record, command=[program, *words], env=env))


def scenario_wire(
    scenario: Scenario | str | os.PathLike[str], *, partial: bool = False, record: Path | None = None
) -> SameLoop:
    """An engine that plays a scenario, given as a file or with `read_scenario`. Raises UsageError."""
    loaded = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    options = FakeOptions(cwd=os.getcwd(), partial=partial)
    return SameLoop(
        FakePlayer(
            lambda transport, stderr: FakeEngine(loaded, transport, options, stderr).run(),
            record=record,
            command=["parley", "fake", loaded.name],
        )
    )


def replay_wire(
    recording: WireRecording | str | os.PathLike[str], *, pace: float = 0, record: Path | None = None
) -> SameLoop:
    """An engine that replays its side of a recording; `pace` 1 is the recorded pace. Raises UsageError."""
    loaded = recording if isinstance(recording, WireRecording) else read_wire_recording(recording)
    return SameLoop(
        FakePlayer(
            lambda transport, stderr: replay_engine(loaded, transport, stderr, pace=pace),
            record=record,
            command=loaded.header.command,
        )
    )
