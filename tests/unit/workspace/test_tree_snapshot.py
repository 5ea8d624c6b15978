from __future__ import annotations

import os
from pathlib import Path

import pytest

from parley.workspace import tree_snapshot as module
from parley.workspace.base import RewindReport, Scope
from parley.workspace.checkpoints import CheckpointStore
from parley.workspace.local import LocalFiles
from parley.workspace.tree_snapshot import TreeSnapshot


class Shop:
    """Files with a tree that is watched."""

    def __init__(self, folder: Path) -> None:
        self.root, self.history = folder / "root", folder / "history"
        self.root.mkdir()
        self.restart()

    def restart(self) -> None:
        checkpoints = CheckpointStore(self.history)
        tree = TreeSnapshot(str(self.root), checkpoints, [str(self.root / "config")])
        self.files = LocalFiles(cwd=str(self.root), checkpoints=checkpoints, new_id=lambda: "1", tree=tree)

    def put(self, **files: bytes) -> None:
        for name, data in files.items():
            (self.root / name).write_bytes(data)

    def tree(self) -> dict[str, bytes]:
        files = (file for file in self.root.rglob("*") if file.is_file() and not file.is_symlink())
        return {str(file.relative_to(self.root)): file.read_bytes() for file in files}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.put(kept=b"kept", changed=b"old", removed=b"old")
    return shop


def test_what_a_command_changed_made_and_removed_is_rewound(shop: Shop) -> None:
    before = shop.tree()
    shop.files.begin_message("m1")
    shop.files.before_command()
    shop.put(changed=b"new", made=b"new")
    (shop.root / "removed").unlink()
    (shop.root / "folder").mkdir()
    (shop.root / "folder/file").write_bytes(b"new")
    shop.files.after_command()

    told = shop.files.rewind("m1", dry_run=False)
    assert {Path(path).name for path in told.files} == {"changed", "made", "removed", "file"}
    assert not told.left_alone
    assert shop.tree() == before


def test_each_command_belongs_to_its_message(shop: Shop) -> None:
    for number in (1, 2):
        shop.files.begin_message(f"m{number}")
        shop.files.before_command()
        shop.put(changed=b"%d" % number)
        shop.files.after_command()
    shop.restart()

    shop.files.rewind("m2", dry_run=False)
    assert shop.tree()["changed"] == b"1"
    shop.files.rewind("m1", dry_run=False)
    assert shop.tree()["changed"] == b"old"


def test_what_changes_between_commands_is_someone_elses(shop: Shop) -> None:
    shop.files.begin_message("m1")
    shop.files.before_command()
    shop.files.after_command()
    shop.put(changed=b"theirs", made=b"theirs")
    shop.files.before_command()
    shop.files.after_command()

    assert shop.files.rewind("m1", dry_run=False) == RewindReport(possible=True)
    assert shop.tree()["changed"] == b"theirs"


def test_what_someone_changes_after_a_command_is_left_alone(shop: Shop) -> None:
    shop.files.begin_message("m1")
    shop.files.before_command()
    shop.put(changed=b"new")
    shop.files.after_command()
    shop.put(changed=b"theirs")

    assert shop.files.rewind("m1", dry_run=False).left_alone == (f"{shop.root}/changed",)
    assert shop.tree()["changed"] == b"theirs"


def test_ignored_files_links_and_what_version_control_keeps_are_not_covered(shop: Shop) -> None:
    (shop.root / ".git").mkdir()
    shop.put(**{".gitignore": b"*.log\n", "a.log": b"old"})
    (shop.root / "link").symlink_to("kept")
    shop.files.begin_message("m1")
    shop.files.before_command()
    shop.put(**{"a.log": b"new", ".git/HEAD": b"new"})
    (shop.root / "link").unlink()
    shop.files.after_command()

    assert shop.files.rewind("m1", dry_run=False) == RewindReport(possible=True)
    assert shop.tree()["a.log"] == b"new"


@pytest.mark.parametrize("rules_change", ["rewritten", "removed", "repository removed"])
def test_old_files_that_are_not_ignored_any_more_are_not_taken_for_new_ones(shop: Shop, rules_change: str) -> None:
    (shop.root / ".git").mkdir()
    shop.put(**{".gitignore": b"*.log\n", "a.log": b"old"})
    shop.files.begin_message("m1")
    shop.files.before_command()
    shop.put(**{"a.log": b"newer"})
    if rules_change == "rewritten":
        shop.put(**{".gitignore": b"\n"})
    elif rules_change == "removed":
        (shop.root / ".gitignore").unlink()
    else:
        (shop.root / ".git").rmdir()
    shop.files.after_command()

    assert f"{shop.root}/a.log" not in shop.files.rewind("m1", dry_run=False).files
    assert shop.tree()["a.log"] == b"newer"
    assert shop.tree()[".gitignore"] == b"*.log\n"


def test_a_file_that_becomes_ignored_is_not_taken_for_gone(shop: Shop) -> None:
    (shop.root / ".git").mkdir()
    shop.files.begin_message("m1")
    shop.files.before_command()
    shop.put(**{".gitignore": b"kept\n"})
    shop.files.after_command()

    assert shop.files.rewind("m1", dry_run=True) == RewindReport(possible=True)
    assert shop.tree()["kept"] == b"kept"


def test_our_own_folder_is_not_covered(shop: Shop) -> None:
    (shop.root / "config").mkdir()
    shop.files.begin_message("m1")
    shop.files.before_command()
    shop.put(**{"config/log": b"new"})
    shop.files.after_command()

    assert shop.files.rewind("m1", dry_run=False) == RewindReport(possible=True)


def test_a_large_file_is_not_covered(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 10)
    shop.put(large=b"x" * 11)
    shop.files.begin_message("m1")
    shop.files.before_command()
    shop.put(large=b"y", changed=b"new")
    shop.files.after_command()

    assert shop.files.rewind("m1", dry_run=False).files == (f"{shop.root}/changed",)
    assert shop.tree()["large"] == b"y"


def test_copies_are_made_once(shop: Shop) -> None:
    shop.put(twin=b"kept")
    for _ in range(2):
        shop.files.before_command()
        shop.files.after_command()
        shop.restart()

    assert sorted(file.read_bytes() for file in shop.history.glob("tree-*")) == [b"kept", b"old"]


def test_a_write_of_ours_during_a_command_is_noted_once(shop: Shop) -> None:
    path = f"{shop.root}/changed"
    shop.files.begin_message("m1")
    shop.files.before_command()
    reach = Scope(anywhere=True)
    shop.files.write(path, b"ours", reach, replacing=shop.files.peek(path, reach))
    rows = len((shop.history / "index.jsonl").read_bytes().splitlines())
    shop.files.after_command()

    assert len((shop.history / "index.jsonl").read_bytes().splitlines()) == rows
    shop.files.rewind("m1", dry_run=False)
    assert shop.tree()["changed"] == b"old"


def test_without_a_tree_nothing_is_watched(tmp_path: Path) -> None:
    files = LocalFiles(cwd=str(tmp_path), checkpoints=CheckpointStore(tmp_path / "history"), new_id=lambda: "1")
    files.before_command()
    files.after_command()

    assert not files.watches_commands
    assert os.listdir(tmp_path) == []
