"""Measure what a remote workspace costs: Read, Edit, Grep and Bash on loopback, beside the same on this machine.

    python -m bench.remote_workspace --calls 200

Each tool runs with the real workspace: files with checkpoints, commands under the supervisor. The server runs in a
process of its own. A decision is that of a command with three paths. Printed: the median of each, and the ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

from parley.permissions.base import ToolRequest
from parley.permissions.filesystem import RealFilesystem, RemoteFilesystem
from parley.permissions.policy import LaunchRules, SessionPolicy
from parley.tools.base import AgentState, Context, Tool, read_input
from parley.tools.bash import Bash
from parley.tools.files.edit import Edit
from parley.tools.files.read import Read
from parley.tools.search import Grep
from parley.workspace.base import Scope
from parley.workspace.checkpoints import CheckpointStore
from parley.workspace.local import LocalFiles
from parley.workspace.process.processes import Processes
from parley.workspace.remote.address import WorkspaceAddress
from parley.workspace.remote.client import RemoteWorkspace, connect_workspace
from parley.workspace.remote.link import LinkSettings
from parley.workspace.search.search import LocalSearch

TOKEN = "a token for the benchmark"
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
Step = Callable[[int], Awaitable[object]]


def make_context(folder: Path, remote: RemoteWorkspace | None) -> Context:
    numbers = count()

    def new_id() -> str:
        return f"{next(numbers):024x}"

    local = LocalFiles(cwd=str(folder), checkpoints=CheckpointStore(folder.parent / "history"), new_id=new_id)
    return Context(
        environment=ENVIRONMENT,
        files=local if remote is None else remote.files,
        processes=Processes() if remote is None else remote.processes,
        open_search=(lambda: LocalSearch(ENVIRONMENT)) if remote is None else remote.open_search,
        results_folder=folder.parent / "results" if remote is None else Path(remote.welcome.own_folder, "tool-results"),
        new_id=new_id,
        state=AgentState(cwd=str(folder)),
    )


def make_steps(folder: Path, remote: RemoteWorkspace | None) -> dict[str, Step]:
    context, scope = make_context(folder, remote), Scope(folders=(str(folder),))

    async def call(tool: Tool, **input: Any) -> object:
        return await tool.run(read_input(tool, input), context, scope)

    fs = RealFilesystem("/") if remote is None else RemoteFilesystem("/", remote.facts.get)
    policy = SessionPolicy(LaunchRules(cwd=str(folder), user_root="/"), fs)
    request = ToolRequest(tool="Bash", input={"command": "cat small.txt; wc -l big.txt; ls sub"}, cwd=str(folder))

    async def decide(number: int) -> object:
        if remote is None:
            return policy.decide(request, "default")
        if not policy.has_repository:
            policy.set_repository(remote.facts.run(policy.find_repository))
        await remote.facts.prepare(lambda: policy.decide(request, "default"))
        return remote.facts.run(lambda: policy.decide(request, "default"))

    old, new = ("one", "two"), ("two", "one")
    return {
        "Read 1 KB": lambda number: call(Read(), file_path=str(folder / "small.txt")),
        "Read 1 MB": lambda number: call(Read(), file_path=str(folder / "big.txt"), limit=10),
        "Edit 1 KB": lambda number: call(
            Edit(), file_path=str(folder / "edit.txt"), old_string=old[number % 2], new_string=new[number % 2]
        ),
        "Grep": lambda number: call(Grep(), pattern="nothing like this"),
        "Bash true": lambda number: call(Bash(), command="true"),
        "decision": decide,
    }


async def measure(step: Step, calls: int) -> float:
    """The median in milliseconds."""
    times: list[float] = []
    for number in range(calls):
        started = time.perf_counter()
        await step(number)
        times.append(time.perf_counter() - started)
    return 1000 * statistics.median(times)


def start_server(folder: Path) -> tuple[subprocess.Popen[bytes], WorkspaceAddress]:
    token = folder.parent / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    argv = [sys.executable, "-m", "parley", "workspace", "--listen", "127.0.0.1:0", "--root", str(folder)]
    argv += ["--token-file", str(token), "--state", str(folder.parent / "state")]
    server = subprocess.Popen(argv, stderr=subprocess.PIPE)
    assert server.stderr is not None
    place = server.stderr.readline().decode().split()[2].rstrip(",")
    return server, WorkspaceAddress.parse(place)


async def main(calls: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="parley-bench-")) / "work"
    (folder / "sub").mkdir(parents=True)
    (folder / "small.txt").write_text("line of text\n" * 80)
    (folder / "edit.txt").write_text("one\n" + "line of text\n" * 80)
    (folder / "big.txt").write_text("line of text\n" * 80_000)
    server, address = start_server(folder)
    try:
        remote = connect_workspace(LinkSettings(address=address, token=TOKEN), "bench")
        here, there = make_steps(folder, None), make_steps(folder, remote)
        sys.stdout.write(f"{'':12} {'local ms':>10} {'remote ms':>10} {'ratio':>7}\n")
        for name in here:
            count_of_calls = calls if name != "Grep" else max(10, calls // 10)
            local = await measure(here[name], count_of_calls)
            away = await measure(there[name], count_of_calls)
            sys.stdout.write(f"{name:12} {local:10.3f} {away:10.3f} {away / local:7.2f}\n")
        remote.close()
    finally:
        server.terminate()
        server.communicate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure what a remote workspace costs.")
    parser.add_argument("--calls", type=int, default=200)
    asyncio.run(main(parser.parse_args().calls))
