"""Git worktrees for agents that work apart from the person's checkout.

    worktree = await worktrees.open("/home/me/project", "agent-a1")     # .claude/worktrees/agent-a1, a new branch
    kept = await worktrees.leave(worktree)                              # gone, branch and all, if nothing was changed

Beside each lies a file that says at which commit it began, locked for as long as its engine lives. A file that nobody
holds is that of an engine that was killed: `sweep` does then what `leave` would have done. What is kept has no such
file any more, and is left to the person.

Git runs nothing that the repository brings: no hooks, no monitor of the file system, no filters of its own
configuration. Nothing is fetched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from parley.errors import ToolError
from parley.workspace import private_files
from parley.workspace.base import WORKTREES, Worktree
from parley.workspace.process.processes import Processes

LOCK = ".lock"
GIT_SECONDS = 120.0
MOST_SAID_BYTES = 1 << 16
HARMLESS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "submodule.recurse": "false",
    "protocol.allow": "never",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
FILTER_PARTS = {"clean": "", "smudge": "", "process": "", "required": "false"}
QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
"""`protocol.ext.allow` of a repository would outweigh our `protocol.allow`; nothing outweighs the variable."""
ELSEWHERE = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"}
    | {"GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_EXTERNAL_DIFF", "GIT_TRACE"}
)
"""Variables that would lead git to another repository, or have it do more than it is told."""


class Failed(ToolError):
    """Git could not do it, and says why."""


class GitWorktrees:
    def __init__(self, processes: Processes, environment: Mapping[str, str]) -> None:
        self._processes = processes
        kept = {name: value for name, value in environment.items() if name not in ELSEWHERE}
        self._environment = {**kept, "LC_ALL": "C", **QUIET}
        self._locks: dict[str, Lock] = {}
        """Of the worktrees that are to go if nothing is changed in them, by their paths."""

    async def open(self, cwd: str, name: str) -> Worktree:
        top = await self._top(cwd)
        folder = made_folder(top)
        await self._sweep(folder)
        path = str(folder / name)
        if not is_there(path):
            await self._add(top, path, branch_of(name))
        return Worktree(top=top, path=path, cwd=place_in(path, top, cwd), branch=branch_of(name))

    async def leave(self, worktree: Worktree) -> bool:
        lock = self._locks.pop(worktree.path, None)
        if lock is None:
            return is_there(worktree.path)
        return await self._let_go(worktree.path, lock)

    async def sweep(self, cwd: str) -> None:
        with suppress(ToolError):
            await self._sweep(folder_of(await self._top(cwd)))

    # One worktree.

    async def _top(self, cwd: str) -> str:
        """The checkout that a folder is in. Raises ToolError."""
        try:
            return (await self._git(cwd, {}, "rev-parse", "--show-toplevel")).rstrip("\n")
        except Failed as flaw:
            raise ToolError(f"{cwd} is in no git repository, so there can be no worktree of it: {flaw}") from None

    async def _add(self, top: str, path: str, branch: str) -> None:
        """Raises ToolError."""
        filters = await self._filters(top)
        if await self._commit(top, f"refs/heads/{branch}"):
            # An earlier worktree of this name was taken away by hand: what is on its branch is not ours to remove.
            await self._git(top, filters, "worktree", "add", "--quiet", path, branch)
            return
        base = await self._commit(top, "HEAD")
        if not base:
            raise ToolError(f"{top} has no commit yet, so there can be no worktree of it.")
        lock = Lock.made(f"{path}{LOCK}")
        try:
            await self._git(top, filters, "worktree", "add", "--quiet", "-b", branch, path, base)
            lock.write(base)
        except BaseException:
            await self._let_go(path, lock)
            raise
        self._locks[path] = lock

    async def _let_go(self, path: str, lock: Lock) -> bool:
        """Take a worktree away if nothing was changed in it; whether it is still there."""
        try:
            # Without a commit it never came to be, and nobody has worked in it.
            kept = bool(lock.base) and is_there(path) and await self._has_changes(path, lock.base)
            if not kept:
                await self._remove(path, lock.base)
            lock.forget()
        except ToolError:
            # Git was kept from it. The file stays, and whoever sweeps next tries again.
            kept = is_there(path)
        finally:
            lock.close()
        return kept

    async def _has_changes(self, path: str, base: str) -> bool:
        """Whether anything would be lost with it. Raises ToolError."""
        for commit in ("HEAD", f"refs/heads/{branch_of(os.path.basename(path))}"):
            if await self._commit(path, commit) != base:
                return True
        filters = await self._filters(path)
        status = ("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty")
        return bool(await self._git(path, filters, *status))

    async def _remove(self, path: str, base: str) -> None:
        """Raises ToolError, also if git looks once more and finds something that would be lost."""
        folder, name = os.path.split(path)  # the checkout it was made from may be another one that is gone
        unfinished = () if base else ("--force",)
        try:
            await self._git(folder, {}, "worktree", "remove", *unfinished, path)
        except Failed:
            if is_there(path):
                raise
        with suppress(Failed):  # it may never have come to be; and it must still be where it began
            commit = [base] if base else []
            await self._git(folder, {}, "update-ref", "-d", f"refs/heads/{branch_of(name)}", *commit)

    async def _sweep(self, folder: Path) -> None:
        for lock in found_locks(folder):
            await self._let_go(lock.path.removesuffix(LOCK), lock)

    # Git.

    async def _commit(self, cwd: str, name: str) -> str:
        """The commit that a name stands for; empty if there is none. Raises ToolError if git cannot be run."""
        try:
            return (await self._git(cwd, {}, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")).strip()
        except Failed:
            return ""

    async def _filters(self, cwd: str) -> dict[str, str]:
        """What keeps the filters of a repository's own configuration from being run."""
        asked = ("config", "-z", "--show-scope", "--name-only", "--get-regexp", r"^filter\.")
        try:
            fields = (await self._git(cwd, {}, *asked)).split("\0")
        except Failed:
            return {}
        pairs = zip(fields[::2], fields[1::2], strict=False)
        theirs = {name.rpartition(".")[0] for scope, name in pairs if scope in ("local", "worktree")}
        return {f"{name}.{part}": value for name in theirs for part, value in FILTER_PARTS.items()}

    async def _git(self, cwd: str, more: Mapping[str, str], *words: str) -> str:
        """What git says. Raises Failed, or ToolError if it cannot be run."""
        settings = {**HARMLESS, **more}
        environment = {**self._environment, "GIT_CONFIG_COUNT": str(len(settings))}
        for number, (name, value) in enumerate(settings.items()):
            environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        said, complained = bytearray(), bytearray()

        def take(data: bytes) -> None:
            said.extend(data[: MOST_SAID_BYTES - len(said)])

        def hear(data: bytes) -> None:
            complained.extend(data[: MOST_SAID_BYTES - len(complained)])

        program = shutil.which("git", path=environment.get("PATH"))
        if program is None:
            raise ToolError("there is no git on the PATH.")
        command = await self._processes.start(
            [program, *words], cwd=cwd, environment=environment, take=take, take_errors=hear
        )
        try:
            end, timed_out = await self._processes.wait(command, GIT_SECONDS)
        finally:
            command.drop()
        if timed_out or end.flaw:
            raise ToolError(end.flaw or f"git {words[0]} took longer than {GIT_SECONDS:.0f} s.")
        if end.exit_code != 0:
            raise Failed(complained.decode(errors="replace").strip() or f"git {words[0]} ended with {end.exit_code}")
        return said.decode(errors="surrogateescape")


