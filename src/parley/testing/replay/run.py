"""Replay one side of a recording on a transport: as the engine of a client, or as the client of an engine.

    code = await replay_engine(recording, transport, stderr)            # the exit code
    await replay_client(recording, ["parley", "--print", ...])          # raises ReplayDifference

See also: `player.py`, which decides what is sent and compares what arrives.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

import msgspec

from parley.errors import UsageError
from parley.inspector.recording import WireRecording
from parley.protocol.framing import Framer
from parley.testing.replay.player import STDERR, Cue, ReplayDifference, SidePlayer
from parley.transports.base import Transport

WAIT_SECONDS = 10.0
"""How long the other side has to send the next line."""
CHUNK_BYTES = 256 * 1024
MAX_LINE_BYTES = 1 << 30


class ReplayRun:
    """Joins a player with a transport."""

    def __init__(
        self,
        player: SidePlayer,
        transport: Transport,
        stderr: Callable[[str], None],
        *,
        pace: float,
        wait_seconds: float | None,
    ) -> None:
        self._player = player
        self._transport = transport
        self._stderr = stderr
        self._pace = pace
        self._wait_seconds = wait_seconds
        self._last_ms = 0.0

    async def play(self) -> None:
        """Play until the recording ends. Raises ReplayDifference."""
        framer = Framer(MAX_LINE_BYTES)
        chunks = aiter(self._transport.chunks())
        while True:
            for cue in self._player.take():
                await self._send(cue)
            if self._player.done:
                return
            try:
                async with asyncio.timeout(self._wait_seconds):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                raise ReplayDifference(
                    f"{self._player.describe_wait()}, found nothing for {self._wait_seconds:g} seconds"
                ) from None
            for line in framer.end() if chunk is None else framer.feed(chunk):
                if isinstance(line, bytes):
                    self._player.receive(line)
            if chunk is None:
                for cue in self._player.take():
                    await self._send(cue)
                self._player.receive_eof()

    async def _send(self, cue: Cue) -> None:
        if self._pace:
            await asyncio.sleep(max(0.0, cue.at_ms - self._last_ms) / 1000 * self._pace)
        self._last_ms = cue.at_ms
        if cue.sender == STDERR:
            if cue.data:
                self._stderr(cue.data.decode(errors="replace").rstrip("\n"))
        elif cue.eof:
            self._transport.close()
        else:
            with suppress(BrokenPipeError):  # the other side has gone, which its end of stream reports
                self._transport.write(cue.data)
                await self._transport.drain()


async def replay_engine(
    recording: WireRecording, transport: Transport, stderr: Callable[[str], None], *, pace: float = 0
) -> int:
    """Play the engine of a recording. Returns the exit code: the recorded one, or 1 after a difference."""
    player = SidePlayer(recording, "engine", find_places(recording))
    run = ReplayRun(player, transport, stderr, pace=pace, wait_seconds=None)
    try:
        await run.play()
    except ReplayDifference as exc:
        stderr(str(exc))
        # The client must learn the reason, and a client that waits for its turn must not wait for ever.
        with suppress(BrokenPipeError):
            transport.write(msgspec.json.encode(make_result(str(exc))) + b"\n")
            await transport.drain()
        return 1
    has_eof = any(line.eof and line.sender == "client" for line in recording.lines)
    if not has_eof and recording.exit_code == 0:
        async for _ in transport.chunks():
            pass  # an engine ends after its input
    if recording.exit_code is None:
        stderr(f"{recording.name}: the recording was cut here")
    return 1 if recording.exit_code is None else recording.exit_code


def make_result(text: str) -> dict[str, object]:
    """A result that reports a difference."""
    return {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "duration_ms": 0,
        "duration_api_ms": 0,
        "num_turns": 0,
        "session_id": "00000000-0000-4000-8000-000000000001",
        "total_cost_usd": 0.0,
        "usage": {"input_tokens": 0, "output_tokens": 0},
        "modelUsage": {},
        "permission_denials": [],
        "errors": [text],
        "uuid": "00000000-0000-4000-8000-000000000002",
    }


async def replay_client(
    recording: WireRecording, command: Sequence[str], *, pace: float = 0, wait_seconds: float = WAIT_SECONDS
) -> None:
    """Play the client of a recording to an engine. Raises ReplayDifference, UsageError if it cannot be started."""
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    except OSError as exc:
        raise UsageError(f"cannot start {command[0]}: {exc.strerror}") from None
    errors: list[bytes] = []
    assert process.stderr is not None
    logging = asyncio.create_task(collect(process.stderr, errors))
    player = SidePlayer(recording, "client", find_places(recording))
    transport = ProcessTransport(process)
    try:
        await ReplayRun(player, transport, lambda text: None, pace=pace, wait_seconds=wait_seconds).play()
        transport.close()
        async with asyncio.timeout(wait_seconds):
            code = await process.wait()
        if recording.exit_code is not None and code != recording.exit_code:
            raise ReplayDifference(f"{recording.name}: expected exit code {recording.exit_code}, found {code}")
    except TimeoutError:
        raise ReplayDifference(f"{recording.name}: the engine did not exit for {wait_seconds:g} seconds") from None
    except ReplayDifference as exc:
        if log := b"".join(errors).decode(errors="replace").strip():
            raise ReplayDifference(f"{exc}\nstderr of the engine: {log[-500:]}") from None
        raise
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await logging


async def collect(stream: asyncio.StreamReader, found: list[bytes]) -> None:
    while chunk := await stream.read(CHUNK_BYTES):
        found.append(chunk)


def find_places(recording: WireRecording) -> dict[str, str]:
    """The recorded working directory, and that of this run."""
    cwd = recording.header.cwd
    return {cwd: os.getcwd()} if len(cwd) > 1 else {}


class ProcessTransport:
    """The streams of a child process."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._stdout.read(CHUNK_BYTES):
            yield chunk

    def write(self, data: bytes) -> None:
        self._stdin.write(data)

    async def drain(self) -> None:
        with suppress(ConnectionError):
            await self._stdin.drain()

    def close(self) -> None:
        self._stdin.close()
