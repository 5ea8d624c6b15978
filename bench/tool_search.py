"""Measure what tool definitions cost with and without tool search.

    python bench/tool_search.py                      # 250 tools
    python bench/tool_search.py ./parley --tools 1000

The engine runs with an MCP server that has so many tools (`tests/helpers/mcp_servers/many.py`), on a scripted model
server on loopback: it searches for three tools, calls them, and ends. The figures are the tokens of the definitions in
the first and the last request (an estimate: four characters a token), the tokens of all requests together, and the
processor time of the engine and the server.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from parley.models.catalog import CHARS_PER_TOKEN
from parley.models.script import Script, ScriptedCall, ScriptedTurn
from parley.testing.model_server import running

ENGINE = Path(sys.executable).with_name("parley")
SERVER = Path(__file__).parent.parent / "tests/helpers/mcp_servers/many.py"
NAMES = ("mcp__many__create_invoice_0", "mcp__many__read_customer_11", "mcp__many__archive_shipment_27")
FLAGS = ("--print", "go", "--model", "sonnet", "--allowedTools", "mcp__many")
QUERIES = (f"select:{NAMES[0]},{NAMES[1]}", "+archive shipment 27")


def make_script(*, searches: bool) -> Script:
    queries = QUERIES if searches else ()
    calls = [*(ScriptedCall(name="ToolSearch", input={"query": query}) for query in queries)]
    calls += [ScriptedCall(name=name, input={"id": "a"}) for name in NAMES]
    return Script(turn=[*(ScriptedTurn(tools=[call]) for call in calls), ScriptedTurn(text="Done.")])


def count_tokens(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":"))) // CHARS_PER_TOKEN


def measure(engine: str, count: int, *, searches: bool) -> list[float]:
    """The tokens of the first and last definitions and of all requests, and the seconds of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    servers = {"many": {"command": sys.executable, "args": [str(SERVER), str(count)], "required": True}}
    with running(make_script(searches=searches)) as server, tempfile.TemporaryDirectory() as folder:
        environment = {"HOME": folder, "PATH": os.environ["PATH"], "ANTHROPIC_BASE_URL": server.url}
        environment["ENABLE_TOOL_SEARCH"] = "true" if searches else "false"
        command = [engine, *FLAGS, "--mcp-config", json.dumps({"mcpServers": servers})]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    if done.returncode or b"Done." not in done.stdout:
        sys.exit(f"the task failed: {done.stderr.decode()}")
    bodies = [exchange.body for exchange in server.exchanges]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return [
        count_tokens(bodies[0]["tools"]),
        count_tokens(bodies[-1]["tools"]),
        sum(map(count_tokens, bodies)),
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("engine", nargs="?", default=str(ENGINE))
    parser.add_argument("--tools", type=int, default=250)
    options = parser.parse_args()
    sys.stdout.write(f"{options.tools} MCP tools, a task that needs three of them\n")
    sys.stdout.write("                 first request   last request   all requests   processor\n")
    for searches in (False, True):
        first, last, total, seconds = measure(options.engine, options.tools, searches=searches)
        name = "with search" if searches else "without search"
        sys.stdout.write(f"{name:14} {first:15,} {last:14,} {total:14,} {seconds:9.2f} s\n")


if __name__ == "__main__":
    main()
