"""What a server does before it forks must not depend on a session, nor keep anything that a fork would share."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers.environment import base_environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
PROGRAM = """
import os, sys, threading
read = []
class Recorded(type(os.environ)):
    def __getitem__(self, name):
        read.append(name)
        return super().__getitem__(name)
os.environ.__class__ = Recorded
before = os.listdir("/proc/self/fd")
from parley.cli.lazy_imports import LazyModule, defer
defer()
import parley.cli.handshake, parley.cli.run
from parley.compose.preload import preload
preload()
print(sorted(name for name in set(read) if not name.startswith("PYTHON")), threading.active_count())
print(os.listdir("/proc/self/fd") == before)
print([name for name in ("asyncio.staggered", "concurrent.futures") if type(sys.modules[name]) is LazyModule])
"""


def test_preloading_reads_no_variable_leaves_no_thread_or_file_and_loads_what_a_turn_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=base_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[] 1", "True", "[]"]
