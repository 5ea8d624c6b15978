"""Record conversations with a real engine, and re-run them offline: how long it takes, and whether anything differs.

    python -m tests.stress.testing.recordings --recordings 100 --replays 100

Three figures are printed: recorded conversations (client and engine in one process, on a virtual clock), replays of one
recording to a client on a virtual clock (all must be equal byte for byte), and re-runs of all recordings against the
executable (`parley replay --client`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from parley import Client, Options, PermissionResultAllow, PermissionResultDeny
from parley.fake.in_process import engine_wire, replay_wire
from parley.models.script import Script, ScriptedCall, ScriptedTurn, call
from parley.sdk.launch.in_process import SameLoop
from parley.stores.wire_recording import WireRecording, read_wire_recording
from parley.testing.virtual_time import make_virtual_clock, run_in_virtual_time

PARLEY = Path(sys.executable).with_name("parley")
PROMPTS = ("What is here?", "Go on.")


def make_script(dice: Random) -> Script:
    """Two turns of a model that talks, waits, and calls tools that change nothing."""
    turns: list[ScriptedTurn] = []
    for _ in PROMPTS:
        looks = range(dice.randint(0, 3))
        turns += [
            ScriptedTurn(text="I look. " * dice.randint(1, 20), tools=[make_call(dice)], delay_ms=250) for _ in looks
        ]
        turns.append(ScriptedTurn(thinking="Hm.", text="Done. " * dice.randint(1, 50)))
    return Script(turns)


def make_call(dice: Random) -> ScriptedCall:
    name = f"{dice.randint(0, 9)}.txt"
    return dice.choice(
        [
            call("Read", file_path=name),
            call("Read", file_path="/nothing/here"),
            call("Write", file_path=name, content=""),
        ]
    )


async def decide(name: str, given: Any, context: Any) -> Any:
    """Nothing is changed, so that a second run finds what the first one found."""
    return PermissionResultAllow() if name == "Read" else PermissionResultDeny(message="not now")


async def talk(wire: SameLoop) -> list[Any]:
    messages: list[Any] = []
    async with Client(Options(can_use_tool=decide, include_partial_messages=True), transport=wire) as client:
        for prompt in PROMPTS:
            await client.query(prompt)
            messages += [message async for message in client.receive_response()]
    return messages


def make_recording(folder: Path, number: int) -> list[Any]:
    script = folder / f"{number:03}.json"
    script.write_bytes(make_script(Random(number)).to_json())
    argv = ["--model", f"scripted:{script}", "--permission-prompt-tool", "stdio", "--no-session-persistence"]
    argv += ["--include-partial-messages"]

    async def record() -> list[Any]:
        clock = make_virtual_clock(asyncio.get_running_loop())
        path = folder / f"{number:03}.jsonl"
        return await talk(
            engine_wire(argv, cwd=str(folder), env=environment(folder), clock=clock, record=path, program=str(PARLEY))
        )

    return run_in_virtual_time(record())[1]


def environment(folder: Path) -> dict[str, str]:
    return {"HOME": str(folder), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TMPDIR": str(folder)}


def replay_bytes(recording: WireRecording, path: Path) -> bytes:
    """A recording of the replay of a recording, with the recorded pauses on a virtual clock."""

    async def replay() -> None:
        await talk(replay_wire(recording, pace=1, record=path))

    run_in_virtual_time(replay())
    try:
        return path.read_bytes()
    finally:
        path.unlink()


def run(folder: Path, recordings: int, replays: int) -> list[str]:
    """The figures, in words. Raises AssertionError if anything differs."""
    started = time.monotonic()
    for number in range(recordings):
        make_recording(folder, number)
    recorded = time.monotonic()
    one = read_wire_recording(folder / "000.jsonl")
    copies = {replay_bytes(one, folder / "copy") for _ in range(replays)}
    assert len(copies) == 1, f"{len(copies)} different replays of one recording"
    replayed = time.monotonic()
    command = [str(PARLEY), "replay", str(folder), "--client"]
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_seconds = used.ru_utime + used.ru_stime
    return [
        f"{recordings} conversations recorded in {recorded - started:.1f} s",
        f"{replays} replays of one recording, all equal, in {replayed - recorded:.1f} s",
        f"re-run against the executable: {done.stdout.strip()} ({processor_seconds:.1f} s of processor time)",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recordings", type=int, default=100)
    parser.add_argument("--replays", type=int, default=100)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for line in run(Path(folder), chosen.recordings, chosen.replays):
            sys.stdout.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
