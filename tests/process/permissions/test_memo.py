"""A cached result is used only while the file system is unchanged."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from parley.permissions.base import Allow, Ask, Decision, OverBudget, ToolRequest
from parley.permissions.filesystem import (
    MAX_STEPS,
    SETTLED_NANOSECONDS,
    CachedFilesystem,
    Filesystem,
    RealFilesystem,
    memoize,
)
from parley.permissions.policy import LaunchRules, SessionPolicy
from tests.helpers.hostile_git import Ground, has_git, make_repository

Change = Callable[[Ground], None]


def much_later() -> int:
    """A time long enough after any change that a test makes."""
    return time.time_ns() + 2 * SETTLED_NANOSECONDS


@pytest.fixture
def view(tmp_path: Path) -> RealFilesystem:
    return RealFilesystem(str(tmp_path), much_later)


def contents(path: Path, view: RealFilesystem, works: list[str] | None = None) -> object:
    def work(seen: Filesystem) -> object:
        if works is not None:
            works.append(str(path))
        return seen.read(str(path), 1_000)

    return memoize(str(path), CachedFilesystem(view), work)


# Single accesses.


def test_what_was_read_is_kept(tmp_path: Path, view: RealFilesystem) -> None:
    (tmp_path / "a").write_text("one")
    works: list[str] = []

    assert [contents(tmp_path / "a", view, works) for _ in range(3)] == [b"one"] * 3
    assert len(works) == 1


@pytest.mark.parametrize("text", ["three", "two"])
def test_a_changed_file_is_read_again(tmp_path: Path, view: RealFilesystem, text: str) -> None:
    file = tmp_path / "a"
    file.write_text("one")
    assert contents(file, view) == b"one"
    rewrite(file, text)

    assert contents(file, view) == text.encode()


def rewrite(file: Path, text: str) -> None:
    """Change a file until the kernel's clock has advanced, and set back every time that a program can set back."""
    before = file.stat()
    while file.stat().st_ctime_ns == before.st_ctime_ns:
        file.write_text(text)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_replaced_file_a_removed_one_and_a_new_one_are_seen(tmp_path: Path, view: RealFilesystem) -> None:
    file, other = tmp_path / "a", tmp_path / "b"
    assert contents(file, view) is None
    file.write_text("one")
    assert contents(file, view) == b"one"
    other.write_text("two")
    other.replace(file)
    assert contents(file, view) == b"two"
    file.unlink()
    assert contents(file, view) is None


def test_a_file_that_has_just_changed_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    view, works = RealFilesystem(str(tmp_path)), list[str]()

    contents(tmp_path / "a", view, works)
    contents(tmp_path / "a", view, works)

    assert len(works) == 2


def test_a_file_behind_a_link_is_not_kept(tmp_path: Path, view: RealFilesystem) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / "link").symlink_to("a")
    works: list[str] = []
    contents(tmp_path / "link", view, works)
    contents(tmp_path / "link", view, works)

    assert len(works) == 2


def test_a_folder_above_that_becomes_a_link_is_seen(tmp_path: Path, view: RealFilesystem) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "sub").mkdir()
    path = str(tmp_path / "here" / "sub")

    def real(seen: Filesystem) -> str | None:
        return seen.resolve(path).real

    assert memoize("real", CachedFilesystem(view), real) == path
    (tmp_path / "here").rename(tmp_path / "away")
    (tmp_path / "here").symlink_to("one")
    assert memoize("real", CachedFilesystem(view), real) == str(tmp_path / "one" / "sub")
    (tmp_path / "here").unlink()
    (tmp_path / "here").symlink_to("two")
    assert memoize("real", CachedFilesystem(view), real) == str(tmp_path / "two" / "sub")


def test_the_same_steps_are_spent_whether_kept_or_not(tmp_path: Path, view: RealFilesystem) -> None:
    spent = []
    for _ in range(3):
        glance = CachedFilesystem(view)
        memoize("way", glance, lambda seen: seen.resolve(str(tmp_path / "a" / "b")))
        spent.append(glance.steps)

    assert len(set(spent)) == 1
    short = CachedFilesystem(view)
    short.spend(MAX_STEPS)
    with pytest.raises(OverBudget):
        memoize("way", short, lambda seen: seen.resolve(str(tmp_path / "a" / "b")))


# Whole decisions.


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def opened(ground: Ground, view: RealFilesystem | None = None) -> SessionPolicy:
    given = LaunchRules(cwd=str(ground.work), user_root=str(ground.home))
    return SessionPolicy(given, view or RealFilesystem(str(ground.home), much_later))


