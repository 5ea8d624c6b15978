from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from parley.errors import ToolError
from parley.workspace.base import RewindReport, Scope
from parley.workspace.checkpoint.store import INDEX, ChangeRow, CheckpointStore
from tests.helpers.workspace import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_file_is_read(desk: Desk) -> None:
    (desk.inside / "file").write_bytes(b"content")
    found = desk.files.read(f"{desk.inside}/file", desk.reach)

    assert (found.path, found.data) == (f"{desk.inside}/file", b"content")
    assert desk.files.peek(f"{desk.inside}/file", desk.reach) == found
    assert desk.files.read(f"{desk.inside}/file", desk.reach, 3).data == b"con"


def test_a_missing_file_is_nothing_to_peek_at_and_cannot_be_read(desk: Desk) -> None:
    assert desk.files.peek(f"{desk.inside}/none", desk.reach) is None
    assert desk.files.peek(f"{desk.inside}/no/folder", desk.reach) is None
    with pytest.raises(ToolError, match="File does not exist"):
        desk.files.read(f"{desk.inside}/none", desk.reach)


def test_a_file_is_made_with_its_folders(desk: Desk) -> None:
    path = f"{desk.inside}/new/folder/file"
    written = desk.files.write(path, b"new", desk.reach, replacing=None)

    assert desk.tree() == {"new/folder/file": b"new"}
    assert written == desk.files.read(path, desk.reach)


def test_what_was_written_can_be_replaced_as_it_came_back(desk: Desk) -> None:
    path = f"{desk.inside}/file"
    first = desk.files.write(path, b"one", desk.reach, replacing=None)
    desk.files.write(path, b"two", desk.reach, replacing=first)

    assert desk.tree() == {"file": b"two"}


def test_a_file_that_changed_since_is_not_replaced(desk: Desk) -> None:
    path = f"{desk.inside}/file"
    known = desk.files.write(path, b"one", desk.reach, replacing=None)
    (desk.inside / "file").write_bytes(b"theirs")

    with pytest.raises(ToolError, match="Read it again before you write it"):
        desk.files.write(path, b"two", desk.reach, replacing=known)
    assert desk.tree() == {"file": b"theirs"}


def test_a_file_that_exists_is_not_made_anew(desk: Desk) -> None:
    (desk.inside / "file").write_bytes(b"theirs")

    with pytest.raises(ToolError, match="exists already"):
        desk.files.write(f"{desk.inside}/file", b"new", desk.reach, replacing=None)
    assert desk.tree() == {"file": b"theirs"}


def test_a_file_whose_folder_is_gone_is_not_made_anew(desk: Desk) -> None:
    path = f"{desk.inside}/folder/file"
    known = desk.files.write(path, b"one", desk.reach, replacing=None)
    (desk.inside / "folder/file").unlink()
    (desk.inside / "folder").rmdir()

    with pytest.raises(ToolError, match="not there any more"):
        desk.files.write(path, b"two", desk.reach, replacing=known)
    assert not (desk.inside / "folder").exists()


def test_through_a_link_its_target_is_replaced_and_the_link_stays(desk: Desk) -> None:
    (desk.inside / "real").mkdir()
    (desk.inside / "real/file").write_bytes(b"old")
    (desk.inside / "link").symlink_to("real/file")
    desk.put("link", b"new")

    assert (desk.inside / "link").is_symlink()
    assert (desk.inside / "real/file").read_bytes() == b"new"
    assert not (desk.inside / "real/file").is_symlink()


def test_through_a_link_that_leads_nowhere_its_target_is_made(desk: Desk) -> None:
    (desk.inside / "link").symlink_to("real/file")
    desk.put("link", b"new")

    assert (desk.inside / "real/file").read_bytes() == b"new"
    assert (desk.inside / "link").is_symlink()


@pytest.mark.parametrize("target", ["file", "none"])
def test_through_a_link_that_leads_out_nothing_is_written(desk: Desk, target: str) -> None:
    (desk.outside / "file").write_bytes(b"theirs")
    (desk.inside / "link").symlink_to(desk.outside / target)

    with pytest.raises(ToolError, match="outside"):
        desk.files.write(f"{desk.inside}/link", b"new", desk.reach, replacing=None)
    assert (desk.outside / "file").read_bytes() == b"theirs"
    assert os.listdir(desk.outside) == ["file"]


