"""Write, on real files."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

import msgspec
import pytest

from parley.tools.base import ToolOutput
from parley.tools.files.edit import Write
from parley.tools.files.read import Read
from tests.helpers.tools import ToolHarness


@pytest.fixture
def harness(tmp_path: Path) -> ToolHarness:
    return ToolHarness(tmp_path)


def write(harness: ToolHarness, name: str, content: str) -> ToolOutput:
    return harness.call(Write(), file_path=harness.path(name), content=content)


def test_a_new_file_is_made_together_with_its_folders(harness: ToolHarness) -> None:
    result = write(harness, "new/deep/n.txt", "hello\n")
    path = harness.path("new/deep/n.txt")
    assert Path(path).read_bytes() == b"hello\n"
    assert result == ToolOutput(
        content=f"File created successfully at: {path} (you know its content; there is no need to read it again)",
        detail={
            "type": "create",
            "filePath": path,
            "content": "hello\n",
            "structuredPatch": [],
            "originalFile": None,
            "userModified": False,
        },
    )


def test_a_file_is_replaced_and_the_host_sees_what_changed(harness: ToolHarness) -> None:
    path = harness.put("a.txt", "alpha\nbeta\ngamma\n")
    result = write(harness, "a.txt", "alpha\nBETA\ngamma\n")
    assert path.read_bytes() == b"alpha\nBETA\ngamma\n"
    assert str(result.content).startswith(f"The file {path} has been updated successfully. (")
    assert result.detail == {
        "type": "update",
        "filePath": str(path),
        "content": "alpha\nBETA\ngamma\n",
        "structuredPatch": [
            {
                "oldStart": 1,
                "oldLines": 3,
                "newStart": 1,
                "newLines": 3,
                "lines": [" alpha", "-beta", "+BETA", " gamma"],
            }
        ],
        "originalFile": "alpha\nbeta\ngamma\n",
        "userModified": False,
    }


def test_the_mode_of_a_file_is_kept(harness: ToolHarness) -> None:
    path = harness.put("run.sh", "#!/bin/sh\n")
    path.chmod(0o750)
    write(harness, "run.sh", "#!/bin/sh\necho\n")
    assert path.stat().st_mode & 0o7777 == 0o750


def test_line_endings_are_written_as_they_are_given(harness: ToolHarness) -> None:
    path = harness.put("a.txt", "a\r\nb\r\n")
    write(harness, "a.txt", "a\nb\r\nc")
    assert path.read_bytes() == b"a\nb\r\nc"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (codecs.BOM_UTF8 + b"alt", codecs.BOM_UTF8 + "größe".encode()),
        (codecs.BOM_UTF16_LE + "alt".encode("utf-16-le"), codecs.BOM_UTF16_LE + "größe".encode("utf-16-le")),
        (codecs.BOM_UTF16_BE + "alt".encode("utf-16-be"), codecs.BOM_UTF16_BE + "größe".encode("utf-16-be")),
        ("é".encode("latin-1"), "größe".encode()),
        (b"\0\1\2", "größe".encode()),
    ],
    ids=["utf-8 mark", "utf-16-le", "utf-16-be", "unknown", "binary"],
)
def test_a_mark_that_read_does_not_show_is_kept_and_all_else_becomes_utf_8(
    harness: ToolHarness, before: bytes, after: bytes
) -> None:
    path = harness.put("a.txt", before)
    write(harness, "a.txt", "größe")
    assert path.read_bytes() == after


def test_a_binary_file_that_is_replaced_is_not_reported_as_text(harness: ToolHarness) -> None:
    harness.put("a.bin", b"\0\1\2")
    detail = write(harness, "a.bin", "text").detail
    assert (detail["originalFile"], detail["structuredPatch"]) == (None, [])


def test_a_file_too_large_for_memory_is_replaced_without_being_told_as_text(
    harness: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.tools.files.edit.LARGEST_BYTES", 1_000)
    path = harness.put("a.log", "line\n" * 1_000)
    detail = write(harness, "a.log", "text").detail
    assert (detail["originalFile"], detail["structuredPatch"]) == (None, [])
    assert path.read_bytes() == b"text"


def test_half_a_character_is_refused_and_the_file_stays(harness: ToolHarness) -> None:
    path = harness.put("a.txt", "old")
    assert "half a surrogate pair" in harness.refusal(Write(), file_path=str(path), content="a\ud83d")
    assert path.read_bytes() == b"old"


def test_a_folder_is_refused(harness: ToolHarness) -> None:
    (harness.folder / "sub").mkdir()
    assert "folder" in harness.refusal(Write(), file_path=harness.path("sub"), content="x")


def test_what_a_line_cannot_hold_of_the_old_file_is_left_out(harness: ToolHarness) -> None:
    harness.put("a.txt", "x" * 80 + "\n" + "\1" * 200_000)
    detail = write(harness, "a.txt", "short").detail
    assert detail["originalFile"] is None
    assert len(msgspec.json.encode(detail)) < 1_000_000


def test_an_unread_file_may_be_replaced_by_a_model_that_is_trusted(harness: ToolHarness) -> None:
    path = harness.put("a.txt", "old")
    write(harness, "a.txt", "new")
    assert path.read_bytes() == b"new"


def test_replacing_a_file_that_changed_since_it_was_read_is_reported(harness: ToolHarness) -> None:
    path = harness.put("a.txt", "old")
    harness.call(Read(), file_path=str(path))
    path.write_text("from elsewhere")
    assert "modified on disk since you last read it" in str(write(harness, "a.txt", "new").content)
    assert path.read_bytes() == b"new"


# For a model that must read first.


@pytest.fixture
def strict(tmp_path: Path) -> ToolHarness:
    return ToolHarness(tmp_path, strict_reads=True)


def test_an_unread_file_is_not_replaced(strict: ToolHarness) -> None:
    path = strict.put("a.txt", "old")
    assert strict.refusal(Write(), file_path=str(path), content="new").startswith("File has not been read yet.")
    assert path.read_bytes() == b"old"


def test_a_file_that_was_read_is_replaced_also_by_another_name(strict: ToolHarness) -> None:
    path = strict.put("a.txt", "old")
    (strict.folder / "link.txt").symlink_to(path)
    strict.call(Read(), file_path=str(path))
    write(strict, "link.txt", "new")
    assert path.read_bytes() == b"new"


def test_a_file_the_model_wrote_itself_needs_no_reading(strict: ToolHarness) -> None:
    write(strict, "a.txt", "one")
    write(strict, "a.txt", "two")
    assert (strict.folder / "a.txt").read_bytes() == b"two"


def test_a_file_that_changed_since_it_was_read_is_not_replaced(strict: ToolHarness) -> None:
    path = strict.put("a.txt", "old")
    strict.call(Read(), file_path=str(path))
    path.write_text("from elsewhere")
    assert "modified since it was read" in strict.refusal(Write(), file_path=str(path), content="new")
    assert path.read_text() == "from elsewhere"


def test_a_file_that_was_only_touched_has_not_changed(strict: ToolHarness) -> None:
    path = strict.put("a.txt", "old")
    strict.call(Read(), file_path=str(path))
    os.utime(path, ns=(1, 1))
    write(strict, "a.txt", "new")
    assert path.read_bytes() == b"new"
