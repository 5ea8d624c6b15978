from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from parley.errors import ToolError
from parley.workspace import safe_open
from parley.workspace.base import FileSnapshot
from parley.workspace.local import (
    CHUNK_BYTES,
    LARGEST_BYTES,
    check_unchanged,
    check_writable,
    snapshot,
    snapshot_at,
)
from parley.workspace.safe_open import Swapped
from tests.helpers.workspace import as_nobody


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "file").chmod(0o640)
    return tmp_path / "file"


def take(path: Path, limit_bytes: int | None = None) -> FileSnapshot:
    with safe_open.at(str(path)) as place:
        return snapshot(place, limit_bytes)


def check(path: Path, expected: FileSnapshot | None) -> None:
    with safe_open.at(str(path)) as place:
        check_unchanged(place, expected)


def test_a_snapshot_reports_the_whole_file(file: Path) -> None:
    status = file.stat()

    assert take(file) == FileSnapshot(
        path=str(file),
        data=b"0123456789",
        size=10,
        mode=0o640,
        mtime_ns=status.st_mtime_ns,
        inode=status.st_ino,
    )


@pytest.mark.parametrize(("limit_bytes", "data"), [(0, b""), (4, b"0123"), (10, b"0123456789"), (99, b"0123456789")])
def test_a_limit_cuts_the_data_but_not_the_size(file: Path, limit_bytes: int, data: bytes) -> None:
    taken = take(file, limit_bytes)

    assert (taken.data, taken.size) == (data, 10)


def test_a_file_that_the_kernel_makes_up_is_read_whole() -> None:
    taken = take(Path("/proc/version"))

    assert taken.data.startswith(b"Linux")
    assert taken.size == len(taken.data)


def test_a_file_too_large_for_memory_needs_a_limit(file: Path) -> None:
    os.truncate(file, LARGEST_BYTES + 1)

    with pytest.raises(ToolError, match="too large to read as a whole"):
        take(file)
    assert take(file, 3).data == b"012"


def test_nothing_is_not_a_snapshot(tmp_path: Path) -> None:
    assert snapshot_at(str(tmp_path / "none")) is None
    assert snapshot_at(str(tmp_path / "no/folder")) is None


def test_a_link_on_the_way_is_not_followed(file: Path) -> None:
    (file.parent / "link").symlink_to("file")

    with pytest.raises(Swapped):
        snapshot_at(str(file.parent / "link"))


def test_a_file_that_is_still_the_same_passes(file: Path) -> None:
    check(file, take(file))
    check(file, take(file, 3))
    check(file.parent / "none", None)


def test_the_same_bytes_written_again_are_the_same_file(file: Path) -> None:
    before = take(file)
    file.unlink()
    file.write_bytes(b"0123456789")

    check(file, before)


def test_other_bytes_of_the_same_size_and_time_are_not(file: Path) -> None:
    before = take(file)
    file.write_bytes(b"9876543210")
    os.utime(file, ns=(before.mtime_ns, before.mtime_ns))

    with pytest.raises(ToolError, match="has changed since it was read"):
        check(file, before)


@pytest.mark.parametrize("more", [b"x", b"x" * CHUNK_BYTES])
def test_a_file_that_grew_is_not(file: Path, more: bytes) -> None:
    before = take(file)
    with file.open("ab") as growing:
        growing.write(more)

    with pytest.raises(ToolError, match="has changed"):
        check(file, before)


def test_a_file_known_in_part_is_known_by_its_marks(file: Path) -> None:
    before = take(file, 3)
    file.write_bytes(b"0129876543")
    os.utime(file, ns=(1, 1))

    with pytest.raises(ToolError, match="has changed"):
        check(file, before)


def test_the_same_content_at_another_path_is_not_the_same(file: Path) -> None:
    elsewhere = msgspec.structs.replace(take(file), path=str(file.parent / "other"))

    with pytest.raises(ToolError, match="has changed"):
        check(file, elsewhere)


def test_a_deleted_file_is_reported_as_deleted(file: Path) -> None:
    before = take(file)
    file.unlink()

    with pytest.raises(ToolError, match="was deleted after it was read"):
        check(file, before)


def test_a_file_where_there_should_be_none_is_reported(file: Path) -> None:
    with pytest.raises(ToolError, match=r"already exists\. Read it before"):
        check(file, None)


def test_a_read_only_file_is_left_alone(file: Path) -> None:
    file.chmod(0o444)

    with (
        as_nobody(file.parent),
        safe_open.at(str(file)) as place,
        pytest.raises(ToolError, match="the file is read-only"),
    ):
        check_writable(place)
