"""Worktrees of a real git: what is made, what goes, what is kept, and what never runs."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from parley.errors import ToolError
from parley.workspace.base import Worktree
from parley.workspace.worktrees import GitWorktrees
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.remote_workspace import make_processes, make_worktrees

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


LONG = 70_000
"""More bytes of configuration than git was once asked for."""
EVIL = "sh -c 'touch {ran}; cat'"


def write_filter(project: Path, ran: Path, name: str, *, file: str = ".git/config", before: str = "") -> None:
    """A repository whose text files go through a filter that leaves a mark."""
    (project / ".gitattributes").write_text(f"*.txt filter={name}\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "attributes")
    command = EVIL.format(ran=ran)
    with (project / file).open("a") as config:
        config.write(f'{before}\n[filter "{name}"]\n\tclean = {command}\n\tsmudge = {command}\n\trequired\n')


def touch(path: Path) -> None:
    """Change the time of a file, so that git reads it again."""
    path.write_bytes(path.read_bytes())


@pytest.mark.parametrize("name", ["evil", "Evil.one", "a=b"])
@pytest.mark.parametrize("before", ["", "[x]\n" + "".join(f"\tkey{n} = 1\n" for n in range(LONG // 10))])
async def test_no_filter_runs_however_it_is_named_and_wherever_it_is(
    project: Path, tmp_path: Path, name: str, before: str
) -> None:
    ran = tmp_path / "ran"
    write_filter(project, ran, name, before=before)

    async def begin(worktrees: GitWorktrees) -> None:
        made = [await worktrees.open(str(project), each) for each in (NAME, "agent-a2", "agent-a3")]
        for each in made:
            touch(Path(each.path, "a.txt"))
        assert not await worktrees.leave(made[0])
        found = await worktrees.find_changes(made[1])
        assert (found.files, found.commits) == (0, 0)
        await worktrees.remove(made[1])
        for lock in worktrees._locks.values():
            lock.close()  # as the end of the process would

    async def go_on(worktrees: GitWorktrees) -> None:
        await worktrees.sweep(str(project))

    await play(begin)
    await play(go_on)
    assert (left_in(project), ran.exists()) == ([], False)


async def test_no_filter_runs_that_is_only_in_the_configuration_of_a_worktree(project: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    git(project, "config", "extensions.worktreeConfig", "true")

    async def scenario(worktrees: GitWorktrees) -> None:
        made = await worktrees.open(str(project), NAME)
        write_filter(project, ran, "evil", file=f".git/worktrees/{NAME}/config.worktree")
        Path(made.path, ".gitattributes").write_text("*.txt filter=evil\n")
        touch(Path(made.path, "a.txt"))
        assert await worktrees.leave(made)

    await play(scenario)
    assert not ran.exists()


@pytest.mark.parametrize("key", ["include.path", "includeIf.onbranch:worktree-**.path", "includeIf.gitdir:**.path"])
async def test_a_repository_that_includes_files_in_its_configuration_is_refused(
    project: Path, tmp_path: Path, key: str
) -> None:
    ran = tmp_path / "ran"
    (project / "more").touch()
    write_filter(project, ran, "evil", file="more")
    git(project, "config", key, str(project / "more"))

    async def scenario(worktrees: GitWorktrees) -> None:
        with pytest.raises(ToolError, match="includes other files"):
            await worktrees.open(str(project), NAME)

    await play(scenario)
    assert not ran.exists()


async def test_a_configuration_that_cannot_be_read_whole_is_refused(project: Path) -> None:
    with (project / ".git/config").open("a") as config:
        config.write("[x]\n" + "".join(f"\t{'k' * 1000}{number} = 1\n" for number in range(9_000)))

    async def scenario(worktrees: GitWorktrees) -> None:
        with pytest.raises(ToolError, match="printed more than 8 MiB"):
            await worktrees.open(str(project), NAME)

    await play(scenario)


async def test_signatures_of_commits_are_not_shown_to_the_repositorys_program(project: Path, tmp_path: Path) -> None:
    ran, program = tmp_path / "ran", tmp_path / "gpg"
    sign = "cat > /dev/null; printf '\\n[GNUPG:] SIG_CREATED \\n' >&2; echo signature"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n{sign}\n")
    program.chmod(0o755)

    async def scenario(worktrees: GitWorktrees) -> None:
        made = await worktrees.create(str(project), "one")
        git(Path(made.path), "-c", f"gpg.program={program}", "commit", "-q", "-S", "--allow-empty", "-m", "signed")
        ran.unlink()
        git(project, "config", "gpg.program", str(program))
        git(project, "config", "log.showSignature", "true")
        assert (await worktrees.find_changes(made)).commits == 1

    await play(scenario)
    assert not ran.exists()


async def test_the_users_filter_does_not_read_programs_from_the_repository(project: Path, tmp_path: Path) -> None:
    """As git-lfs does, whose extensions are commands."""
    ran, home = tmp_path / "ran", tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        '[filter "lfs"]\n\tsmudge = sh -c \'eval "$(git config lfs.extension.x.smudge)"\'\n'
    )
    (project / ".gitattributes").write_text("*.txt filter=lfs\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "attributes")
    git(project, "config", "lfs.extension.x.smudge", f"touch {ran}; cat")

    async def scenario(_: GitWorktrees) -> None:
        processes = make_processes()
        made = make_worktrees(processes, {"PATH": "/usr/bin:/bin", "HOME": str(home)})
        await made.leave(await made.open(str(project), NAME))
        await processes.close()

    await play(scenario)
    assert not ran.exists()


FOREIGN_PARTS = {
    "linked objects and refs": ("objects", "refs"),
    "linked folders of objects": (*(f"objects/{number:02x}" for number in range(256)), "refs/heads"),
    "linked packs": ("objects/pack", "packed-refs"),
    "alternates": ("refs/heads",),
    "a forged worktree": (),
}


@pytest.mark.parametrize("how", ["core.worktree", "a .git file", "a link", "commondir", *FOREIGN_PARTS])
async def test_a_repository_that_leads_to_another_one_is_refused(project: Path, tmp_path: Path, how: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    if how == "core.worktree":
        git(work, "init", "-q")
        git(work, "config", "core.worktree", str(project))
    elif how == "a .git file":
        (work / ".git").write_text(f"gitdir: {project}/.git\n")
    elif how == "a link":
        (work / ".git").symlink_to(project / ".git")
    elif how == "a forged worktree":
        forged = work / "common/worktrees/one"
        forged.mkdir(parents=True)
        (work / ".git").write_text(f"gitdir: {forged}\n")
        (forged / "HEAD").write_text("ref: refs/heads/main\n")
        (forged / "gitdir").write_text(f"{work}/.git\n")
        (forged / "commondir").write_text(f"{project}/.git\n")
    elif how in FOREIGN_PARTS:
        git(work, "init", "-q", "-b", "main")
        if "packed-refs" in FOREIGN_PARTS[how]:
            git(project, "gc", "-q")
        if how == "alternates":
            (work / ".git/objects/info/alternates").write_text(f"{project}/.git/objects\n")
        for part in FOREIGN_PARTS[how]:
            if (work / ".git" / part).is_dir():
                shutil.rmtree(work / ".git" / part)
            (work / ".git" / part).symlink_to(project / ".git" / part)
    else:
        git(work, "init", "-q")
        (work / ".git/commondir").write_text(f"{project}/.git\n")

    async def scenario(worktrees: GitWorktrees) -> None:
        with pytest.raises(ToolError, match="leads to another repository"):
            await worktrees.open(str(work), NAME)

    await play(scenario)
    assert not (project / ".claude").exists()


@pytest.mark.parametrize("how", ["another repository", "the same repository"])
@pytest.mark.parametrize("has_commit", [False, True])
async def test_a_link_with_a_forged_lock_removes_no_worktree(
    project: Path, tmp_path: Path, how: str, has_commit: bool
) -> None:
    """The folder of worktrees also has a `.git` that leads to the other repository, in which git would find it."""
    work, theirs = tmp_path / "work", tmp_path / "theirs"
    git(project, "worktree", "add", "-q", "-b", "worktree-evil", str(theirs))
    (theirs / "new.txt").write_text("new\n" * (not has_commit))
    if has_commit:
        (theirs / "new.txt").unlink()
    folder = (work if how == "another repository" else project) / ".claude/worktrees"
    folder.mkdir(parents=True)
    if how == "another repository":
        git(work, "init", "-q", "-b", "main")
        git(work, "commit", "-qm", "first", "--allow-empty")
        (folder / ".git").write_text(f"gitdir: {project}/.git\n")
    (folder / "evil").symlink_to(theirs)
    (folder / "evil.lock").write_text(git(project, "rev-parse", "HEAD") if has_commit else "")
    (folder / "gone.lock").write_text("")
    git(project, "branch", "worktree-gone")

    async def scenario(worktrees: GitWorktrees) -> None:
        await worktrees.sweep(str(folder.parents[1]))
        with pytest.raises(ToolError, match="folder of worktrees"):
            await worktrees.open_for_session(str(folder.parents[1]), "evil")

    await play(scenario)
    assert (theirs / "a.txt").exists()
    assert git(project, "branch", "--format=%(refname:short)").split() == ["main", "worktree-evil", "worktree-gone"]


async def test_a_submodule_has_worktrees_of_its_own(project: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    git(whole, "init", "-q")
    git(whole, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(project), "part")

    async def scenario(worktrees: GitWorktrees) -> None:
        made = await worktrees.open(str(whole / "part"), NAME)
        assert (made.top, Path(made.path, "a.txt").read_text()) == (str(whole / "part"), "a\n")
        assert not await worktrees.leave(made)

    await play(scenario)
