"""Short runs of symlink_races.py, torn_writes.py and random_rewinds.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from parley.workspace import syscalls
from tests.helpers.small_process import run_in_small_process
from tests.stress.workspace import random_rewinds, symlink_races, torn_writes


@pytest.mark.parametrize("openat2", [True, False])
def test_no_swap_leads_a_read_or_a_write_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, openat2: bool) -> None:
    if not openat2:
        monkeypatch.setattr(syscalls, "has_openat2", lambda: False)
    elif not syscalls.has_openat2():
        pytest.skip("this kernel has no openat2")
    outcomes = symlink_races.run(tmp_path, swaps=1_000, seed=1)

    assert outcomes.keys() == {"read done", "read refused", "edit done", "edit refused"}


def test_the_racer_catches_who_checks_names(tmp_path: Path) -> None:
    with pytest.raises(symlink_races.Caught):
        symlink_races.run(tmp_path, swaps=20_000, seed=1, victim=symlink_races.Naive)


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder where a sync costs nothing, if there is one; who is killed does not lose what he has written."""
    with TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path) as folder:
        yield Path(folder)


def test_a_writer_killed_at_any_call_leaves_the_old_file_or_the_new_one(in_memory: Path) -> None:
    deaths = run_in_small_process(torn_writes.run_every_call, in_memory, ["create", "replace", "rewind"], torn=False)

    assert deaths.keys() == {"create", "replace", "rewind"}
    assert min(deaths.values()) > 20


def test_a_writer_killed_at_any_time_leaves_a_whole_file(in_memory: Path) -> None:
    run_in_small_process(torn_writes.run_random_kills, in_memory, kills=20, dice=Random(1))


def test_files_and_model_stay_equal_through_edits_and_rewinds(in_memory: Path) -> None:
    steps = random_rewinds.run(in_memory, steps=500, seed=1)

    assert steps.total() == 500
    assert steps.keys() == {step.__name__ for step in random_rewinds.STEPS}
