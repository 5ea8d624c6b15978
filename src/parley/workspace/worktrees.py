"""Git worktrees for agents and sessions that work apart from the user's checkout.

    worktree = await worktrees.open("/home/me/project", "agent-a1")     # .claude/worktrees/agent-a1, a new branch
    kept = await worktrees.leave(worktree)                              # removed with its branch if nothing was changed

Each worktree has a lock file next to it, which contains the commit it started at. The engine holds a lock on the file
while it runs. An unlocked file belongs to an engine that was killed: `sweep` then does what `leave` would have done. A
worktree that is kept has no lock file and belongs to the user.

`create`, `find` and `remove` are for the worktree of a session (EnterWorktree). It has no lock file.

Git executes nothing from the repository: no hooks, no file system monitor, no filters of its configuration. Nothing is
fetched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from parley.errors import ToolError
from parley.workspace import private_files
from parley.workspace.base import WORKTREES, Worktree, WorktreeChanges
from parley.workspace.process.processes import Processes

LOCK = ".lock"
MAX_NAMED = 20
"""Of the files, and of the commits, that would be lost with a worktree."""
GIT_SECONDS = 120.0
MAX_OUTPUT_BYTES = 1 << 16
SAFE_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "submodule.recurse": "false",
    "protocol.allow": "never",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
FILTER_PARTS = {"clean": "", "smudge": "", "process": "", "required": "false"}
SAFE_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
"""A repository's `protocol.ext.allow` would override our `protocol.allow`, but not GIT_ALLOW_PROTOCOL."""
UNSAFE_VARIABLES = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"}
    | {"GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_EXTERNAL_DIFF", "GIT_TRACE"}
)
"""Variables that would make git use another repository or run other programs."""


class GitFailed(ToolError):
    """A git command failed. The message is git's."""


