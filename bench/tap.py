"""Measure what `parley tap` adds to a message.

    python bench/tap.py                                   # lines of 1 kB and 100 kB, 2,000 and 500 round trips
    python bench/tap.py --sdk .compat/python-0.2.184/bin/python     # also through the official Python SDK

A round trip is a line to an engine and its answer. The engine is `cat`, or for the SDK Parley itself, which answers
control requests. It is measured with and without a tap that records, shows the conversation and makes a report, in
alternating blocks. A round trip passes the tap twice: what it adds to a message is half of the difference.

On a busy machine, compare the medians: the 95th percentiles are those of the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PARLEY = [sys.executable, "-P", "-m", "parley"]
BLOCKS = 10
LARGEST = 32_000
"""How much is sent before the answer is read: the pipes do not hold more."""
SDK_PROGRAM = """
import asyncio, json, sys, time
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

async def main(cli, count, cwd):
    options = ClaudeAgentOptions(cli_path=cli, cwd=cwd, model="offline", stderr=lambda line: None)
    async with ClaudeSDKClient(options=options) as client:
        for _ in range(20):
            await client.set_permission_mode("default")
        times = []
        for _ in range(count):
            started = time.perf_counter()
            await client.set_permission_mode("default")
            times.append((time.perf_counter() - started) * 1000)
    print(json.dumps(times))

asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
"""


class Pipe:
    """An engine that echoes, with or without a tap in front of it."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )

    def time_trips(self, line: bytes, count: int) -> list[float]:
        """Milliseconds of each round trip."""
        found = []
        for _ in range(count):
            started = time.perf_counter()
            self._trip(line)
            found.append((time.perf_counter() - started) * 1000)
        return found

    def _trip(self, line: bytes) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for start in range(0, len(line), LARGEST):
            piece = line[start : start + LARGEST]
            self._process.stdin.write(piece)
            left = len(piece)
            while left:
                left -= len(self._process.stdout.read(left))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def make_line(size: int) -> bytes:
    line = {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "x" * size}]}}
    return json.dumps(line).encode()[: size - 1].ljust(size - 1) + b"\n"


def measure_pipes(folder: Path, size: int, count: int) -> tuple[list[float], list[float]]:
    tap = [*PARLEY, "tap", "--record", str(folder / f"{size}.jsonl"), "--html", str(folder / f"{size}.html")]
    direct, tapped = Pipe(["cat"]), Pipe([*tap, "--", "cat"])
    line = make_line(size)
    for pipe in (direct, tapped):
        pipe.time_trips(line, 20)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(BLOCKS):
        for pipe, found in zip((direct, tapped), times, strict=True):
            found.extend(pipe.time_trips(line, count // BLOCKS))
    for pipe in (direct, tapped):
        pipe.close()
    return times


def measure_sdk(python: str, folder: Path, count: int) -> tuple[list[float], list[float]]:
    program, tap = folder / "program.py", folder / "claude"
    program.write_text(SDK_PROGRAM)
    parley = Path(sys.executable).with_name("parley")
    words = ["tap", "--install", str(tap), "--record", f"{folder}/talks/", "--", str(parley)]
    (folder / "talks").mkdir()
    subprocess.run([*PARLEY, *words], check=True, stdout=subprocess.DEVNULL)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(BLOCKS // 2):
        for engine, found in zip((parley, tap), times, strict=True):
            command = [python, str(program), str(engine), str(count // (BLOCKS // 2)), str(folder)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found.extend(json.loads(done.stdout))
    return times


def report(name: str, measure: Callable[[], tuple[list[float], list[float]]]) -> None:
    direct, tapped = measure()
    medians = statistics.median(direct), statistics.median(tapped)
    high = statistics.quantiles(direct, n=20)[-1], statistics.quantiles(tapped, n=20)[-1]
    sys.stdout.write(
        f"{name}: round trip {medians[0]:.3f} ms, with tap {medians[1]:.3f} ms "
        f"(p95 {high[0]:.3f} and {high[1]:.3f} ms); added per message {(medians[1] - medians[0]) / 2:.3f} ms\n"
    )
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what `parley tap` adds to a message.")
    parser.add_argument("--trips", type=int, default=2000, help="round trips of a small line (default: 2000)")
    parser.add_argument("--sdk", metavar="PYTHON", help="a Python that has claude-agent-sdk")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report("lines of 1 kB", lambda: measure_pipes(folder, 1000, given.trips))
        report("lines of 100 kB", lambda: measure_pipes(folder, 100_000, given.trips // 4))
        if given.sdk:
            report("official Python SDK", lambda: measure_sdk(given.sdk, folder, given.trips // 4))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
