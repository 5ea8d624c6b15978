"""Measure the commands of an engine: time and memory of many calls, and of one with endless output.

    python bench/commands.py                                    # 1,000 calls, then 1 GB from one command
    python bench/commands.py ./parley --calls 200 --bytes 10G

The model is the built-in one, so that nothing but the engine is measured. The calls come in ten turns
of one session; a time is that of a turn divided by its calls. Memory is the resident set of the engine
process: after the first turn, when everything is loaded, and after the last. Linux only.

The exit code is 1 if memory was not flat: more than 20 % and 8 MB above the start for the calls (the
conversation itself grows by some kilobytes a call), or more than 32 MB for the output.
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

import talk as talking
from talk import Engine, Talk, talk, user_line, wait

FLAGS = (
    "--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json",
    "--model", "offline", "--allowedTools", "Bash",
)  # fmt: skip
TURNS = 10
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LONGEST_SECONDS = 900.0


def memory_mb(live: Talk, name: str) -> float:
    """A line of the engine's own status: VmRSS now, VmHWM at its highest."""
    status = Path(f"/proc/{live.process.pid}/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def turn_seconds(live: Talk, prompt: str) -> float:
    """Have a turn; how long it took."""
    results = live.heard("result")
    begun = live.say(user_line(prompt))
    wait([live], lambda one: one.heard("result") > results, "result")
    return time.perf_counter() - begun


def call(command: str, **input: int) -> str:
    return f"call Bash {json.dumps({'command': command, **input})}"


def measure_calls(engine: Engine, calls: int) -> bool:
    """Many calls in one session; whether memory was flat."""
    per_turn = calls // TURNS
    prompt = "\n".join(call(f"echo {number}") for number in range(per_turn))
    with talk(engine, FLAGS, "http://127.0.0.1:9") as live:
        turn_seconds(live, call("true"))
        times, memory = [], []
        for _ in range(TURNS):
            times.append(turn_seconds(live, prompt) / per_turn * 1000)
            memory.append(memory_mb(live, "VmRSS"))
        heard = live.heard("user")
    say(f"{heard} calls: {statistics.median(times):.1f} ms each (first turn {times[0]:.1f}, last {times[-1]:.1f})")
    say(f"RSS {memory[0]:.1f} MB after the first {per_turn} calls, {memory[-1]:.1f} MB after the last")
    return memory[-1] < max(memory[0] * 1.2, memory[0] + 8)


def measure_output(engine: Engine, size_bytes: int) -> bool:
    """One command with much to say; whether memory was bounded."""
    with talk(engine, FLAGS, "http://127.0.0.1:9") as live:
        turn_seconds(live, call("echo small"))
        before = memory_mb(live, "VmHWM")
        seconds = turn_seconds(live, call(f"yes | head -c {size_bytes}", timeout=600_000))
        highest = memory_mb(live, "VmHWM")
        failed = live.result.get("is_error") is not False
    rate = size_bytes / (1 << 20) / seconds
    say(f"{size_bytes / (1 << 30):.2f} GB from one command: {seconds:.1f} s, {rate:.0f} MB/s")
    say(f"highest RSS {before:.1f} MB before, {highest:.1f} MB after")
    return not failed and highest < before + 32


def size(text: str) -> int:
    """1G, 500M or plain bytes."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if found is None:
        raise argparse.ArgumentTypeError(f"not a size: {text}")
    return int(found[1]) * UNITS[found[2]]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", nargs="?", default=str(Path(sys.executable).with_name("parley")))
    parser.add_argument("--calls", type=int, default=1000, help="how many, in ten turns [1000]; 0 for none")
    parser.add_argument("--bytes", type=size, default=1 << 30, help="of output of one command [1G]; 0 for none")
    options = parser.parse_args()
    engine = Engine("engine", tuple(shlex.split(options.engine)))
    talking.DEADLINE_SECONDS = LONGEST_SECONDS
    say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    flat = [
        measure_calls(engine, options.calls) if options.calls else True,
        measure_output(engine, options.bytes) if options.bytes else True,
    ]
    return 0 if all(flat) else 1


if __name__ == "__main__":
    sys.exit(main())
