"""Reading files that an attacker may have planted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from parley.settings.safe_read import MissingFile, UnreadableFile, parse_json_object, read_file


def test_a_regular_file_is_read_with_its_real_place(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("text")
    (tmp_path / "link").symlink_to("x")

    found = read_file(tmp_path / "link")

    assert (found.data, found.real) == (b"text", str(tmp_path / "x"))
    assert found.identity == (os.stat(tmp_path / "x").st_dev, os.stat(tmp_path / "x").st_ino)


@pytest.mark.parametrize("name", ["none", "x/y", "gone"])
def test_what_is_not_there_is_absent(tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_text("")
    (tmp_path / "gone").symlink_to("nowhere")

    with pytest.raises(MissingFile):
        read_file(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("folder", "is a folder, not a file"),
        ("pipe", "is not a regular file"),
        ("/dev/null", "is not a regular file"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
        ("nul\0", "cannot be read: Invalid argument"),
        ("n" * 300, "cannot be read: File name too long"),
        ("big", "is too large: 11 bytes (the limit is 10)"),
    ],
)
def test_what_is_not_a_file_is_named_and_never_waited_for(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "big").write_text("x" * 11)

    with pytest.raises(UnreadableFile) as raised:
        read_file(os.path.join(tmp_path, name), most_bytes=10)

    assert str(raised.value) == reason


def test_a_file_that_grows_while_it_is_read_has_an_end() -> None:
    assert len(read_file("/proc/self/environ", most_bytes=3).data) <= 3


@pytest.mark.parametrize(("beneath", "fits"), [("inside", True), ("in", False), ("", True), ("inside/x", False)])
def test_a_folder_is_compared_part_by_part(tmp_path: Path, beneath: str, fits: bool) -> None:
    for name in ("inside", "in"):
        (tmp_path / name).mkdir()
    (tmp_path / "inside" / "x").write_text("text")
    borders = (str(tmp_path / beneath),)

    if fits:
        assert read_file(tmp_path / "inside" / "x", borders).data == b"text"
    else:
        with pytest.raises(UnreadableFile, match="to a file outside its folder"):
            read_file(tmp_path / "inside" / "x", borders)


def test_a_mark_of_the_byte_order_is_not_an_error() -> None:
    assert parse_json_object(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
