"""Locking and replacing files of the program's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from parley.workspace.private_files import LIST, UnsafeFile, lock, open_folder, replace, replacing, unlock


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("path", ["", "file"])
def test_a_lock_keeps_others_out_until_it_is_released(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    flags = os.O_RDWR if path else LIST
    first, second = (os.open(tmp_path / path, flags) for _ in range(2))

    assert (lock(first), lock(second, timeout_seconds=0)) == (True, False)
    unlock(first)
    assert lock(second, timeout_seconds=0)
    os.close(first)
    os.close(second)


def test_shared_locks_exclude_only_exclusive_ones(tmp_path: Path) -> None:
    first, second, third = (os.open(tmp_path, LIST) for _ in range(3))

    assert (lock(first, shared=True), lock(second, shared=True)) == (True, True)
    assert not lock(third, timeout_seconds=0)
    for descriptor in (first, second, third):
        os.close(descriptor)


def test_a_lock_is_tried_until_the_time_is_over(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path, LIST) for _ in range(2))
    pauses: list[float] = []

    lock(first)
    assert not lock(second, timeout_seconds=0.05, pause=pauses.append)
    assert sum(pauses) == pytest.approx(0.05)
    assert lock(second, timeout_seconds=0.05, pause=lambda seconds: unlock(first))
    os.close(first)
    os.close(second)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    replace(tmp_path / "inner" / "file", b"one", below=1)
    replace(tmp_path / "inner" / "file", b"two", below=1)

    assert (tmp_path / "inner" / "file").read_bytes() == b"two"
    assert names(tmp_path / "inner") == ["file"]


def test_a_link_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UnsafeFile, match="is a symbolic link"):
        replace(tmp_path / "file", b"new")
    assert names(tmp_path) == ["file"]


def test_an_error_before_the_end_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")

    with pytest.raises(ZeroDivisionError), open_folder(tmp_path) as (folder, _), replacing(folder, "file") as new:
        os.write(new, b"new" * (1 // 0))
    assert ((tmp_path / "file").read_bytes(), names(tmp_path)) == (b"old", ["file"])
