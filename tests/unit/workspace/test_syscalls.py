from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.workspace import syscalls

FLAGS = os.O_RDONLY | os.O_CLOEXEC
needs_openat2 = pytest.mark.skipif(not syscalls.has_openat2(), reason="this kernel has no openat2")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/file").write_text("inside")
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


@needs_openat2
def test_openat2_opens_beneath_a_descriptor(folder: int) -> None:
    with open(syscalls.openat2(folder, "sub/file", FLAGS)) as file:
        assert file.read() == "inside"


@needs_openat2
@pytest.mark.parametrize(
    ("name", "code"),
    [("../file", errno.EXDEV), ("/etc/passwd", errno.EXDEV), ("link/file", errno.ELOOP), ("sub/none", errno.ENOENT)],
)
def test_openat2_follows_nothing_out(folder: int, tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / "link").symlink_to("sub")

    with pytest.raises(OSError, match=os.strerror(code)):
        syscalls.openat2(folder, name, FLAGS)


def test_a_name_that_is_free_is_taken(folder: int, tmp_path: Path) -> None:
    (tmp_path / "new").write_text("new")
    if not syscalls.rename_to_free_name(folder, "new", "name"):
        pytest.skip("this system cannot do it")

    assert (tmp_path / "name").read_text() == "new"


def test_a_name_that_is_taken_is_left_alone(folder: int, tmp_path: Path) -> None:
    (tmp_path / "new").write_text("new")
    (tmp_path / "name").write_text("theirs")

    with pytest.raises(FileExistsError):
        syscalls.rename_to_free_name(folder, "new", "name")
    assert (tmp_path / "name").read_text() == "theirs"


def test_the_birth_time_is_that_of_the_file_system(tmp_path: Path, folder: int) -> None:
    told = subprocess.run(["stat", "-c", "%W", tmp_path], capture_output=True, text=True, check=True).stdout
    if int(told) == 0:
        pytest.skip("this file system has no birth times")
    born = syscalls.birth_time_ns(folder)

    assert born is not None
    assert born // 1_000_000_000 == int(told)


@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="a file system without birth times")
def test_where_there_is_no_birth_time_there_is_none() -> None:
    descriptor = os.open("/proc/self", os.O_RDONLY)
    try:
        assert syscalls.birth_time_ns(descriptor) is None
    finally:
        os.close(descriptor)