def test_a_write_may_go_no_further_than_its_reach(desk: Desk) -> None:
    only = Scope(files=(f"{desk.inside}/this",))
    desk.files.write(f"{desk.inside}/this", b"new", only, replacing=None)

    with pytest.raises(ToolError, match="outside"):
        desk.files.write(f"{desk.inside}/that", b"new", only, replacing=None)
    assert desk.tree() == {"this": b"new"}


def test_many_threads_write_one_after_the_other(desk: Desk) -> None:
    desk.files.begin_message("m1")
    threads = [threading.Thread(target=desk.put, args=(f"file{number}", b"x" * number)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert desk.tree() == {f"file{number}": b"x" * number for number in range(8)}
    assert len(desk.restart().rewind("m1", dry_run=False).files) == 8
    assert desk.tree() == {}


# Going back.


def test_every_file_goes_back_to_what_it_was_when_the_message_came(desk: Desk) -> None:
    (desk.inside / "old").write_bytes(b"alpha\nbeta\n")
    desk.files.begin_message("m1")
    desk.put("old", b"ALPHA\nbeta\n")
    desk.put("new", b"n\n")

    told = RewindReport(possible=True, files=(f"{desk.inside}/old", f"{desk.inside}/new"), insertions=1, deletions=2)
    assert desk.files.rewind("m1", dry_run=True) == told
    assert desk.tree() == {"new": b"n\n", "old": b"ALPHA\nbeta\n"}
    assert desk.files.rewind("m1", dry_run=False) == told
    assert desk.tree() == {"old": b"alpha\nbeta\n"}
    assert desk.files.rewind("m1", dry_run=False) == RewindReport(possible=True)


def test_each_message_is_a_place_to_go_back_to_and_forth(desk: Desk) -> None:
    for number in range(1, 4):
        desk.files.begin_message(f"m{number}")
        desk.put("file", b"%d" % number)
    for message, content in (("m3", b"2"), ("m2", b"1"), ("m3", b"2")):
        assert desk.files.rewind(message, dry_run=False).possible
        assert desk.tree() == {"file": content}
    desk.files.rewind("m1", dry_run=False)
    assert desk.tree() == {}


def test_a_rewind_survives_a_restart(desk: Desk) -> None:
    (desk.inside / "file").write_bytes(b"old")
    desk.files.begin_message("m1")
    desk.put("file", b"new")
    desk.restart()

    assert desk.files.rewind("m1", dry_run=False).possible
    assert desk.tree() == {"file": b"old"}


def test_a_message_that_is_not_known_cannot_be_gone_back_to(desk: Desk) -> None:
    desk.files.begin_message("m1")

    assert desk.files.rewind("m2", dry_run=False) == RewindReport(
        possible=False, reason="No file checkpoint found for this message."
    )


def test_later_edits_of_somebody_else_are_left_alone_and_named(desk: Desk) -> None:
    desk.files.begin_message("m1")
    desk.put("ours", b"ours")
    desk.put("theirs", b"ours")
    (desk.inside / "theirs").write_bytes(b"theirs")

    told = desk.files.rewind("m1", dry_run=False)
    assert (told.possible, told.files, told.left_alone) == (True, (f"{desk.inside}/ours",), (f"{desk.inside}/theirs",))
    assert told.reason == f"Left alone: {desk.inside}/theirs (it was changed by somebody else since)"
    assert desk.tree() == {"theirs": b"theirs"}


def test_a_file_deleted_since_comes_back_with_its_folder_and_mode(desk: Desk) -> None:
    (desk.inside / "folder").mkdir()
    (desk.inside / "folder/file").write_bytes(b"old")
    (desk.inside / "folder/file").chmod(0o751)
    desk.files.begin_message("m1")
    desk.put("folder/file", b"new")
    (desk.inside / "folder/file").unlink()
    (desk.inside / "folder").rmdir()

    assert desk.files.rewind("m1", dry_run=True).files == (f"{desk.inside}/folder/file",)
    assert desk.tree() == {}
    assert desk.files.rewind("m1", dry_run=False).possible
    assert desk.tree() == {"folder/file": b"old"}
    assert (desk.inside / "folder/file").stat().st_mode & 0o777 == 0o751


def test_a_link_in_the_place_of_a_file_is_left_alone(desk: Desk) -> None:
    (desk.outside / "file").write_bytes(b"ours")
    (desk.inside / "folder").mkdir()
    for name in ("file", "folder/file"):
        (desk.inside / name).write_bytes(b"old")
    desk.files.begin_message("m1")
    for name in ("file", "folder/file"):
        desk.put(name, b"ours")
        (desk.inside / name).unlink()
    (desk.inside / "file").symlink_to(desk.outside / "file")
    (desk.inside / "folder").rmdir()
    (desk.inside / "folder").symlink_to(desk.outside)

    told = desk.files.rewind("m1", dry_run=False)
    assert (told.possible, told.skipped_links, len(told.left_alone)) == (False, 2, 2)
    assert (desk.outside / "file").read_bytes() == b"ours"


def test_a_folder_in_the_place_of_a_file_is_left_alone(desk: Desk) -> None:
    desk.files.begin_message("m1")
    desk.put("file", b"ours")
    (desk.inside / "file").unlink()
    (desk.inside / "file").mkdir()

    told = desk.files.rewind("m1", dry_run=False)
    assert not told.possible
    assert "is a folder" in told.reason


def test_a_file_whose_copy_is_lost_is_left_alone(desk: Desk) -> None:
    (desk.inside / "file").write_bytes(b"old")
    desk.files.begin_message("m1")
    desk.put("file", b"new")
    next(desk.history.glob("*@v1")).write_bytes(b"rotten")

    told = desk.files.rewind("m1", dry_run=False)
    assert not told.possible
    assert "missing or broken" in told.reason
    assert desk.tree() == {"file": b"new"}


def test_with_a_damaged_history_nothing_is_touched(desk: Desk) -> None:
    desk.files.begin_message("m1")
    desk.put("file", b"new")
    with (desk.history / INDEX).open("ab") as index:
        index.write(b"rotten\n")
    desk.restart()

    told = desk.files.rewind("m1", dry_run=False)
    assert (told.possible, "damaged" in told.reason) == (False, True)
    assert desk.tree() == {"file": b"new"}


def test_what_is_rewound_is_kept_too(desk: Desk) -> None:
    desk.files.begin_message("m1")
    desk.put("file", b"first")
    desk.put("file", b"second")
    desk.files.rewind("m1", dry_run=False)

    assert [copy.read_bytes() for copy in desk.history.glob("*@v*")] == [b"second"]


def test_a_write_that_was_refused_is_no_change_to_take_back(desk: Desk) -> None:
    desk.files.begin_message("m1")
    known = desk.files.write(f"{desk.inside}/file", b"ours", desk.reach, replacing=None)
    (desk.inside / "file").write_bytes(b"theirs")
    with pytest.raises(ToolError):
        desk.files.write(f"{desk.inside}/file", b"more", desk.reach, replacing=known)
    (desk.inside / "file").write_bytes(b"ours")

    assert desk.files.rewind("m1", dry_run=False).files == (f"{desk.inside}/file",)
    assert desk.tree() == {}


def test_what_a_crash_left_lying_about_is_cleared_away_before_the_next_change(desk: Desk) -> None:
    desk.files.begin_message("m1")
    CheckpointStore(desk.history).add(
        ChangeRow(path=f"{desk.inside}/file", before=None, after="x", beside=".parley-0.tmp")
    )
    (desk.inside / ".parley-0.tmp").write_bytes(b"half of")
    desk.restart()
    desk.put("other", b"new")

    assert desk.tree() == {"other": b"new"}
    assert desk.files.rewind("m1", dry_run=True).files == (f"{desk.inside}/other",)


def test_a_session_that_is_not_to_be_kept_leaves_no_history(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.files = desk.restart(forget_at_end=True)
    desk.files.begin_message("m1")
    desk.put("file", b"new")
    desk.files.close()

    assert not desk.history.exists()


def test_a_session_that_is_to_be_kept_keeps_its_history(desk: Desk) -> None:
    desk.files.begin_message("m1")
    desk.files.close()

    assert (desk.history / INDEX).exists()
