"""Replacing files in a folder that an attacker may write to."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from parley.settings.base import SettingsWriteError
from parley.settings.writer import LOCK_FILE, SafeFolder, open_folder

FLOCK = fcntl.flock


@pytest.fixture
def cannot_lock_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that cannot lock folders, like some network file systems."""

    def flock(descriptor: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        FLOCK(descriptor, how)

    monkeypatch.setattr("fcntl.flock", flock)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    with open_folder(tmp_path / "a" / "b") as folder:
        assert folder.read("x") is None
        folder.replace("x", b"one")
        folder.replace("x", b"two")
        assert folder.read("x") == b"two"

    assert names(tmp_path / "a" / "b") == ["x"]


def test_folders_below_the_first_are_made(tmp_path: Path) -> None:
    with open_folder(tmp_path, ("a", "b")) as folder:
        folder.replace("x", b"")

    assert (tmp_path / "a" / "b" / "x").exists()


@pytest.mark.parametrize("names", [(), ("inner",)])
def test_what_is_not_a_folder_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(SettingsWriteError, match="cannot open the folder"), open_folder(tmp_path / "file", names):
        pass


def test_a_setuid_bit_is_not_given_to_a_new_content(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    (tmp_path / "x").chmod(0o4755)
    with open_folder(tmp_path) as folder:
        folder.replace("x", b"new")

    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o755


@pytest.mark.parametrize("call", ["rename", "fsync", "write"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*given: Any, **named: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "x").write_text("old")
    with open_folder(tmp_path) as folder:
        monkeypatch.setattr(f"os.{call}", full)
        with pytest.raises(SettingsWriteError, match="No space left"):
            folder.replace("x", b"new")

    assert ((tmp_path / "x").read_text(), names(tmp_path)) == ("old", ["x"])


# Locks.


def locked_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The error that a second writer gets."""
    monkeypatch.setattr("parley.settings.writer.LOCK_SECONDS", 0.0)
    with open_folder(path) as second, pytest.raises(SettingsWriteError) as raised, second.lock():
        pass
    return str(raised.value)


def test_a_lock_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_folder(tmp_path) as first, first.lock():
        assert locked_out(tmp_path, monkeypatch) == f"{tmp_path} is locked by another process; try again"

    with open_folder(tmp_path) as again, again.lock():
        assert names(tmp_path) == []


@pytest.mark.usefixtures("cannot_lock_folders")
def test_where_a_folder_cannot_be_locked_a_file_in_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_folder(tmp_path) as first, first.lock():
        assert locked_out(tmp_path, monkeypatch) == f"{tmp_path} is locked by another process; try again"
        assert names(tmp_path) == [LOCK_FILE]

    with open_folder(tmp_path) as again, again.lock():
        assert isinstance(again, SafeFolder)


@pytest.mark.usefixtures("cannot_lock_folders")
def test_a_planted_link_in_the_place_of_the_lock_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / LOCK_FILE).symlink_to(tmp_path / "victim")

    assert "cannot lock" in locked_out(tmp_path, monkeypatch)
    assert names(tmp_path) == [LOCK_FILE]
