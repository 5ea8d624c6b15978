"""The index of protected names notices every change, whatever a command does to hide it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from parley.workspace.sandbox import protected_entries
from parley.workspace.sandbox.protected_entries import FolderIndex


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a/b/c", "d", "build/x", "a/.git"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def settle(index: FolderIndex) -> None:
    """Poll until the times of the folders are old enough to be relied upon."""
    while protected_entries.UNSETTLED in index._times:
        time.sleep(0.01)
        index.refresh()


def found(index: FolderIndex, tree: Path) -> set[str]:
    index.refresh()
    paths = (os.path.join(folder, name) for folder, names in index.entries.items() for name in names)
    return {os.path.relpath(path, tree) for path in paths}


def test_new_names_are_found_although_the_times_of_folders_were_reset(tree: Path) -> None:
    index = FolderIndex([str(tree)])
    settle(index)
    assert found(index, tree) == {"a/.git"}

    (tree / "a/b/c/.MCP.json").touch()
    (tree / "a/.git/config").touch()
    (tree / "a/b/.config/git").mkdir(parents=True)
    (tree / "build/.claude").symlink_to("/etc")
    (tree / "build/x/.claude").mkdir()  # of a package
    for name in ("a", "a/b", "a/b/c", "a/.git", "build"):
        os.utime(tree / name, (0, 0))

    assert found(index, tree) == {
        *("a/.git", "a/.git/config", "a/b/c/.MCP.json", "a/b/.config/git", "build/.claude"),
    }
    assert index.entries[str(tree / "build")] == {".claude": "/etc"}


def test_folders_that_appear_move_or_disappear_are_followed(tree: Path) -> None:
    index = FolderIndex([str(tree)])
    settle(index)

    (tree / "new/deep").mkdir(parents=True)
    assert found(index, tree) == {"a/.git"}
    (tree / "new/deep/.mcp.json").touch()
    assert found(index, tree) == {"a/.git", "new/deep/.mcp.json"}
    os.rename(tree / "new", tree / "d/moved")
    os.rename(tree / "a", tree / "z")
    assert found(index, tree) == {"z/.git", "d/moved/deep/.mcp.json"}
    shutil.rmtree(tree / "d")
    (tree / "d").symlink_to(tree / "z")
    assert found(index, tree) == {"z/.git"}


def test_a_folder_that_is_swapped_with_another_is_listed_again(tree: Path) -> None:
    (tree / "p/one/inner").mkdir(parents=True)
    (tree / "p/two").mkdir()
    index = FolderIndex([str(tree)])
    settle(index)

    os.rename(tree / "p/one", tree / "p/three")
    os.rename(tree / "p/two", tree / "p/one")
    os.rename(tree / "p/three", tree / "p/two")
    index.refresh()
    (tree / "p/two/inner/.mcp.json").touch()

    assert found(index, tree) == {"a/.git", "p/two/inner/.mcp.json"}


def test_in_a_very_large_tree_the_upper_folders_and_all_new_ones_are_listed(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        (tree / f"many/{number}/x").mkdir(parents=True)
    (tree / "many/7/x/.claude").mkdir()  # existed before, and is not listed
    monkeypatch.setattr(protected_entries, "MAX_FOLDERS", 20)
    index = FolderIndex([str(tree)])
    assert found(index, tree) == {"a/.git"}
    assert index.beyond

    for number in range(60):
        (tree / f"fresh/{number}").mkdir(parents=True)
    (tree / "fresh/59/.mcp.json").touch()
    (tree / "many/new").touch()
    (tree / "many/.claude").mkdir()

    assert found(index, tree) == {"a/.git", "fresh/59/.mcp.json", "many/.claude"}
    again = FolderIndex([str(tree)], index.beyond)
    assert found(again, tree) == {"a/.git", "fresh/59/.mcp.json", "many/.claude"}