def decided(book: SessionPolicy, command: str, cwd: Path) -> Decision:
    return book.decide(ToolRequest(tool="Bash", input={"command": command}, cwd=str(cwd)), "default")


def set_monitor(ground: Ground) -> None:
    with (ground.work / ".git" / "config").open("a") as file:
        file.write("[core]\n\tfsmonitor = ./evil\n")


def replace_config(ground: Ground) -> None:
    other = ground.work / "config"
    other.write_text("[diff]\n\texternal = ./evil\n")
    other.replace(ground.work / ".git" / "config")


def add_worktree_config(ground: Ground) -> None:
    (ground.work / ".git" / "config.worktree").write_text("[core]\n\tfsmonitor = ./evil\n")


def add_hook(ground: Ground) -> None:
    hook = ground.work / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)


def add_alternates(ground: Ground) -> None:
    (ground.work / ".git" / "objects" / "info" / "alternates").write_text("/elsewhere\n")


def link_objects(ground: Ground) -> None:
    pack = ground.work / ".git" / "objects" / "pack"
    pack.rename(ground.home / "pack")
    pack.symlink_to(ground.home / "pack")


def move_repository(ground: Ground) -> None:
    (ground.work / ".git").rename(ground.home / "moved")
    (ground.work / ".git").write_text(f"gitdir: {ground.home / 'moved'}\n")


def link_repository(ground: Ground) -> None:
    (ground.work / ".git").rename(ground.home / "moved")
    (ground.work / ".git").symlink_to(ground.home / "moved")


def plant_nearer(ground: Ground) -> None:
    nearer = ground.work / "sub"
    for name in ("objects", "refs"):
        (nearer / name).mkdir(parents=True)
    (nearer / "HEAD").write_text("ref: refs/heads/main\n")
    (nearer / "config").write_text("[core]\n\tfsmonitor = ./evil\n")


def add_submodule(ground: Ground) -> None:
    inner = ground.work / "inner"
    make_repository(inner, ground.home)
    ground.git("add", "inner")
    with (inner / ".git" / "config").open("a") as file:
        file.write("[core]\n\tfsmonitor = ./evil\n")


CHANGES: tuple[Change, ...] = (
    set_monitor,
    replace_config,
    add_worktree_config,
    add_hook,
    add_alternates,
    link_objects,
    move_repository,
    link_repository,
    plant_nearer,
    add_submodule,
)


@pytest.mark.skipif(not has_git, reason="there is no git")
@pytest.mark.parametrize("change", CHANGES)
def test_a_repository_that_changes_between_two_decisions_is_seen(ground: Ground, change: Change) -> None:
    view, cwd = RealFilesystem(str(ground.home), much_later), ground.work / "sub"
    book = opened(ground, view)
    cwd.mkdir(exist_ok=True)
    assert isinstance(decided(book, "git status", cwd), Allow)
    before = dict(view.memo or {})
    assert before
    assert isinstance(decided(book, "git status", cwd), Allow)
    assert view.memo == before
    change(ground)

    assert isinstance(decided(book, "git status", cwd), Ask)


@pytest.mark.skipif(not has_git, reason="there is no git")
def test_a_linked_worktree_that_changes_between_two_decisions_is_seen(ground: Ground) -> None:
    linked = ground.work / "linked"
    ground.git("worktree", "add", "-q", str(linked))
    book = opened(ground)
    assert isinstance(decided(book, "git status", linked), Allow)
    set_monitor(ground)
    assert isinstance(decided(book, "git status", linked), Ask)
    ground.git("config", "--unset", "core.fsmonitor")
    assert isinstance(decided(book, "git status", linked), Allow)
    (linked / ".git").write_text(f"gitdir: {ground.home}\n")
    assert isinstance(decided(book, "git status", linked), Ask)


def test_keys_that_appear_between_two_decisions_are_seen(ground: Ground) -> None:
    book, command = opened(ground), "grep -rn TODO src"
    (ground.work / "src").mkdir()
    assert isinstance(decided(book, command, ground.work), Allow)
    assert isinstance(decided(book, command, ground.work), Allow)
    (ground.work / "src" / ".netrc").write_text("machine x")
    assert isinstance(decided(book, command, ground.work), Ask)
    (ground.work / "src" / ".netrc").unlink()
    assert isinstance(decided(book, command, ground.work), Allow)
