"""How long tests wait for something that must happen: far longer than it takes, because machines have other work to do.

    wait_until(lambda: path.exists(), "the file")

A limit shows a hang. It never shows that something is too slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 120
"""For one answer, one line, one end of a process."""
TEST_SECONDS = 300
"""For an async test. What does not end at all is ended by `faulthandler_timeout` (pyproject.toml)."""
POLL_SECONDS = 0.01

Found = TypeVar("Found")


def wait_until(probe: Callable[[], Found], wanted: str) -> Found:
    """What `probe` returns as soon as that is true, for what nothing can be waited for otherwise."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := probe()):
        assert time.monotonic() < deadline, f"waited {PATIENCE_SECONDS:g} s for {wanted}"
        time.sleep(POLL_SECONDS)
    return found
