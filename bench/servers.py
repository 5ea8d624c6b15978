"""Measure the handshake of an engine with slow MCP servers: spawn to the reply to `initialize`.

    python bench/servers.py                          # 3 servers that never answer, 20 runs
    python bench/servers.py ./parley --servers 10 --runs 50

Each run is a new process with new directories, once without servers and once with stdio servers that read every line
and never answer, plus an HTTP server on a closed port. The figures are milliseconds by the clock and, for busy
machines, processor time of the engine. Bytecode is compiled before the first run, as an installation does.

A baseline is measured in alternation: a program that imports asyncio and writes one line. The speed of a machine varies
over time, the ratio does not. The exit code is 1 if the median by the clock with servers exceeds the limit (110 ms, or
`--limit`).
"""

from __future__ import annotations

import argparse
import compileall
import json
import shlex
import statistics
import sys
from pathlib import Path

from engine_process import INITIALIZED, Engine, initialize_line, start_engine, wait

FLAGS = (
    "--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json", "--model", "offline",
)  # fmt: skip
BASELINE = """
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
    """Milliseconds by the clock, and processor time of the engine."""
    with start_engine(engine, flags, "http://127.0.0.1:9") as live:
        live.send(initialize_line())
        wait([live], lambda one: one.count(INITIALIZED) > 0, "reply to initialize")
        return (live.times[INITIALIZED][0] - live.started_at) * 1000, own_cpu_ms(live.process.pid)


def own_cpu_ms(pid: int) -> float:
    """The scheduled nanoseconds, which are finer than the ticks of /proc/PID/stat."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", nargs="?", default=str(ENGINE))
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--limit", type=float, default=110.0)
    options = parser.parse_args()
    compileall.compile_dir(Path(__file__).parents[1] / "src", quiet=2)
    engine = Engine("engine", tuple(shlex.split(options.engine)))
    baseline = Engine("baseline", (sys.executable, "-c", BASELINE))
    with_servers = f"{options.servers} slow servers"
    kinds = {
        "baseline": (baseline, ()),
        "no servers": (engine, FLAGS),
        with_servers: (engine, (*FLAGS, *slow(options.servers))),
    }
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for run in range(options.runs + 1):  # the first round warms the caches
        for name, (one, flags) in kinds.items():
            taken = handshake_ms(one, flags)
            if run:
                samples[name].append(taken)
    for name, taken_ms in samples.items():
        clock, processor = zip(*taken_ms, strict=True)
        figures = f"median {statistics.median(clock):6.1f} ms   best {min(clock):6.1f}   worst {max(clock):6.1f}"
        sys.stdout.write(f"{name:16} {figures}   processor {statistics.median(processor):6.1f} ms\n")
    medians = {name: statistics.median(clock for clock, _ in taken) for name, taken in samples.items()}
    sys.stdout.write(f"{medians[with_servers] / medians['baseline']:.2f} times the baseline\n")
    return 0 if medians[with_servers] <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
