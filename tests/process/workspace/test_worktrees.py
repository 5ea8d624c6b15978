"""Worktrees of a real git: what is made, what goes, what is kept, and what never runs."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from parley.errors import ToolError
from parley.workspace.base import Worktree
from parley.workspace.worktrees import GitWorktrees
from tests.helpers.remote_workspace import make_processes, make_worktrees

PATIENCE_SECONDS = 90
NAME = "agent-a1"


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=me", "-c", "user.email=me@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a file and a folder."""
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("a\n")
    (folder / "sub" / "b.txt").write_text("b\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


async def play(scenario: Callable[[Any], Awaitable[None]]) -> None:
    processes = make_processes()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await scenario(make_worktrees(processes, {"PATH": "/usr/bin:/bin", "HOME": "/nowhere"}))
    finally:
        await processes.close()


def left_in(project: Path) -> list[str]:
    """What is there of worktrees: files, branches, and what git lists."""
    folder = project / ".claude" / "worktrees"
    files = [path.name for path in folder.iterdir() if path.name != ".gitignore"]
    branches = git(project, "branch", "--format=%(refname:short)").split()
    listed = git(project, "worktree", "list", "--porcelain").count("worktree ")
    return sorted([*files, *(name for name in branches if name != "main"), *["listed"] * (listed - 1)])


async def test_one_in_which_nothing_changed_is_gone_with_its_branch(project: Path) -> None:
    async def scenario(worktrees: GitWorktrees) -> None:
        made = await worktrees.open(str(project / "sub"), NAME)
        place = project / ".claude" / "worktrees" / NAME
        assert made == Worktree(top=str(project), path=str(place), cwd=str(place / "sub"), branch=f"worktree-{NAME}")
        assert (place / "a.txt").read_text() == "a\n"
        assert git(place, "rev-parse", "--abbrev-ref", "HEAD") == made.branch
        assert git(project, "status", "--porcelain") == ""
        assert not await worktrees.leave(made)

    await play(scenario)
    assert left_in(project) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda place: (place / "a.txt").write_text("b\n"),
        lambda place: (place / "new.txt").write_text("new\n"),
        lambda place: (place / "a.txt").unlink(),
        lambda place: git(place, "commit", "-qm", "mine", "--allow-empty"),
        lambda place: [
            git(place, "commit", "-qm", "x", "--allow-empty"),
            git(place, "checkout", "-q", "--detach", "@~"),
        ],
    ],
    ids=["changed", "added", "removed", "committed", "committed and left"],
)
async def test_one_in_which_something_changed_is_kept(project: Path, change: Callable[[Path], object]) -> None:
    async def scenario(worktrees: GitWorktrees) -> None:
        made = await worktrees.open(str(project), NAME)
        change(Path(made.path))
        assert await worktrees.leave(made)
        await worktrees.sweep(str(project))

    await play(scenario)
    assert left_in(project) == [NAME, "listed", f"worktree-{NAME}"]


async def test_one_that_was_kept_is_continued_with(project: Path) -> None:
    async def scenario(worktrees: GitWorktrees) -> None:
        made = await worktrees.open(str(project), NAME)
        (Path(made.path) / "new.txt").write_text("new\n")
        await worktrees.leave(made)
        again = await worktrees.open(str(project), NAME)
        assert again == made
        assert (Path(again.path) / "new.txt").read_text() == "new\n"
        assert await worktrees.leave(again)

    await play(scenario)


async def test_a_branch_of_which_the_worktree_was_taken_away_is_not_lost(project: Path) -> None:
    async def scenario(worktrees: GitWorktrees) -> None:
        made = await worktrees.open(str(project), NAME)
        git(Path(made.path), "commit", "-qm", "mine", "--allow-empty")
        await worktrees.leave(made)
        git(project, "worktree", "remove", made.path)
        again = await worktrees.open(str(project), NAME)
        assert git(Path(again.path), "log", "-1", "--format=%s") == "mine"
        await worktrees.leave(again)

    await play(scenario)
    assert git(project, "log", "-1", "--format=%s", f"worktree-{NAME}") == "mine"


async def test_what_an_engine_that_was_killed_left_behind_is_swept_unless_it_has_changes(project: Path) -> None:
    async def begin(worktrees: GitWorktrees) -> None:
        await worktrees.open(str(project), NAME)
        changed = await worktrees.open(str(project), "agent-a2")
        (Path(changed.path) / "new.txt").write_text("new\n")
        held = await worktrees.open(str(project), "agent-a3")
        await GitWorktrees(worktrees._git).sweep(str(project))
        assert len(left_in(project)) == 12, "those of an engine that lives are left alone"
        await worktrees.leave(held)
        for lock in worktrees._locks.values():
            lock.close()  # as the end of the process would

    async def go_on(worktrees: GitWorktrees) -> None:
        await worktrees.sweep(str(project))

    await play(begin)
    await play(go_on)
    assert left_in(project) == ["agent-a2", "listed", "worktree-agent-a2"]


async def test_one_that_never_came_to_be_leaves_nothing(project: Path) -> None:
    async def scenario(worktrees: GitWorktrees) -> None:
        (project / ".git" / "refs" / "heads" / f"worktree-{NAME}.lock").touch()  # git will fail at the branch
        with pytest.raises(ToolError):
            await worktrees.open(str(project), NAME)
        (project / ".git" / "refs" / "heads" / f"worktree-{NAME}.lock").unlink()

    await play(scenario)
    assert left_in(project) == []


async def test_those_of_a_worktree_lie_beside_it(project: Path) -> None:
    async def scenario(worktrees: GitWorktrees) -> None:
        first = await worktrees.open(str(project), NAME)
        second = await worktrees.open(first.cwd, "agent-a2")
        assert Path(second.path).parent == Path(first.path).parent
        assert second.top == first.path
        assert [await worktrees.leave(first), await worktrees.leave(second)] == [False, False]

    await play(scenario)
    assert left_in(project) == []


@pytest.mark.parametrize("state", ["no repository", "no commit", "a link"])
async def test_where_none_can_be_made_the_reason_is_reported(tmp_path: Path, state: str) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    if state != "no repository":
        git(folder, "init", "-q")
    if state == "a link":
        git(folder, "commit", "-qm", "x", "--allow-empty")
        (tmp_path / "elsewhere").mkdir()
        (folder / ".claude").symlink_to(tmp_path / "elsewhere")
    words = {"no repository": "not in a git repository", "no commit": "no commit yet", "a link": "is a symbolic link"}

    async def scenario(worktrees: GitWorktrees) -> None:
        with pytest.raises(ToolError, match=words[state]):
            await worktrees.open(str(folder), NAME)

    await play(scenario)


async def test_nothing_that_the_repository_brings_is_run(project: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    hook = project / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {ran}-hook\n")
    hook.chmod(0o755)
    (project / ".gitattributes").write_text("*.txt filter=evil\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "attributes")
    for key in ("filter.evil.smudge", "filter.evil.clean"):
        git(project, "config", key, f"sh -c 'touch {ran}-filter; cat'")
    git(project, "config", "filter.evil.required", "true")
    git(project, "config", "core.fsmonitor", f"touch {ran}-monitor;")

    async def scenario(worktrees: GitWorktrees) -> None:
        made = await worktrees.open(str(project), NAME)
        assert (Path(made.path) / "a.txt").read_text() == "a\n"
        (Path(made.path) / "a.txt").write_text("b\n")
        assert await worktrees.leave(made)

    await play(scenario)
    assert list(tmp_path.glob("ran-*")) == []
