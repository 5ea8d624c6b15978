"""Count the instructions of a start: to the reply to `initialize`, and to the result of a first prompt over HTTP.

    python bench/instructions.py                      # this interpreter, this tree
    python bench/instructions.py /path/to/python ...  # other interpreters with the dependencies of parley, this tree
    python bench/instructions.py --installed /path/to/python ...    # the parley that is installed there

Needs valgrind (Linux). Unlike milliseconds, the count does not depend on the load of the machine; two runs differ by
less than 0.1 %. It does depend on the interpreter, so compare figures of the same Python build only. System calls are
not counted. A first run, which compiles bytecode, is not counted.

`tests/process/cli/test_start_budget.py` limits what a start loads, without valgrind.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from engine_process import INITIALIZED, initialize_line, kind_of, user_line
from engines import ONE_SHOT, STREAM, model

SOURCES = Path(__file__).parents[1] / "src"
COMMAND = ("-c", "from parley.cli.main import run; run()")
STEPS = {"the reply to initialize": INITIALIZED, "the first result": "result"}


def run(argv: list[str], base_url: str, folder: str, until: str, path: str) -> None:
    """Run the engine until it writes a line of a kind."""
    lines = initialize_line() + (user_line("short") if until == "result" else b"")
    environment = {
        "PATH": os.defpath,
        "HOME": folder,
        "PYTHONPATH": path,
        "PYTHONHASHSEED": "0",
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": "dummy",
    }
    pipe = subprocess.PIPE
    with subprocess.Popen([*argv, *STREAM], stdin=pipe, stdout=pipe, cwd=folder, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines)
        process.stdin.flush()
        if not any(kind_of(line)[0] == until for line in process.stdout):
            sys.exit(f"{argv} exited before {until}")
        # The signal is not handled: the process ends, and valgrind writes its counts.
        process.send_signal(signal.SIGUSR1)


def count(python: str, base_url: str, until: str, path: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        counter = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
        run([*counter, f"--log-file={log}", python, *COMMAND], base_url, folder, until, path)
        found = re.search(r"refs:\s+([\d,]+)", log.read_text())
        assert found is not None
        return int(found[1].replace(",", ""))


def warm_up(python: str, base_url: str, path: str) -> None:
    """Run a prompt to its end, so that bytecode is written."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {"HOME": folder, "PYTHONPATH": path, "ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "dummy"}
        argv = [python, *COMMAND, *ONE_SHOT, "short"]
        subprocess.run(argv, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", nargs="*", default=[sys.executable])
    parser.add_argument("--installed", action="store_true")
    options = parser.parse_args()
    path = "" if options.installed else str(SOURCES)
    with model() as base_url:
        for python in map(os.path.abspath, options.python):
            warm_up(python, base_url, path)
            for name, until in STEPS.items():
                millions = count(python, base_url, until, path) / 1e6
                sys.stdout.write(f"{millions:.1f} million instructions until {name}: {python}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
