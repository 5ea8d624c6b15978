"""Watched files: what is reported when the watched paths change meanwhile."""

from __future__ import annotations

from pathlib import Path

from parley.engine.hooks.session_hooks import FileWatch


async def test_changes_before_other_paths_are_set_are_still_reported(tmp_path: Path) -> None:
    added, gone, changed, other = (str(tmp_path / name) for name in ("added", "gone", "changed", "other"))
    for path in (gone, changed, other):
        Path(path).write_text("old")
    told: list[tuple[str, str]] = []
    watch = FileWatch(lambda path, change: told.append((path, change)), lambda text: None)
    watch.set_paths("hooks", [added, gone, changed])
    Path(added).write_text("new")
    Path(gone).unlink()
    Path(changed).write_text("another text")

    watch.set_paths("settings", [other])
    watch.check()
    watch.set_paths("hooks", [])
    Path(added).unlink()
    watch.check()
    watch.close()

    assert sorted(told) == [(added, "add"), (changed, "change"), (gone, "unlink")]


async def test_files_in_a_folder_that_is_watched_anew_are_not_reported_as_added(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    told: list[tuple[str, str]] = []
    watch = FileWatch(lambda path, change: told.append((path, change)), lambda text: None)
    watch.set_paths("hooks", [str(tmp_path)])
    (tmp_path / "new").write_text("new")
    watch.set_paths("hooks", [str(tmp_path)])
    watch.check()
    watch.close()

    assert told == [(str(tmp_path / "new"), "add")]
