"""Finding all that came of a process, whichever way the kernel tells it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.workspace import family
from parley.workspace.family import children, descendants_of, listed_children, send

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

ROOT = Path(family.__file__).parents[2]


@pytest.fixture
def tree() -> Iterator[tuple[int, list[int]]]:
    """A shell with a child and a grandchild: its pid, and theirs."""
    line = "sleep 600 & bash -c 'sleep 600 & echo $$ $!; wait' & wait"
    with subprocess.Popen(["/bin/bash", "-c", line], stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdout is not None
        below = [int(word) for word in shell.stdout.readline().split()]
        yield shell.pid, below
        os.killpg(shell.pid, signal.SIGKILL)


def test_parents_come_before_their_children(tree: tuple[int, list[int]]) -> None:
    root, (child, grandchild) = tree
    found = list(descendants_of(root))
    assert len(found) == 3
    assert found.index(child) < found.index(grandchild)


def test_a_kernel_that_lists_no_children_gives_the_same_family(
    tree: tuple[int, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = tree
    with monkeypatch.context() as patched:
        patched.setattr(os.path, "exists", lambda path: False)
        searched = children()
    assert searched is not listed_children
    assert set(searched(root)) == set(listed_children(root))
    assert searched(listed_children(root)[1]) == listed_children(listed_children(root)[1])


def test_a_process_that_is_gone_has_no_children_and_takes_no_signal() -> None:
    done = subprocess.Popen(["/bin/true"])
    done.wait()
    assert listed_children(done.pid) == []
    assert send(done.pid, signal.SIGTERM) is False


def test_the_guard_loads_nothing_but_the_standard_library() -> None:
    line = "import sys; sys.path.append(sys.argv[1]); import parley.workspace.guard; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", line, str(ROOT)], capture_output=True, check=True, text=True
    )
    loaded = done.stdout.split()
    assert {name for name in loaded if name.startswith("parley.workspace.")} == {
        "parley.workspace.family",
        "parley.workspace.keeper",
        "parley.workspace.guard",
    }
    assert {"msgspec", "asyncio", "subprocess", "json"} & set(loaded) == set()