class Lock:
    """The file beside a worktree that is to go if nothing is changed in it."""

    def __init__(self, path: str, file: int, base: str) -> None:
        self.path = path
        self.base = base
        """The commit it began at; empty before it is there."""
        self._file = file

    def write(self, base: str) -> None:
        os.write(self._file, base.encode())
        self.base = base

    @classmethod
    def made(cls, path: str) -> Lock:
        """Raises ToolError."""
        try:
            file = private_files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, below=len(WORKTREES))
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as flaw:
            raise ToolError(f"{path} cannot be made: {flaw.strerror}.") from None
        return cls(path, file, "")

    @classmethod
    def taken(cls, path: str) -> Lock | None:
        """That of somebody who is gone; None if it is held."""
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

    def forget(self) -> None:
        with suppress(OSError):
            os.unlink(self.path)

    def close(self) -> None:
        os.close(self._file)


def branch_of(name: str) -> str:
    return f"worktree-{name}"


def is_there(path: str) -> bool:
    return os.path.lexists(path)


def place_in(path: str, top: str, cwd: str) -> str:
    """The folder of a worktree that `cwd` is in the person's checkout, if it has it."""
    place = os.path.normpath(os.path.join(path, os.path.relpath(os.path.realpath(cwd), os.path.realpath(top))))
    return place if os.path.isdir(place) else path


def folder_of(top: str) -> Path:
    """Where worktrees are. Those of a checkout that is itself one of them lie beside it: it may be taken away."""
    above = Path(top).parent
    return above if above.parts[-len(WORKTREES) :] == WORKTREES else Path(top, *WORKTREES)


def made_folder(top: str) -> Path:
    """The same, made where it is not there yet. Raises ToolError."""
    folder = folder_of(top)
    try:
        with (
            private_files.opened_folder(folder, below=len(WORKTREES), make=True, mode=0o777) as (opened, owner),
            suppress(FileExistsError),
            open(private_files.open_in(opened, owner, str(folder / ".gitignore"), private_files.NEW), "wb") as ignoring,
        ):
            ignoring.write(b"*\n")  # what is in here is no part of the checkout around it
    except private_files.Unsafe as exc:
        raise ToolError(f"no worktree is made in {folder}: {exc.strerror}.") from None
    except OSError as flaw:
        raise ToolError(f"{folder} cannot be made: {flaw.strerror}.") from None
    return folder


def found_locks(folder: Path) -> list[Lock]:
    """Those that nobody holds."""
    try:
        names = [name for name in sorted(os.listdir(folder)) if name.endswith(LOCK)]
    except OSError:
        return []
    locks = [Lock.taken(str(folder / name)) for name in names]
    return [lock for lock in locks if lock is not None]