class GitWorktrees:
    def __init__(self, processes: Processes, environment: Mapping[str, str]) -> None:
        self._processes = processes
        kept = {name: value for name, value in environment.items() if name not in UNSAFE_VARIABLES}
        self._environment = {**kept, "LC_ALL": "C", **SAFE_ENVIRONMENT}
        self._locks: dict[str, Lock] = {}
        """The locks of our worktrees that are removed if unchanged, by path."""

    async def open(self, cwd: str, name: str) -> Worktree:
        top = await self._top(cwd)
        folder = make_folder(top)
        await self._sweep(folder)
        path = str(folder / name)
        if not exists(path):
            await self._add(top, path, branch_of(name))
        return Worktree(top=top, path=path, cwd=matching_folder(path, top, cwd), branch=branch_of(name))

    async def leave(self, worktree: Worktree) -> bool:
        lock = self._locks.pop(worktree.path, None)
        if lock is None:
            return exists(worktree.path)
        return await self._release(worktree.path, lock)

    async def sweep(self, cwd: str) -> None:
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
        await self._git(top, await self._filters(top), "worktree", "add", "--quiet", "-b", branch, path, base)
        return Worktree(top=top, path=path, cwd=matching_folder(path, top, cwd), branch=branch)

    async def find(self, cwd: str, path: str) -> Worktree:
        top = await self._top(cwd)
        listed = await self._git(top, {}, "worktree", "list", "--porcelain", "-z")
        return find_listed(listed, top, cwd, path)

    async def find_changes(self, worktree: Worktree) -> WorktreeChanges:
        path = worktree.path
        status = ("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty")
        files = (await self._git(path, await self._filters(path), *status)).splitlines()
        others = (f"--exclude={worktree.branch}", "--branches", "--remotes", "--tags")
        log = ("log", "--oneline", "--no-decorate", "--no-color", "HEAD", "--not", *others)
        commits = (await self._git(path, {}, *log)).splitlines()
        names = [*(line[3:] for line in files[:MAX_NAMED]), *commits[:MAX_NAMED]]
        return WorktreeChanges(files=len(files), commits=len(commits), names=tuple(names))

    async def remove(self, worktree: Worktree) -> None:
        await self._git(worktree.top, {}, "worktree", "remove", "--force", worktree.path)
        await self._git(worktree.top, {}, "update-ref", "-d", f"refs/heads/{worktree.branch}")

    # One worktree.

    async def _top(self, cwd: str) -> str:
        """The root of the checkout that contains a folder. Raises ToolError."""
        try:
            return (await self._git(cwd, {}, "rev-parse", "--show-toplevel")).rstrip("\n")
        except GitFailed as exc:
            raise ToolError(f"cannot create a worktree: {cwd} is not in a git repository: {exc}") from None

    async def _add(self, top: str, path: str, branch: str) -> None:
        """Raises ToolError."""
        filters = await self._filters(top)
        if await self._commit(top, f"refs/heads/{branch}"):
            # The branch exists: an earlier worktree was removed by hand. Its commits are not ours to delete.
            await self._git(top, filters, "worktree", "add", "--quiet", path, branch)
            return
        base = await self._commit(top, "HEAD")
        if not base:
            raise ToolError(f"cannot create a worktree: {top} has no commit yet.")
        lock = Lock.create(f"{path}{LOCK}")
        try:
            await self._git(top, filters, "worktree", "add", "--quiet", "-b", branch, path, base)
            lock.write(base)
        except BaseException:
            await self._release(path, lock)
            raise
        self._locks[path] = lock

    async def _release(self, path: str, lock: Lock) -> bool:
        """Remove a worktree if nothing was changed in it. Returns whether it still exists."""
        try:
            # Without a commit the worktree was never completed, so nothing was changed in it.
            kept = bool(lock.base) and exists(path) and await self._has_changes(path, lock.base)
            if not kept:
                await self._remove(path, lock.base)
            lock.delete()
        except ToolError:
            # Git failed. The lock file stays, and the next `sweep` tries again.
            kept = exists(path)
        finally:
            lock.close()
        return kept

    async def _has_changes(self, path: str, base: str) -> bool:
        """Whether removing it would lose changes. Raises ToolError."""
        for commit in ("HEAD", f"refs/heads/{branch_of(os.path.basename(path))}"):
            if await self._commit(path, commit) != base:
                return True
        filters = await self._filters(path)
        status = ("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty")
        return bool(await self._git(path, filters, *status))

    async def _remove(self, path: str, base: str) -> None:
        """Raises ToolError, also if git itself finds changes that would be lost."""
        folder, name = os.path.split(path)  # the checkout it was created from may be gone
        unfinished = () if base else ("--force",)
        try:
            await self._git(folder, {}, "worktree", "remove", *unfinished, path)
        except GitFailed:
            if exists(path):
                raise
        with suppress(GitFailed):  # the branch may not exist; and it must still be at the base commit
            commit = [base] if base else []
            await self._git(folder, {}, "update-ref", "-d", f"refs/heads/{branch_of(name)}", *commit)

    async def open_for_session(self, cwd: str, name: str) -> Worktree:
        """A worktree for a whole session. It is removed by `leave` unless `keep` is called. Raises ToolError."""
        worktree = await self.open(cwd, name)
        if not same_path(await self._top(worktree.path), worktree.path):
            raise ToolError(f"{worktree.path} exists, but is not a git worktree.")
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
            return (await self._git(cwd, {}, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")).strip()
        except GitFailed:
            return ""

    async def _filters(self, cwd: str) -> dict[str, str]:
        """The settings that disable the filters of a repository's own configuration."""
        query = ("config", "-z", "--show-scope", "--name-only", "--get-regexp", r"^filter\.")
        try:
            fields = (await self._git(cwd, {}, *query)).split("\0")
        except GitFailed:
            return {}
        pairs = zip(fields[::2], fields[1::2], strict=False)
        own_filters = {name.rpartition(".")[0] for scope, name in pairs if scope in ("local", "worktree")}
        return {f"{name}.{part}": value for name in own_filters for part, value in FILTER_PARTS.items()}

    async def _git(self, cwd: str, more: Mapping[str, str], *args: str) -> str:
        """Run git and return its output. Raises GitFailed, or ToolError if it cannot be run."""
        settings = {**SAFE_CONFIG, **more}
        environment = {**self._environment, "GIT_CONFIG_COUNT": str(len(settings))}
        for number, (name, value) in enumerate(settings.items()):
            environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        output, errors = bytearray(), bytearray()

        def take(data: bytes) -> None:
            output.extend(data[: MAX_OUTPUT_BYTES - len(output)])

        def take_errors(data: bytes) -> None:
            errors.extend(data[: MAX_OUTPUT_BYTES - len(errors)])

        program = shutil.which("git", path=environment.get("PATH"))
        if program is None:
            raise ToolError("git was not found on the PATH.")
        command = await self._processes.start(
            [program, *args], cwd=cwd, environment=environment, take=take, take_errors=take_errors
        )
        try:
            end, timed_out = await self._processes.wait(command, GIT_SECONDS)
        finally:
            command.drop()
        if timed_out or end.error:
            raise ToolError(end.error or f"git {args[0]} took longer than {GIT_SECONDS:.0f} s.")
        if end.exit_code != 0:
            raise GitFailed(errors.decode(errors="replace").strip() or f"git {args[0]} exited with {end.exit_code}")
        return output.decode(errors="surrogateescape")


class Lock:
    """The lock file of a worktree that is removed if unchanged."""

    def __init__(self, path: str, file: int, base: str) -> None:
        self.path = path
        self.base = base
        """The commit the worktree started at; "" until it is created."""
        self._file = file

    def write(self, base: str) -> None:
        os.write(self._file, base.encode())
        self.base = base

    @classmethod
    def create(cls, path: str) -> Lock:
        """Raises ToolError."""
        try:
            file = private_files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, below=len(WORKTREES))
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as exc:
            raise ToolError(f"cannot create {path}: {exc.strerror}.") from None
        return cls(path, file, "")

    @classmethod
    def acquire_stale(cls, path: str) -> Lock | None:
        """Lock the file of an engine that is gone; None if it is held."""
        try:
            file = private_files.open_file(path, os.O_RDWR, below=len(WORKTREES))
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return cls(path, file, os.read(file, 200).decode(errors="replace"))
        except OSError:
            os.close(file)
            return None

    def delete(self) -> None:
        with suppress(OSError):
            os.unlink(self.path)

    def close(self) -> None:
        os.close(self._file)


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
