"""Run existing tests through the launcher of a resident engine, unchanged.

    python -m tests.stress.resident.suites                          # the tests of the executable that concern it
    python -m tests.stress.resident.suites tests/process/cli/test_run.py -k interrupt

The tests find the executable beside the interpreter that runs them. So this builds a copy of the virtual environment
from symbolic links, whose `parley` sets PARLEY_RESIDENT=1, and runs pytest with its interpreter. The run fails if a
test fails, or if no session was resident.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.helpers.forked import START_VARIABLE
from tests.helpers.paths import ROOT

SUITES = (
    "tests/process/cli",
    "tests/process/engine",
    "tests/process/hooks",
    "tests/process/mcp",
    "tests/process/models",
    "tests/process/sdk",
    "tests/process/stores",
    "tests/process/tools",
    "tests/stress/engine",
    "tests/stress/models",
    "tests/stress/stores",
    "tests/stress/workspace",
    "tests/compat",
    # These look at the installation that the executable belongs to.
    "--ignore=tests/process/cli/commands/test_init_and_link.py",
    "--ignore=tests/process/cli/commands/test_setup.py",
)


def build_environment(folder: Path) -> Path:
    """Returns the interpreter."""
    original = Path(sys.executable).parent
    for name in ("lib", "pyvenv.cfg"):
        (folder / name).symlink_to(original.parent / name)
    (folder / "bin").mkdir()
    for program in original.iterdir():
        if not program.name.startswith("parley"):
            (folder / "bin" / program.name).symlink_to(program.readlink() if program.is_symlink() else program)
    for name in ("parley", "parley-miriad"):
        wrapper = folder / "bin" / name
        variables = f"PARLEY_RESIDENT=1 XDG_RUNTIME_DIR={shlex.quote(str(folder))}"
        wrapper.write_text(f'#!/bin/sh\n{variables} exec {shlex.quote(str(original / name))} "$@"\n')
        wrapper.chmod(0o755)
    return folder / "bin" / Path(sys.executable).name


def count_sessions(parley: Path) -> int:
    """How many launchers the servers have accepted. They must not have ended since, so tests do not take long."""
    done = subprocess.run([parley, "resident", "status", "--json"], capture_output=True, check=True)
    return sum(server["served"] for server in json.loads(done.stdout)["servers"])


def run(arguments: list[str]) -> tuple[int, int]:
    """Returns the exit code of pytest, and how many connections the servers have accepted."""
    with tempfile.TemporaryDirectory(prefix="parley-") as name:
        folder = Path(name)
        python = build_environment(folder)
        parley = folder / "bin" / "parley"
        try:
            subprocess.run([parley, "resident", "start"], stdout=subprocess.DEVNULL, check=True)
            environment = {**os.environ, START_VARIABLE: "1"}
            done = subprocess.run([python, "-m", "pytest", *arguments], cwd=ROOT, env=environment, check=False)
            return done.returncode, count_sessions(parley)
        finally:
            subprocess.run([parley, "resident", "stop"], stdout=subprocess.DEVNULL, check=False)


def main() -> None:
    code, count = run(sys.argv[1:] or ["-n", "2", *SUITES])
    sys.stdout.write(f"{count} connections to resident engines\n")
    sys.exit(code or (0 if count else "no session was resident"))


if __name__ == "__main__":
    main()
