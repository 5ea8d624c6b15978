"""Measure what the sandbox costs a command: the first one of a session (cold) and the following ones (warm).

    python bench/sandboxed_commands.py                      # all kinds that this machine offers
    python bench/sandboxed_commands.py --runs 50 --command 'rg --version'

A run is a session with its own processes. Kinds are measured in turn, so that a busy moment hits all of them alike.
`readers` is the sandbox of commands that are allowed because they only read.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from parley.compose.composer import Composer
from parley.protocol.options import CliOptions
from parley.tools.base import Workspace
from parley.workspace.base import Scope
from parley.workspace.process.processes import CommandOutput, PreparedCommand
from parley.workspace.sandbox.base import SandboxedCommand

KINDS = {
    "none": ('{"sandbox": {"confineReaders": false}}', "", Scope(anywhere=True)),
    "bubblewrap": ('{"sandbox": {"enabled": true}}', "", Scope(anywhere=True)),
    "landlock": ('{"sandbox": {"enabled": true}}', '{"sandbox": {"bwrapPath": "/none"}}', Scope(anywhere=True)),
    "readers": ("{}", "", Scope(anywhere=True, confined="reader")),
}
"""For each kind, the settings, the managed settings and the scope of its commands."""


def make_workspace(folder: Path, kind: str) -> Workspace:
    settings, managed, _ = KINDS[kind]
    environment = {"HOME": str(folder), "PATH": os.environ["PATH"], "IS_SANDBOX": "1"}
    options = CliOptions(model="offline", settings=settings, managed_settings=managed or None)
    return Composer(options, environment, str(folder)).make_config().workspace


async def run_once(workspace: Workspace, command: str, scope: Scope, cwd: str) -> float:
    """Milliseconds from the decision where the command runs to its end."""
    began = time.perf_counter()
    sandbox = workspace.find_sandbox(scope)
    place = None if sandbox is None else await sandbox.place(SandboxedCommand(command=command, scope=scope))
    prepared = PreparedCommand(
        argv=["/bin/bash", "--norc", "--noprofile", "-c", command],
        cwd=cwd,
        environment=workspace.environment if place is None else place.adapt(workspace.environment),
        sandbox=None if place is None else place.confinement,
    )
    done = await workspace.processes.run(prepared, 60, CommandOutput(30_000, lambda: Path(cwd, "spilled")))
    if place is not None:
        place.find_violations(command, done.output.decode())
    return (time.perf_counter() - began) * 1000


async def measure(folder: Path, kind: str, command: str, warm_runs: int) -> tuple[float, list[float]]:
    """The first command of a session, and the following ones."""
    workspace, scope = make_workspace(folder, kind), KINDS[kind][2]
    try:
        cold = await run_once(workspace, command, scope, str(folder))
        return cold, [await run_once(workspace, command, scope, str(folder)) for _ in range(warm_runs)]
    finally:
        await workspace.processes.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20, help="sessions of each kind")
    parser.add_argument("--warm", type=int, default=20, help="further commands of each session")
    parser.add_argument("--command", default="true")
    options = parser.parse_args()
    cold: dict[str, list[float]] = {kind: [] for kind in KINDS}
    warm: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in KINDS:  # imports, and the look at what the machine offers
            await measure(folder, kind, options.command, 1)
        for _ in range(options.runs):
            for kind in KINDS:
                first, others = await measure(folder, kind, options.command, options.warm)
                cold[kind].append(first)
                warm[kind] += others
    sys.stdout.write(f"{'sandbox':12} {'cold ms':>9} {'over none':>10} {'warm ms':>9} {'over none':>10}" + "\n")
    for kind in KINDS:
        first, later = statistics.median(cold[kind]), statistics.median(warm[kind])
        over = first - statistics.median(cold["none"]), later - statistics.median(warm["none"])
        sys.stdout.write(f"{kind:12} {first:9.1f} {over[0]:10.1f} {later:9.1f} {over[1]:10.1f}" + "\n")


asyncio.run(main())
