"""The temporary folders of hosts."""

from __future__ import annotations

import os
from pathlib import Path

from parley.cluster.host import LEFTOVER_SECONDS, remove_leftovers
from parley.gateway.hub import lock_folder


def make_folder(parent: Path, name: str) -> Path:
    folder = parent / f"parley-host-{name}"
    folder.mkdir()
    (folder / "projections.db").write_text("")
    return folder


def grow_old(folder: Path) -> None:
    then = folder.stat().st_mtime - 2 * LEFTOVER_SECONDS
    os.utime(folder, (then, then))


def test_folders_of_killed_hosts_are_removed_and_those_of_running_ones_are_not(tmp_path: Path) -> None:
    killed, running, starting = [make_folder(tmp_path, name) for name in ("killed", "running", "starting")]
    os.close(lock_folder(killed))
    held = lock_folder(running)
    for folder in (killed, running):
        grow_old(folder)

    remove_leftovers(tmp_path)
    os.close(held)

    assert [path.name for path in sorted(tmp_path.iterdir())] == [running.name, starting.name]
