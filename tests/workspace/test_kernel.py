from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.workspace import kernel

FLAGS = os.O_RDONLY | os.O_CLOEXEC
needs_openat2 = pytest.mark.skipif(not kernel.has_openat2(), reason="this kernel has no openat2")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/file").write_text("inside")
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


@needs_openat2
def test_openat2_opens_beneath_a_descriptor(folder: int) -> None:
    with open(kernel.openat2(folder, "sub/file", FLAGS)) as file:
        assert file.read() == "inside"


@needs_openat2
@pytest.mark.parametrize(
    ("name", "code"),
    [("../file", errno.EXDEV), ("/etc/passwd", errno.EXDEV), ("link/file", errno.ELOOP), ("sub/none", errno.ENOENT)],
)
def test_openat2_follows_nothing_out(folder: int, tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / "link").symlink_to("sub")

    with pytest.raises(OSError, match=os.strerror(code)):
        kernel.openat2(folder, name, FLAGS)


def test_a_name_that_is_free_is_taken(folder: int, tmp_path: Path) -> None:
    (tmp_path / "new").write_text("new")
    if not kernel.rename_to_free_name(folder, "new", "name"):
        pytest.skip("this system cannot do it")

    assert (tmp_path / "name").read_text() == "new"


def test_a_name_that_is_taken_is_left_alone(folder: int, tmp_path: Path) -> None:
    (tmp_path / "new").write_text("new")
    (tmp_path / "name").write_text("theirs")

    with pytest.raises(FileExistsError):
        kernel.rename_to_free_name(folder, "new", "name")
    assert (tmp_path / "name").read_text() == "theirs"
