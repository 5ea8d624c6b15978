"""Measure the Bash tool of an engine: time and memory of many calls, and of one command with large output.

    python bench/commands.py                                    # 1,000 calls, then 1 GB from one command
    python bench/commands.py ./parley --calls 200 --bytes 10G

The offline model is used, so that only the engine is measured. The calls are made in ten turns of one session; the time
per call is that of a turn divided by its calls. Memory is the resident set of the engine process after the first turn,
when everything is loaded, and after the last. Linux only.

The exit code is 1 if memory grows: by more than 20 % and 8 MB for the calls (the conversation itself grows by some
kilobytes per call), or by more than 32 MB for the output.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import sys
import time
from pathlib import Path

import engine_process
from engine_process import Engine, EngineProcess, start_engine, user_line, wait

FLAGS = (
    "--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json",
    "--model", "offline", "--allowedTools", "Bash",
)  # fmt: skip
TURNS = 10
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MAX_SECONDS = 900.0


def memory_mb(live: EngineProcess, name: str) -> float:
    """A field of /proc/PID/status: VmRSS is the current memory, VmHWM the peak."""
    status = Path(f"/proc/{live.process.pid}/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def turn_seconds(live: EngineProcess, prompt: str) -> float:
    """Run a turn and return its duration."""
    results = live.count("result")
    started = live.send(user_line(prompt))
    wait([live], lambda one: one.count("result") > results, "result")
    return time.perf_counter() - started


def call(command: str, **input: int) -> str:
    return f"call Bash {json.dumps({'command': command, **input})}"


def measure_calls(engine: Engine, calls: int) -> bool:
    """Make many calls in one session. Returns whether memory stayed flat."""
    per_turn = calls // TURNS
    prompt = "\n".join(call(f"echo {number}") for number in range(per_turn))
    with start_engine(engine, FLAGS, "http://127.0.0.1:9") as live:
        turn_seconds(live, call("true"))
        times, memory = [], []
        for _ in range(TURNS):
            times.append(turn_seconds(live, prompt) / per_turn * 1000)
            memory.append(memory_mb(live, "VmRSS"))
        done = live.count("user")
    write(f"{done} calls: {statistics.median(times):.1f} ms each (first turn {times[0]:.1f}, last {times[-1]:.1f})")
    write(f"RSS {memory[0]:.1f} MB after the first {per_turn} calls, {memory[-1]:.1f} MB after the last")
    return memory[-1] < max(memory[0] * 1.2, memory[0] + 8)


def measure_output(engine: Engine, size_bytes: int) -> bool:
    """Run one command with large output. Returns whether memory stayed bounded."""
    with start_engine(engine, FLAGS, "http://127.0.0.1:9") as live:
        turn_seconds(live, call("echo small"))
        before = memory_mb(live, "VmHWM")
        seconds = turn_seconds(live, call(f"yes | head -c {size_bytes}", timeout=600_000))
        highest = memory_mb(live, "VmHWM")
        failed = live.result.get("is_error") is not False
    rate = size_bytes / (1 << 20) / seconds
    write(f"{size_bytes / (1 << 30):.2f} GB from one command: {seconds:.1f} s, {rate:.0f} MB/s")
    write(f"highest RSS {before:.1f} MB before, {highest:.1f} MB after")
    return not failed and highest < before + 32


def size(text: str) -> int:
    """Parse 1G, 500M or plain bytes."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if found is None:
        raise argparse.ArgumentTypeError(f"not a size: {text}")
    return int(found[1]) * UNITS[found[2]]


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", nargs="?", default=str(Path(sys.executable).with_name("parley")))
    parser.add_argument("--calls", type=int, default=1000, help="number of calls, in ten turns [1000]; 0 to skip")
    parser.add_argument("--bytes", type=size, default=1 << 30, help="output of one command [1G]; 0 to skip")
    options = parser.parse_args()
    engine = Engine("engine", tuple(shlex.split(options.engine)))
    engine_process.DEADLINE_SECONDS = MAX_SECONDS
    write(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    flat = [
        measure_calls(engine, options.calls) if options.calls else True,
        measure_output(engine, options.bytes) if options.bytes else True,
    ]
    return 0 if all(flat) else 1


if __name__ == "__main__":
    sys.exit(main())
