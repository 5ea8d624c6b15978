"""Measure how soon an editor can send its first prompt to `parley acp`.

    python bench/editor_start.py                                    # 20 runs
    python bench/editor_start.py --runs 5 "parley=./parley acp" "other=npx some-agent"

Each run starts the agent in an empty folder, with no network: initialize, session/new, session/prompt. A time starts
before the spawn and ends when our read returns the line:

    initialize    the response to initialize
    session       the response to session/new: the first prompt can be sent
    update        the first update of the answer (offline model; agents that need a key are measured without it)

On a busy machine the processor time of the whole run ("cpu") says more than the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

STEPS = ("initialize", "session", "update", "cpu")
CHUNKS = ("agent_message_chunk", "agent_thought_chunk")


class Connection:
    """Sends requests one by one, and reads lines until the response has come."""

    def __init__(self, to_agent: IO[bytes], from_agent: IO[bytes]) -> None:
        self._to_agent = to_agent
        self._from_agent = from_agent
        self._count = 0
        self.first_update: float | None = None

    def call(self, method: str, **params: Any) -> Any:
        self._count += 1
        line = json.dumps({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        self._to_agent.write(line.encode() + b"\n")
        self._to_agent.flush()
        for received in self._from_agent:
            message = json.loads(received)
            update = message.get("params", {}).get("update", {})
            if self.first_update is None and update.get("sessionUpdate") in CHUNKS:
                self.first_update = time.perf_counter()
            if message.get("id") == self._count and "method" not in message:
                return message.get("result")
        raise SystemExit(f"the agent ended before it answered {method}")


def run(command: list[str], folder: Path) -> list[float]:
    """Seconds to each of STEPS."""
    environment = {**os.environ, "HOME": str(folder), "CLAUDE_CONFIG_DIR": str(folder / "config")}
    before, started = children_seconds(), time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        connection = Connection(process.stdin, process.stdout)
        connection.call("initialize", protocolVersion=1, clientCapabilities={})
        times = [time.perf_counter() - started]
        made = connection.call("session/new", cwd=str(folder), mcpServers=[])
        times.append(time.perf_counter() - started)
        prompt = [{"type": "text", "text": "say Hello."}]
        connection.call("session/prompt", sessionId=made["sessionId"], prompt=prompt)
        times.append((connection.first_update or time.perf_counter()) - started)
        process.stdin.close()
        process.stdout.read()
    return [*times, children_seconds() - before]


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ours = f"parley={Path(sys.executable).with_name('parley')} acp --model offline"
    parser.add_argument("agents", nargs="*", default=[ours], help="NAME=COMMAND")
    parser.add_argument("--runs", type=int, default=20)
    given = parser.parse_args()
    agents = {name: shlex.split(command) for name, _, command in (agent.partition("=") for agent in given.agents)}
    found: dict[str, list[list[float]]] = {name: [] for name in agents}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.runs + 1):  # the first run fills the file cache, and is not recorded
            for name, command in agents.items():
                times = run(command, Path(folder))
                if number:
                    found[name].append(times)
    sys.stdout.write(f"{given.runs} runs, median ms{''.join(step.rjust(12) for step in STEPS)}\n")
    for name, runs in found.items():
        medians = [statistics.median(times) * 1000 for times in zip(*runs, strict=True)]
        sys.stdout.write(name.ljust(len(f"{given.runs} runs, median ms")))
        sys.stdout.write("".join(f"{median:12.0f}" for median in medians) + "\n")


if __name__ == "__main__":
    main()
