from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parley.workspace import safe_open, syscalls
from parley.workspace.safe_open import FileLocation, Swapped

BESIDE = ".parley-1.tmp"


@contextmanager
def place_of(path: Path) -> Iterator[FileLocation]:
    with safe_open.at(str(path)) as place:
        yield place


def replace(path: Path, data: bytes, mode: int | None = None) -> os.stat_result:
    with place_of(path) as place:
        return safe_open.replace_file(place, data, BESIDE, lambda: None, mode)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"old")
    return tmp_path / "file"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_replaced_and_nothing_else_is_left(file: Path) -> None:
    status = replace(file, b"new")

    assert file.read_bytes() == b"new"
    assert os.path.samestat(status, file.stat())
    assert os.listdir(file.parent) == ["file"]


def test_a_reader_that_has_the_old_file_open_keeps_it(file: Path) -> None:
    with file.open("rb") as reader:
        replace(file, b"new")
        assert reader.read() == b"old"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o444])
def test_the_mode_is_kept(file: Path, mode: int) -> None:
    file.chmod(mode)
    replace(file, b"new")

    assert mode_of(file) == mode


def test_a_changed_program_is_not_setuid_any_more(file: Path) -> None:
    file.chmod(0o4755)
    replace(file, b"new")

    assert mode_of(file) == 0o755


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        replace(tmp_path / "new", b"new")
    finally:
        os.umask(old)

    assert mode_of(tmp_path / "new") == 0o640


def test_a_mode_that_is_asked_for_is_set(file: Path, tmp_path: Path) -> None:
    replace(file, b"new", 0o750)
    replace(tmp_path / "new", b"new", 0o750)

    assert (mode_of(file), mode_of(tmp_path / "new")) == (0o750, 0o750)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_owner_is_kept(file: Path) -> None:
    os.chown(file, 65534, 65534)
    replace(file, b"new")

    assert (file.stat().st_uid, file.stat().st_gid) == (65534, 65534)


def test_another_name_of_the_old_file_keeps_the_old_content(file: Path, tmp_path: Path) -> None:
    (tmp_path / "other").hardlink_to(file)
    replace(file, b"new")

    assert (tmp_path / "other").read_bytes() == b"old"


def test_what_is_not_right_any_more_is_left_alone(file: Path) -> None:
    def refuse() -> None:
        raise ValueError("not right")

    with place_of(file) as place, pytest.raises(ValueError, match="not right"):
        safe_open.replace_file(place, b"new", BESIDE, refuse)
    assert file.read_bytes() == b"old"
    assert os.listdir(file.parent) == ["file"]


def test_the_question_whether_it_is_right_comes_when_the_new_file_is_complete(file: Path) -> None:
    seen = []

    with place_of(file) as place:
        safe_open.replace_file(place, b"new", BESIDE, lambda: seen.append((file.parent / BESIDE).read_bytes()))
    assert seen == [b"new"]


@pytest.mark.parametrize("in_one_step", [True, False])
def test_a_name_that_is_taken_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_one_step: bool
) -> None:
    if not in_one_step:
        monkeypatch.setattr(syscalls, "rename_to_free_name", lambda *names: False)

    with place_of(tmp_path / "new") as place, pytest.raises(FileExistsError):
        safe_open.replace_file(place, b"ours", BESIDE, lambda: (tmp_path / "new").write_bytes(b"theirs"))
    assert (tmp_path / "new").read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["new"]


def test_a_new_file_is_made_where_the_system_cannot_do_it_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syscalls, "rename_to_free_name", lambda *names: False)
    replace(tmp_path / "new", b"new")

    assert (tmp_path / "new").read_bytes() == b"new"


def test_a_folder_that_is_moved_away_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with place_of(tmp_path / "folder/new") as place, pytest.raises(Swapped):
        safe_open.replace_file(place, b"new", BESIDE, lambda: (tmp_path / "folder").rename(tmp_path / "away"))

    assert os.listdir(tmp_path / "away") == []


def test_a_link_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")

    with pytest.raises(Swapped):
        replace(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()


def test_leftovers_of_a_crash_do_no_harm(file: Path) -> None:
    (file.parent / BESIDE).write_bytes(b"half of some")
    replace(file, b"new")

    assert file.read_bytes() == b"new"
    assert os.listdir(file.parent) == ["file"]


def test_the_new_content_is_on_the_disk_before_it_has_the_name(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append((kind, file.read_bytes()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    replace(file, b"new")

    assert synced == [("file", b"old"), ("folder", b"new")]


def test_a_file_is_removed(file: Path) -> None:
    with place_of(file) as place:
        safe_open.remove_file(place)

    assert os.listdir(file.parent) == []
