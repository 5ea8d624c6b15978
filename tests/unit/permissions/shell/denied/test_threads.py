"""Commands that are judged in several threads, as a gateway does for a simulation beside its sessions."""

from __future__ import annotations

import subprocess
import sys

THREADS = """
from concurrent.futures import ThreadPoolExecutor
from parley.permissions.shell.treesitter import parse

def names(number):
    text = f"if true; then program{number} a; fi; while x; do (y | z); done"
    return {command.words[0] for command in parse(text).commands} == {"true", f"program{number}", "x", "y", "z"}

with ThreadPoolExecutor(8) as pool:
    print(all(pool.map(names, range(4000))))
"""


def test_a_command_is_parsed_in_any_number_of_threads() -> None:
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
