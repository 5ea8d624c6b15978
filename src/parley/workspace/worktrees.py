"""Git worktrees for agents and sessions that work apart from the user's checkout.

    worktree = await worktrees.open("/home/me/project", "agent-a1")     # .claude/worktrees/agent-a1, a new branch
    kept = await worktrees.leave(worktree)                              # removed with its branch if nothing was changed

Each worktree has a lock file next to it, which contains the commit it started at. The engine holds a lock on the file
while it runs. An unlocked file belongs to an engine that was killed: `sweep` then does what `leave` would have done. A
worktree that is kept has no lock file and belongs to the user.

`create`, `find` and `remove` are for the worktree of a session (EnterWorktree). It has no lock file.

Git executes nothing from the repository, and fetches nothing (git.py). A working tree may be hostile: it can contain
lock files, symlinks instead of worktrees, and a `.git` that leads to other repositories of the user.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from parley.errors import ToolError
from parley.workspace import private_files
from parley.workspace.base import WORKTREES, Worktree, WorktreeChanges
from parley.workspace.git import Git, GitFailed
from parley.workspace.sandbox.base import is_beneath
from parley.workspace.sandbox.protected import GIT_FOLDERS, outer_repository

LOCK = ".lock"
COMMIT = re.compile(r"[0-9a-f]{40,64}")
MAX_NAMED = 20
"""Of the files, and of the commits, that would be lost with a worktree."""
MAX_COMMITS = 10_000
"""How many commits are counted."""
UNUSED_PARTS = frozenset({"hooks", "lfs", "annex"})
"""Parts of a git directory that our git commands do not read. Users replace them by symlinks."""


class Checkout(NamedTuple):
    top: str
    common_dir: str
    """Its git directory, or the one that it shares with other worktrees."""


class GitWorktrees:
    def __init__(self, git: Git) -> None:
        self._git = git
        self._locks: dict[str, Lock] = {}
        """The locks of our worktrees that are removed if unchanged, by path."""

    async def open(self, cwd: str, name: str) -> Worktree:
        top = await self._top(cwd)
        folder = make_folder(top)
        await self._sweep(folder)
        path = str(folder / name)
        if exists(path):
            await self._check(path)
        else:
            await self._add(top, path, branch_of(name))
        return Worktree(top=top, path=path, cwd=matching_folder(path, top, cwd), branch=branch_of(name))

    async def leave(self, worktree: Worktree) -> bool:
        lock = self._locks.pop(worktree.path, None)
        if lock is None:
            return exists(worktree.path)
        return await self._release(worktree.path, lock)

    async def sweep(self, cwd: str) -> None:
        if any(folder_of(find_checkout(cwd)).glob(f"*{LOCK}")):
            with suppress(ToolError):
                await self._sweep(folder_of(await self._top(cwd)))

    # Worktrees of a session.

    async def create(self, cwd: str, name: str) -> Worktree:
        top = await self._top(cwd)
        name = name.replace("/", "+")
        path, branch = str(make_folder(top) / name), branch_of(name)
        if exists(path) or await self._commit(top, f"refs/heads/{branch}"):
            raise ToolError(
                f"A worktree or branch named {branch} already exists. "
                "Choose another name, or enter that worktree by its path."
            )
        base = await self._commit(top, "HEAD")
        if not base:
            raise ToolError(f"cannot create a worktree: {top} has no commit yet.")
        await self._git.run(top, "worktree", "add", "--quiet", "-b", branch, path, base)
        return Worktree(top=top, path=path, cwd=matching_folder(path, top, cwd), branch=branch)

    async def find(self, cwd: str, path: str) -> Worktree:
        top = await self._top(cwd)
        listed = await self._git.run(top, "worktree", "list", "--porcelain", "-z")
        found = find_listed(listed, top, cwd, path)
        await self._check(found.path)
        return found

    async def find_changes(self, worktree: Worktree) -> WorktreeChanges:
        path = worktree.path
        status = ("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty")
        files = (await self._git.run(path, *status)).splitlines()
        others = (f"--exclude={worktree.branch}", "--branches", "--remotes", "--tags")
        shape = (f"--max-count={MAX_COMMITS}", "--oneline", "--no-decorate", "--no-color")
        commits = (await self._git.run(path, "log", *shape, "HEAD", "--not", *others)).splitlines()
        names = [*(line[3:] for line in files[:MAX_NAMED]), *commits[:MAX_NAMED]]
        return WorktreeChanges(files=len(files), commits=len(commits), names=tuple(names))

    async def remove(self, worktree: Worktree) -> None:
        await self._git.run(worktree.top, "worktree", "remove", "--force", worktree.path, other_folder=worktree.path)
        await self._git.run(worktree.top, "update-ref", "-d", f"refs/heads/{worktree.branch}")

    # One worktree.

    async def _top(self, cwd: str) -> str:
        """The root of the checkout that contains a folder. Raises ToolError."""
        return (await self._find(cwd)).top

    async def _find(self, cwd: str) -> Checkout:
        """The checkout that contains a folder. Raises ToolError, also if it leads to another repository."""
        query = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir")
        try:
            top, git_dir, common_dir = (await self._git.run(cwd, *query)).rstrip("\n").split("\n")
        except GitFailed as exc:
            raise ToolError(f"cannot create a worktree: {cwd} is not in a git repository: {exc}") from None
        except ValueError:
            raise ToolError(f"cannot create a worktree: the path of {cwd!r} contains a line break.") from None
        is_module = "core.worktree" in (await self._git.read_config(cwd)).keys
        if not (same_path(top, find_checkout(cwd)) and is_own_repository(top, git_dir, common_dir, is_module)):
            raise ToolError(f"cannot create a worktree: the .git of {cwd} leads to another repository.")
        if part := await asyncio.to_thread(find_foreign_part, git_dir, common_dir):
            raise ToolError(f"cannot create a worktree: {part} leads to another repository.")
        return Checkout(top, common_dir)

    async def _check(self, path: str) -> str:
        """The checkout in whose folder of worktrees a path is. Raises ToolError if it is not a worktree of it."""
        top = str(Path(path).parents[len(WORKTREES)])
        around = await self._find(top)
        if not same_path(around.top, top) or not is_in_folder(path, top):
            raise ToolError(f"{path} is not in the folder of worktrees of a git repository.")
        if exists(path):
            found = await self._find(path)
            if not same_path(found.top, path) or not same_path(found.common_dir, around.common_dir):
                raise ToolError(f"{path} exists, but is not a worktree of the git repository in {top}.")
        return top

    async def _add(self, top: str, path: str, branch: str) -> None:
        """Raises ToolError."""
        if await self._commit(top, f"refs/heads/{branch}"):
            # The branch exists: an earlier worktree was removed by hand. Its commits are not ours to delete.
            await self._git.run(top, "worktree", "add", "--quiet", path, branch)
            return
        base = await self._commit(top, "HEAD")
        if not base:
            raise ToolError(f"cannot create a worktree: {top} has no commit yet.")
        lock = Lock.create(f"{path}{LOCK}", base)
        try:
            await self._git.run(top, "worktree", "add", "--quiet", "-b", branch, path, base)
        except BaseException:
            await self._release(path, lock, is_unfinished=True)
            raise
        self._locks[path] = lock

    async def _release(self, path: str, lock: Lock, *, is_unfinished: bool = False) -> bool:
        """Remove a worktree if nothing was changed in it. Returns whether it still exists.

        Nothing was changed in one that is unfinished. Only its creator knows that: a lock file may be forged.
        """
        try:
            kept = not is_unfinished and exists(path) and await self._has_changes(path, lock.base)
            if not kept:
                await self._remove(path, lock.base, is_unfinished=is_unfinished)
            lock.delete()
        except ToolError:
            # Git failed, or this is not a worktree of ours. The lock file stays, and the next `sweep` tries again.
            kept = exists(path)
        finally:
            lock.close()
        return kept

    async def _has_changes(self, path: str, base: str) -> bool:
        """Whether removing it would lose changes. Raises ToolError."""
        await self._check(path)
        for commit in ("HEAD", f"refs/heads/{branch_of(os.path.basename(path))}"):
            if await self._commit(path, commit) != base:
                return True
        status = ("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty")
        return bool(await self._git.run(path, *status))

    async def _remove(self, path: str, base: str, *, is_unfinished: bool) -> None:
        """Raises ToolError, also if git itself finds changes that would be lost."""
        # Not the checkout it was created from, which may be a worktree that is gone.
        top = str(Path(path).parents[len(WORKTREES)]) if is_unfinished else await self._check(path)
        force = ("--force",) if is_unfinished and is_in_folder(path, top) else ()
        try:
            await self._git.run(top, "worktree", "remove", *force, path, other_folder=path)
        except GitFailed:
            if exists(path):
                raise
        with suppress(GitFailed):  # the branch may not exist; and it must still be at the base commit
            await self._git.run(top, "update-ref", "-d", f"refs/heads/{branch_of(os.path.basename(path))}", base)

    async def open_for_session(self, cwd: str, name: str) -> Worktree:
        """A worktree for a whole session. It is removed by `leave` unless `keep` is called. Raises ToolError."""
        worktree = await self.open(cwd, name)
        return replace(worktree, cwd=worktree.path)

    def keep(self, worktree: Worktree) -> None:
        """From now on the worktree belongs to the user."""
        if (lock := self._locks.pop(worktree.path, None)) is not None:
            lock.delete()
            lock.close()

    async def _sweep(self, folder: Path) -> None:
        for lock in find_locks(folder):
            await self._release(lock.path.removesuffix(LOCK), lock)

    # Git.

    async def _commit(self, cwd: str, name: str) -> str:
        """The commit of a ref; "" if there is none. Raises ToolError if git cannot be run."""
        try:
            return (await self._git.run(cwd, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")).strip()
        except GitFailed:
            return ""


class Lock:
    """The lock file of a worktree that is removed if unchanged."""

    def __init__(self, path: str, file: int, base: str) -> None:
        self.path = path
        self.base = base
        """The commit the worktree started at."""
        self._file = file

    @classmethod
    def create(cls, path: str, base: str) -> Lock:
        """Raises ToolError."""
        try:
            file = private_files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, below=len(WORKTREES))
            private_files.lock(file)
            os.write(file, base.encode())
        except OSError as exc:
            raise ToolError(f"cannot create {path}: {exc.strerror}.") from None
        return cls(path, file, base)

    @classmethod
    def acquire_stale(cls, path: str) -> Lock | None:
        """Lock the file of an engine that is gone; None if it is held, or does not contain a commit."""
        try:
            file = private_files.open_file(path, os.O_RDWR, below=len(WORKTREES))
        except OSError:
            return None
        try:
            is_stale = private_files.lock(file, timeout_seconds=0)
            base = os.read(file, 200).decode(errors="replace") if is_stale else ""
        except OSError:
            base = ""
        if not COMMIT.fullmatch(base):
            os.close(file)
            return None
        return cls(path, file, base)

    def delete(self) -> None:
        with suppress(OSError):
            os.unlink(self.path)

    def close(self) -> None:
        os.close(self._file)


def find_checkout(cwd: str) -> str:
    """The nearest folder with a `.git`."""
    folder = os.path.realpath(cwd)
    parents = map(str, Path(folder).parents)
    return next((each for each in (folder, *parents) if exists(os.path.join(each, ".git"))), folder)


def is_own_repository(top: str, git_dir: str, common_dir: str, is_module: bool) -> bool:
    """Whether a checkout's repository is in its `.git`, or is one that refers back to the checkout.

    The `.git` of a hostile working tree could name any repository of the user, whose files would be checked out.
    """
    entry, found = os.path.join(top, ".git"), {os.path.realpath(path) for path in (git_dir, common_dir)}
    if os.path.isdir(entry):
        return found == {os.path.join(os.path.realpath(top), ".git")}
    # Submodules name their checkout in core.worktree.
    return found <= set(outer_repository(os.path.realpath(top))) or (is_module and len(found) == 1)


def find_foreign_part(git_dir: str, common_dir: str) -> str:
    """A part of a repository that git would read from elsewhere: a symlink that leads out, or `alternates`; or ""."""
    common_dir = os.path.realpath(common_dir)
    for folder in dict.fromkeys((os.path.realpath(git_dir), common_dir)):
        links = [path for path in find_links(folder, is_deep=False) if os.path.basename(path) not in UNUSED_PARTS]
        for name in GIT_FOLDERS:
            links += find_links(os.path.join(folder, name))
        if foreign := next((path for path in links if not is_beneath(os.path.realpath(path), common_dir)), ""):
            return foreign
    alternates = os.path.join(common_dir, "objects", "info", "alternates")
    return alternates if exists(alternates) else ""


def find_links(folder: str, *, is_deep: bool = True) -> Iterator[str]:
    """The symlinks in a folder and, if `is_deep`, in the folders below it."""
    waiting = [folder]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield entry.path
                elif is_deep and entry.is_dir():
                    waiting.append(entry.path)


def is_in_folder(path: str, top: str) -> bool:
    """Whether a path is in the folder of worktrees of a checkout, without symlinks on the way."""
    return os.path.realpath(path) == os.path.join(os.path.realpath(top), *WORKTREES, os.path.basename(path))


def branch_of(name: str) -> str:
    return f"worktree-{name}"


def same_path(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def exists(path: str) -> bool:
    return os.path.lexists(path)


def matching_folder(path: str, top: str, cwd: str) -> str:
    """The folder of the worktree that corresponds to `cwd`; its root if there is none."""
    location = os.path.normpath(os.path.join(path, os.path.relpath(os.path.realpath(cwd), os.path.realpath(top))))
    return location if os.path.isdir(location) else path


def find_listed(listed: str, top: str, cwd: str, path: str) -> Worktree:
    """A worktree in the output of `git worktree list`. Raises ToolError unless it is in the folder of worktrees."""
    path, folder = os.path.realpath(os.path.join(cwd, path)), folder_of(top)
    for part in listed.split("\0\0"):
        fields = dict(line.partition(" ")[::2] for line in part.split("\0") if line)
        if os.path.realpath(fields.get("worktree", "")) == path and os.path.dirname(path) == os.path.realpath(folder):
            branch = fields.get("branch", "").removeprefix("refs/heads/") or "(detached HEAD)"
            return Worktree(top=top, path=path, cwd=matching_folder(path, top, cwd), branch=branch)
    raise ToolError(f"{path} is not a worktree of this repository in {folder}.")


def folder_of(top: str) -> Path:
    """The folder of worktrees. For a checkout that is such a worktree, the one next to it, as it may be removed."""
    above = Path(top).parent
    return above if above.parts[-len(WORKTREES) :] == WORKTREES else Path(top, *WORKTREES)


def make_folder(top: str) -> Path:
    """Create the folder of worktrees if needed. Raises ToolError."""
    folder = folder_of(top)
    try:
        with (
            private_files.open_folder(folder, below=len(WORKTREES), make=True, mode=0o777) as (opened, owner),
            suppress(FileExistsError),
            open(private_files.open_in(opened, owner, str(folder / ".gitignore"), private_files.NEW), "wb") as ignoring,
        ):
            ignoring.write(b"*\n")  # not part of the surrounding checkout
    except private_files.UnsafeFile as exc:
        raise ToolError(f"cannot create a worktree in {folder}: {exc.strerror}.") from None
    except OSError as exc:
        raise ToolError(f"cannot create {folder}: {exc.strerror}.") from None
    return folder


def find_locks(folder: Path) -> list[Lock]:
    """Acquire the locks that no engine holds."""
    try:
        names = [name for name in sorted(os.listdir(folder)) if name.endswith(LOCK)]
    except OSError:
        return []
    locks = [Lock.acquire_stale(str(folder / name)) for name in names]
    return [lock for lock in locks if lock is not None]
