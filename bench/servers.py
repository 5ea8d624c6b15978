"""Measure the handshake of an engine that has slow MCP servers: spawn to `initialize` answered.

    python bench/servers.py                          # 3 servers that never answer, 20 runs
    python bench/servers.py ./parley --servers 10 --runs 50

Each run is a fresh process in a fresh world, once without servers and once with stdio servers that
take every line and say nothing, beside one behind a URL where nobody listens. The figures are
milliseconds, by the clock and, for busy machines, in processor time of the engine. Bytecode is made
before the first run, as an installation does. In turns with them a yardstick is measured, a program
that imports asyncio and says one line: machines differ from minute to minute, the ratio does not. The
exit code is 1 if the median by the clock with servers is over the limit (110 ms, or `--limit`).
"""

from __future__ import annotations

import argparse
import compileall
import json
import shlex
import statistics
import sys
from pathlib import Path

from talk import INITIALIZED, Engine, initialize_line, talk, wait

FLAGS = (
    "--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json", "--model", "offline",
)  # fmt: skip
YARDSTICK = """
import asyncio, sys
sys.stdin.readline()
print('{"type":"control_response","response":{"subtype":"success"}}', flush=True)
sys.stdin.read()
"""
MUTE = "import sys\nfor line in sys.stdin: pass"
ENGINE = Path(sys.executable).with_name("parley")


def slow(count: int) -> tuple[str, str]:
    servers: dict[str, object] = {
        f"slow{number}": {"command": sys.executable, "args": ["-c", MUTE]} for number in range(count - 1)
    }
    servers["nowhere"] = {"type": "http", "url": "http://127.0.0.1:9/mcp"}
    return "--mcp-config", json.dumps({"mcpServers": servers})


def handshake_ms(engine: Engine, flags: tuple[str, ...]) -> tuple[float, float]:
    """By the clock, and in processor time of the engine itself."""
    with talk(engine, flags, "http://127.0.0.1:9") as live:
        live.say(initialize_line())
        wait([live], lambda one: one.heard(INITIALIZED) > 0, "the answer to initialize")
        return (live.times[INITIALIZED][0] - live.started_at) * 1000, own_cpu_ms(live.process.pid)


def own_cpu_ms(pid: int) -> float:
    """What the kernel scheduled it for, in nanoseconds: finer than the ticks of /proc/PID/stat."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", nargs="?", default=str(ENGINE))
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--limit", type=float, default=110.0)
    wanted = parser.parse_args()
    compileall.compile_dir(Path(__file__).parents[1] / "src", quiet=2)
    engine = Engine("engine", tuple(shlex.split(wanted.engine)))
    bare = Engine("yardstick", (sys.executable, "-c", YARDSTICK))
    with_servers = f"{wanted.servers} slow servers"
    kinds = {
        "yardstick": (bare, ()),
        "no servers": (engine, FLAGS),
        with_servers: (engine, (*FLAGS, *slow(wanted.servers))),
    }
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for run in range(wanted.runs + 1):  # the first round is for the caches
        for name, (one, flags) in kinds.items():
            taken = handshake_ms(one, flags)
            if run:
                samples[name].append(taken)
    for name, taken_ms in samples.items():
        clock, processor = zip(*taken_ms, strict=True)
        figures = f"median {statistics.median(clock):6.1f} ms   best {min(clock):6.1f}   worst {max(clock):6.1f}"
        sys.stdout.write(f"{name:16} {figures}   processor {statistics.median(processor):6.1f} ms\n")
    medians = {name: statistics.median(clock for clock, _ in taken) for name, taken in samples.items()}
    sys.stdout.write(f"{medians[with_servers] / medians['yardstick']:.2f} of the yardstick\n")
    return 0 if medians[with_servers] <= wanted.limit else 1


if __name__ == "__main__":
    sys.exit(main())
