"""Count the instructions of a start, from exec to the reply to `initialize`. Needs valgrind (Linux).

    python bench/instructions.py                      # this interpreter, this tree
    python bench/instructions.py /path/to/python ...  # other environments that have parley installed

Unlike milliseconds, the count does not depend on the load of the machine; two runs differ by less than 0.1 %. It does
depend on the interpreter, so compare figures of the same Python build only. A first run compiles bytecode and is not
counted.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"
COMMAND = ("-c", "from parley.cli.main import run; run()", "--print", "--verbose", "--model", "offline")
FORMATS = ("--input-format", "stream-json", "--output-format", "stream-json")
INITIALIZE = {"type": "control_request", "request_id": "r1", "request": {"subtype": "initialize", "hooks": None}}


def count(python: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        counter = (
            "valgrind",
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
            f"--log-file={log}",
        )
        environment = {"PATH": os.defpath, "HOME": folder, "PYTHONPATH": str(SOURCES), "PYTHONHASHSEED": "0"}
        with subprocess.Popen(
            [*counter, python, *COMMAND, *FORMATS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env=environment,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            # The signal is not handled: the process ends, and valgrind writes its counts.
            process.send_signal(signal.SIGUSR1)
        if b"control_response" not in answer:
            sys.exit(f"{python} did not reply to initialize")
        found = re.search(r"refs:\s+([\d,]+)", log.read_text())
        assert found is not None
        return int(found[1].replace(",", ""))


def main() -> None:
    for python in map(os.path.abspath, sys.argv[1:] or [sys.executable]):
        count(python)
        sys.stdout.write(f"{count(python) / 1e6:.1f} million instructions until the reply to initialize: {python}\n")


if __name__ == "__main__":
    main()
