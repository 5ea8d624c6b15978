"""`parley replay` and `parley fake`: play one side of a recorded conversation, or the engine of a scenario file.

`replay` compares the other side with the recording.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from parley.cli.commands.subcommand import GivenArgs, write_lines
from parley.cli.stdio import warn, write
from parley.errors import UsageError
from parley.fake.replay import ReplayDifference, replay_client, replay_engine
from parley.fake.scenario import Scenario, load_scenario
from parley.fake.serve import end_by_signal, read_command_line, serve_scenario
from parley.stores.wire_recording import WireRecording, read_wire_recording
from parley.testing.launcher_script import write_launcher
from parley.transports.stdio import StdioTransport
from parley.version import PROTOCOL_LEVEL

MAX_SECONDS = 86_400.0


def run_replay(given: GivenArgs) -> int:
    path, *words = given.words
    pace = given.decimal("pace", 0, MAX_SECONDS)
    if given.has("client"):
        return replay_clients(given, Path(path), words, pace)
    recording = read_wire_recording(path, allow_cut=given.has("allow-cut"))
    if given.has("install"):
        cut = ["--allow-cut"] if given.has("allow-cut") else []
        write_launcher(
            Path(given.one("install")), ["replay", str(Path(path).absolute()), *cut, "--pace", f"{pace:g}", "--"]
        )
        return write_lines([f"{given.one('install')} replays the engine of {path}"])
    if "--version" in words or "-v" in words:
        return write_lines([f"{PROTOCOL_LEVEL} (Claude Code)"])

    async def play() -> int:
        return await replay_engine(recording, StdioTransport(), warn, pace=pace)

    code = asyncio.run(play())
    if code < 0:
        end_by_signal(-code)
    return code


def replay_clients(given: GivenArgs, path: Path, command: Sequence[str], pace: float) -> int:
    """Play the client of one recording, or of all in a directory, to an engine."""
    found = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not found:
        raise UsageError(f"{path} has no recordings (files named *.jsonl)")
    recordings: list[WireRecording] = []
    broken: list[str] = []
    for each in found:
        try:
            recordings.append(read_wire_recording(each, allow_cut=given.has("allow-cut")))
        except UsageError as exc:
            broken.append(str(exc))  # the others are replayed all the same
    started = time.monotonic()
    jobs = given.number("jobs", os.cpu_count() or 1)
    wait_seconds = given.decimal("wait-seconds", 10, MAX_SECONDS)
    differences = asyncio.run(compare_all(recordings, command, jobs=jobs, pace=pace, wait_seconds=wait_seconds))
    differences = [*broken, *differences]
    for difference in differences:
        write(f"{difference}\n".encode(errors="replace"))
    seconds = time.monotonic() - started
    equal = len(found) - len(differences)
    write_lines([f"{equal} of {len(found)} recordings equal, {seconds:.1f} s"])
    return 1 if differences else 0


async def compare_all(
    recordings: Sequence[WireRecording], command: Sequence[str], *, jobs: int, pace: float, wait_seconds: float
) -> list[str]:
    """The first difference of each recording that differs. Raises UsageError."""

    free = asyncio.Semaphore(jobs)

    async def compare(recording: WireRecording) -> str | None:
        async with free:
            try:
                await replay_client(
                    recording, command or recording.header.command, pace=pace, wait_seconds=wait_seconds
                )
            except ReplayDifference as exc:
                return str(exc)
        return None

    return [found for found in await asyncio.gather(*map(compare, recordings)) if found is not None]


def run_fake(given: GivenArgs) -> int:
    scenario = load_scenario(given.words[0])
    if given.has("check"):
        return write_lines([describe(scenario)])
    if given.has("install"):
        write_launcher(Path(given.one("install")), ["fake", str(Path(given.words[0]).absolute()), "--"])
        return write_lines([f"{given.one('install')} plays {given.words[0]}"])

    return serve_scenario(scenario, read_command_line(given.words[1:], os.getcwd()), warn)


def describe(scenario: Scenario) -> str:
    steps = sum(len(turn.steps) for turn in scenario.turns)
    return f"{scenario.name}: turns: {len(scenario.turns)}, steps: {steps}, version: {scenario.file.version}"
