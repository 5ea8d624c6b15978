from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from parley.errors import ToolError
from parley.workspace.base import RewindReport, Scope
from parley.workspace.checkpoints import INDEX, ChangeRow, CheckpointStore
from tests.helpers.workspace import WorkspaceHarness


@pytest.fixture
def harness(tmp_path: Path) -> WorkspaceHarness:
    return WorkspaceHarness(tmp_path)


def test_a_file_is_read(harness: WorkspaceHarness) -> None:
    (harness.inside / "file").write_bytes(b"content")
    found = harness.files.read(f"{harness.inside}/file", harness.reach)

    assert (found.path, found.data) == (f"{harness.inside}/file", b"content")
    assert harness.files.peek(f"{harness.inside}/file", harness.reach) == found
    assert harness.files.read(f"{harness.inside}/file", harness.reach, 3).data == b"con"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whether a file is in memory")
@pytest.mark.parametrize("data", [b"", b"content"])
def test_a_short_file_that_is_in_memory_is_read_without_waiting(harness: WorkspaceHarness, data: bytes) -> None:
    path = f"{harness.inside}/file"
    Path(path).write_bytes(data)

    assert harness.files.read_cached(path, harness.reach, len(data)) == harness.files.read(path, harness.reach)


def test_what_may_need_the_disk_is_not_read_without_waiting(
    harness: WorkspaceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{harness.inside}/file"
    Path(path).write_bytes(b"content")
    assert harness.files.read_cached(path, harness.reach, 6) is None
    assert harness.files.read_cached(f"{harness.inside}/none", harness.reach, 100) is None
    assert harness.files.read_cached("/proc/self/status", Scope(anywhere=True), 1 << 20) is None

    monkeypatch.setattr("parley.workspace.local.NO_WAIT", None)
    assert harness.files.read_cached(path, harness.reach, 100) is None


def test_a_file_out_of_scope_is_not_read_without_waiting_either(harness: WorkspaceHarness) -> None:
    (harness.outside / "file").write_bytes(b"content")
    with pytest.raises(ToolError, match="outside the paths"):
        harness.files.read_cached(f"{harness.outside}/file", harness.reach, 100)


def test_a_missing_file_is_nothing_to_peek_at_and_cannot_be_read(harness: WorkspaceHarness) -> None:
    assert harness.files.peek(f"{harness.inside}/none", harness.reach) is None
    assert harness.files.peek(f"{harness.inside}/no/folder", harness.reach) is None
    with pytest.raises(ToolError, match="File does not exist"):
        harness.files.read(f"{harness.inside}/none", harness.reach)


def test_a_file_is_made_with_its_folders(harness: WorkspaceHarness) -> None:
    path = f"{harness.inside}/new/folder/file"
    written = harness.files.write(path, b"new", harness.reach, replacing=None)

    assert harness.tree() == {"new/folder/file": b"new"}
    assert written == harness.files.read(path, harness.reach)


def test_what_was_written_can_be_replaced_as_it_came_back(harness: WorkspaceHarness) -> None:
    path = f"{harness.inside}/file"
    first = harness.files.write(path, b"one", harness.reach, replacing=None)
    harness.files.write(path, b"two", harness.reach, replacing=first)

    assert harness.tree() == {"file": b"two"}


def test_a_file_that_changed_since_is_not_replaced(harness: WorkspaceHarness) -> None:
    path = f"{harness.inside}/file"
    known = harness.files.write(path, b"one", harness.reach, replacing=None)
    (harness.inside / "file").write_bytes(b"theirs")

    with pytest.raises(ToolError, match="Read it again before you write it"):
        harness.files.write(path, b"two", harness.reach, replacing=known)
    assert harness.tree() == {"file": b"theirs"}


def test_a_file_that_exists_is_not_recreated(harness: WorkspaceHarness) -> None:
    (harness.inside / "file").write_bytes(b"theirs")

    with pytest.raises(ToolError, match="already exists"):
        harness.files.write(f"{harness.inside}/file", b"new", harness.reach, replacing=None)
    assert harness.tree() == {"file": b"theirs"}


def test_a_file_whose_folder_is_gone_is_not_recreated(harness: WorkspaceHarness) -> None:
    path = f"{harness.inside}/folder/file"
    known = harness.files.write(path, b"one", harness.reach, replacing=None)
    (harness.inside / "folder/file").unlink()
    (harness.inside / "folder").rmdir()

    with pytest.raises(ToolError, match="no longer exists"):
        harness.files.write(path, b"two", harness.reach, replacing=known)
    assert not (harness.inside / "folder").exists()


def test_through_a_link_its_target_is_replaced_and_the_link_stays(harness: WorkspaceHarness) -> None:
    (harness.inside / "real").mkdir()
    (harness.inside / "real/file").write_bytes(b"old")
    (harness.inside / "link").symlink_to("real/file")
    harness.put("link", b"new")

    assert (harness.inside / "link").is_symlink()
    assert (harness.inside / "real/file").read_bytes() == b"new"
    assert not (harness.inside / "real/file").is_symlink()


def test_through_a_link_that_leads_nowhere_its_target_is_made(harness: WorkspaceHarness) -> None:
    (harness.inside / "link").symlink_to("real/file")
    harness.put("link", b"new")

    assert (harness.inside / "real/file").read_bytes() == b"new"
    assert (harness.inside / "link").is_symlink()


@pytest.mark.parametrize("target", ["file", "none"])
def test_through_a_link_that_leads_out_nothing_is_written(harness: WorkspaceHarness, target: str) -> None:
    (harness.outside / "file").write_bytes(b"theirs")
    (harness.inside / "link").symlink_to(harness.outside / target)

    with pytest.raises(ToolError, match="outside"):
        harness.files.write(f"{harness.inside}/link", b"new", harness.reach, replacing=None)
    assert (harness.outside / "file").read_bytes() == b"theirs"
    assert os.listdir(harness.outside) == ["file"]


def test_a_write_may_go_no_further_than_its_reach(harness: WorkspaceHarness) -> None:
    only = Scope(files=(f"{harness.inside}/this",))
    harness.files.write(f"{harness.inside}/this", b"new", only, replacing=None)

    with pytest.raises(ToolError, match="outside"):
        harness.files.write(f"{harness.inside}/that", b"new", only, replacing=None)
    assert harness.tree() == {"this": b"new"}


def test_many_threads_write_one_after_the_other(harness: WorkspaceHarness) -> None:
    harness.files.begin_message("m1")
    threads = [threading.Thread(target=harness.put, args=(f"file{number}", b"x" * number)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert harness.tree() == {f"file{number}": b"x" * number for number in range(8)}
    assert len(harness.restart().rewind("m1", dry_run=False).files) == 8
    assert harness.tree() == {}


# Going back.


def test_every_file_goes_back_to_what_it_was_when_the_message_came(harness: WorkspaceHarness) -> None:
    (harness.inside / "old").write_bytes(b"alpha\nbeta\n")
    harness.files.begin_message("m1")
    harness.put("old", b"ALPHA\nbeta\n")
    harness.put("new", b"n\n")

    told = RewindReport(
        possible=True, files=(f"{harness.inside}/old", f"{harness.inside}/new"), insertions=1, deletions=2
    )
    assert harness.files.rewind("m1", dry_run=True) == told
    assert harness.tree() == {"new": b"n\n", "old": b"ALPHA\nbeta\n"}
    assert harness.files.rewind("m1", dry_run=False) == told
    assert harness.tree() == {"old": b"alpha\nbeta\n"}
    assert harness.files.rewind("m1", dry_run=False) == RewindReport(possible=True)


def test_each_message_is_a_place_to_go_back_to_and_forth(harness: WorkspaceHarness) -> None:
    for number in range(1, 4):
        harness.files.begin_message(f"m{number}")
        harness.put("file", b"%d" % number)
    for message, content in (("m3", b"2"), ("m2", b"1"), ("m3", b"2")):
        assert harness.files.rewind(message, dry_run=False).possible
        assert harness.tree() == {"file": content}
    harness.files.rewind("m1", dry_run=False)
    assert harness.tree() == {}


def test_a_rewind_survives_a_restart(harness: WorkspaceHarness) -> None:
    (harness.inside / "file").write_bytes(b"old")
    harness.files.begin_message("m1")
    harness.put("file", b"new")
    harness.restart()

    assert harness.files.rewind("m1", dry_run=False).possible
    assert harness.tree() == {"file": b"old"}


def test_a_message_that_is_not_known_cannot_be_gone_back_to(harness: WorkspaceHarness) -> None:
    harness.files.begin_message("m1")

    assert harness.files.rewind("m2", dry_run=False) == RewindReport(
        possible=False, reason="No file checkpoint found for this message."
    )


def test_later_edits_of_someone_else_are_left_alone_and_named(harness: WorkspaceHarness) -> None:
    harness.files.begin_message("m1")
    harness.put("ours", b"ours")
    harness.put("theirs", b"ours")
    (harness.inside / "theirs").write_bytes(b"theirs")

    told = harness.files.rewind("m1", dry_run=False)
    assert (told.possible, told.files, told.left_alone) == (
        True,
        (f"{harness.inside}/ours",),
        (f"{harness.inside}/theirs",),
    )
    assert told.reason == f"Not rewound: {harness.inside}/theirs (another program has changed it)"
    assert harness.tree() == {"theirs": b"theirs"}


def test_a_file_deleted_since_comes_back_with_its_folder_and_mode(harness: WorkspaceHarness) -> None:
    (harness.inside / "folder").mkdir()
    (harness.inside / "folder/file").write_bytes(b"old")
    (harness.inside / "folder/file").chmod(0o751)
    harness.files.begin_message("m1")
    harness.put("folder/file", b"new")
    (harness.inside / "folder/file").unlink()
    (harness.inside / "folder").rmdir()

    assert harness.files.rewind("m1", dry_run=True).files == (f"{harness.inside}/folder/file",)
    assert harness.tree() == {}
    assert harness.files.rewind("m1", dry_run=False).possible
    assert harness.tree() == {"folder/file": b"old"}
    assert (harness.inside / "folder/file").stat().st_mode & 0o777 == 0o751


def test_a_link_in_the_place_of_a_file_is_left_alone(harness: WorkspaceHarness) -> None:
    (harness.outside / "file").write_bytes(b"ours")
    (harness.inside / "folder").mkdir()
    for name in ("file", "folder/file"):
        (harness.inside / name).write_bytes(b"old")
    harness.files.begin_message("m1")
    for name in ("file", "folder/file"):
        harness.put(name, b"ours")
        (harness.inside / name).unlink()
    (harness.inside / "file").symlink_to(harness.outside / "file")
    (harness.inside / "folder").rmdir()
    (harness.inside / "folder").symlink_to(harness.outside)

    told = harness.files.rewind("m1", dry_run=False)
    assert (told.possible, told.skipped_links, len(told.left_alone)) == (False, 2, 2)
    assert (harness.outside / "file").read_bytes() == b"ours"


def test_a_folder_in_the_place_of_a_file_is_left_alone(harness: WorkspaceHarness) -> None:
    harness.files.begin_message("m1")
    harness.put("file", b"ours")
    (harness.inside / "file").unlink()
    (harness.inside / "file").mkdir()

    told = harness.files.rewind("m1", dry_run=False)
    assert not told.possible
    assert "is a folder" in told.reason


def test_a_file_whose_copy_is_lost_is_left_alone(harness: WorkspaceHarness) -> None:
    (harness.inside / "file").write_bytes(b"old")
    harness.files.begin_message("m1")
    harness.put("file", b"new")
    next(harness.history.glob("*@v1")).write_bytes(b"rotten")

    told = harness.files.rewind("m1", dry_run=False)
    assert not told.possible
    assert "missing or damaged" in told.reason
    assert harness.tree() == {"file": b"new"}


def test_with_a_damaged_history_nothing_is_touched(harness: WorkspaceHarness) -> None:
    harness.files.begin_message("m1")
    harness.put("file", b"new")
    with (harness.history / INDEX).open("ab") as index:
        index.write(b"rotten\n")
    harness.restart()

    told = harness.files.rewind("m1", dry_run=False)
    assert (told.possible, "damaged" in told.reason) == (False, True)
    assert harness.tree() == {"file": b"new"}


def test_what_is_rewound_is_kept_too(harness: WorkspaceHarness) -> None:
    harness.files.begin_message("m1")
    harness.put("file", b"first")
    harness.put("file", b"second")
    harness.files.rewind("m1", dry_run=False)

    assert [copy.read_bytes() for copy in harness.history.glob("*@v*")] == [b"second"]


def test_a_write_that_was_refused_is_not_a_change_to_take_back(harness: WorkspaceHarness) -> None:
    harness.files.begin_message("m1")
    known = harness.files.write(f"{harness.inside}/file", b"ours", harness.reach, replacing=None)
    (harness.inside / "file").write_bytes(b"theirs")
    with pytest.raises(ToolError):
        harness.files.write(f"{harness.inside}/file", b"more", harness.reach, replacing=known)
    (harness.inside / "file").write_bytes(b"ours")

    assert harness.files.rewind("m1", dry_run=False).files == (f"{harness.inside}/file",)
    assert harness.tree() == {}


def test_what_a_crash_left_lying_about_is_cleared_away_before_the_next_change(harness: WorkspaceHarness) -> None:
    harness.files.begin_message("m1")
    CheckpointStore(harness.history).add(
        ChangeRow(path=f"{harness.inside}/file", before=None, after="x", temp_name=".parley-0.tmp")
    )
    (harness.inside / ".parley-0.tmp").write_bytes(b"half of")
    harness.restart()
    harness.put("other", b"new")

    assert harness.tree() == {"other": b"new"}
    assert harness.files.rewind("m1", dry_run=True).files == (f"{harness.inside}/other",)


def test_a_session_that_is_not_to_be_kept_leaves_no_history(tmp_path: Path) -> None:
    harness = WorkspaceHarness(tmp_path)
    harness.files = harness.restart(delete_history_at_end=True)
    harness.files.begin_message("m1")
    harness.put("file", b"new")
    harness.files.close()

    assert not harness.history.exists()


def test_a_session_that_is_to_be_kept_keeps_its_history(harness: WorkspaceHarness) -> None:
    harness.files.begin_message("m1")
    harness.files.close()

    assert (harness.history / INDEX).exists()
