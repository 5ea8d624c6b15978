"""The interface between tools and the user's machine.

`Files` reads and changes files, `FileSearch` finds them, `Worktrees` makes git worktrees, and `Processes`
(process/processes.py) runs commands. Tools access the machine only through these, so that every change can be rewound
and every access check applies to the opened object, not to a name that may point elsewhere a moment later.

See also: `local.py`, `search/` and `worktrees.py` for the implementations, `remote/` for those on another machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, Protocol

from parley.protocol.base import Struct

WORKTREES = (".claude", "worktrees")
"""The folder for agents' worktrees, relative to the checkout."""


Writer = Callable[[str], None]
"""Another program that changes the file with a real path."""


class Scope(Struct, frozen=True, kw_only=True):
    """Which files a call may access, as part of its permission: all, those beneath folders, or single files.

    The check applies to the opened object, not to its name: a symlink that leads out is refused.
    """

    anywhere: bool = False
    folders: tuple[str, ...] = ()
    """Each folder is resolved at its first use. Replacing it by a symlink later has no effect."""
    files: tuple[str, ...] = ()
    """Real paths (`os.path.realpath`), because a path with a symlink could change its target later."""
    call: str = ""
    """The id of the tool call. Its changes are recorded under this id."""
    confined: Literal["", "reader", "editor", "sandbox"] = ""
    """Why a command was allowed without approval: it only reads, it only edits, or it runs in the sandbox."""


class FileSnapshot(Struct, frozen=True, kw_only=True):
    """The content and status of a file when it was opened."""

    path: str
    """The real path of the opened file."""
    data: bytes
    size: int
    """The size of the whole file in bytes. `data` may be shorter if a limit was given."""
    mode: int
    mtime_ns: int
    inode: int


class NotWritten(Exception):
    """Another program did not make the change that it was asked for."""


class Files(Protocol):
    """Reads and changes files. Paths are absolute. Failures raise ToolError with a message for the model."""

    watches_commands: bool
    """Whether changes made by commands can be rewound, too."""

    def read(self, path: str, scope: Scope, limit_bytes: int | None = None) -> FileSnapshot:
        """Read a regular file. Refuses folders, devices, pipes and sockets. If it is missing, suggests similar names.

        Without a limit, refuses files that are too large to hold in memory.
        """

    def read_cached(self, path: str, scope: Scope, limit_bytes: int) -> FileSnapshot | None:
        """Like `read`, without waiting for a disk; None if the content is not in memory, longer, or missing."""

    def peek(self, path: str, scope: Scope, limit_bytes: int | None = None) -> FileSnapshot | None:
        """Like `read`, but returns None if the file does not exist."""

    def write(
        self, path: str, data: bytes, scope: Scope, *, replacing: FileSnapshot | None, by: Writer | None = None
    ) -> FileSnapshot:
        """Replace a file, or create it (and its folders) if `replacing` is None.

        The replacement is atomic and keeps the mode. It is refused if the file has changed since `replacing` was read:
        it must have the same content, or the same inode, mtime and size if `replacing` is only a part. The old
        content is checkpointed first.

        `by` asks another program to make the change, given the real path. The result is then what is in the file,
        which may differ from `data`: the program may format it. Raises NotWritten if the file is as it was.
        """

    def before_command(self) -> None:
        """Prepare for a command, which may change any file. May take a while."""

    def after_command(self) -> None:
        """Record the changes of a command that has ended. May take a while; does not raise."""

    def changed_by(self, call: str) -> list[str] | None:
        """The files that a call changed, even in an earlier process; None if unknown."""

    def begin_message(self, user_message_id: str) -> None:
        """Assign the following changes to this user message. Does not raise."""

    def rewind(self, user_message_id: str, *, dry_run: bool, with_diffs: bool = False) -> RewindReport:
        """Restore the files to their state when that message arrived. Does not raise; the report gives the reason.

        Files that were changed by others since our last change are not touched.
        """

    def close(self) -> None:
        """Release what the session holds."""


class RewindDiff(Struct, frozen=True, kw_only=True):
    """What a rewind does to one file."""

    path: str
    status: Literal["modified", "added", "deleted", "skipped"]
    diff: str = ""
    """A unified diff; empty for a binary or very large file."""
    reason: str = ""
    """Why the file is skipped."""


class RewindReport(Struct, frozen=True, kw_only=True):
    """What a rewind did, or would do in a dry run."""

    possible: bool
    reason: str = ""
    """Why it is not possible, or which files were not restored and why."""
    files: tuple[str, ...] = ()
    """The files that were, or would be, restored."""
    left_alone: tuple[str, ...] = ()
    skipped_links: int = 0
    """How many of `left_alone` were replaced by a symlink."""
    insertions: int = 0
    deletions: int = 0
    diffs: tuple[RewindDiff, ...] = ()
    """With `with_diffs`: every file, restored or not."""


class SearchArea(Struct, frozen=True, kw_only=True):
    """Where to search, and which files to leave out of the results."""

    path: str
    """Absolute path of a folder, or of a single file."""
    cwd: str
    """Results beneath it are relative to it, others absolute."""
    scope: Scope
    hides: Callable[[str], bool] = lambda path: False
    """Whether the file with this absolute path must not appear in the results."""
    withholds: Callable[[str], bool] = lambda path: False
    """Whether its content must not: a search by content leaves it out."""


class FileListing(Struct, frozen=True, kw_only=True):
    """The files that match a pattern, newest first."""

    paths: list[str] = []
    total: int = 0
    """How many files match, listed or not."""
    complete: bool = True
    """Whether the whole tree was searched."""
    stopped: bool = False


class ContentQuery(Struct, frozen=True, kw_only=True):
    """A search for content."""

    pattern: str
    mode: Literal["files", "count", "content"] = "files"
    globs: tuple[str, ...] = ()
    """The files to search; with `!` the files to leave out."""
    type: str | None = None
    before: int = 0
    after: int = 0
    ignore_case: bool = False
    only_matching: bool = False
    multiline: bool = False


class SearchMatches(Struct, frozen=True, kw_only=True):
    """The files with matches: newest first in the mode `files`, otherwise sorted by path."""

    files: list[tuple[str, list[bytes]]]
    """Paths with their output lines. None in the mode `files`; the count in `count`; in `content` the lines, with
    `12:` before a match, `12-` before a context line and `--` between groups."""
    complete: bool
    timed_out: bool
    slow: bool = False
    """Ripgrep was not available, so the slower Python search was used."""
    withheld: list[str] = []
    """What is withheld directly in the searched folder, whether or not it matches: a match would tell what is in it."""


class FileSearch(Protocol):
    """Finds files that are not ignored. Failures raise ToolError with a message for the model."""

    def files(
        self, pattern: str, area: SearchArea, *, most: int, ignored: bool, hidden: bool, stop: Callable[[], bool]
    ) -> FileListing:
        """Find files by path. Call it in a thread; it polls `stop`.

        `ignored` includes files that ignore files exclude, `hidden` those whose names start with a dot.
        """

    async def matches(
        self, query: ContentQuery, area: SearchArea, *, timeout_seconds: float, enough_lines: int
    ) -> SearchMatches:
        """Find files by content. If there is much output, the search may end after `enough_lines`."""


class Worktree(Struct, frozen=True, kw_only=True):
    """A git worktree of the user's checkout."""

    top: str
    """The root of the user's checkout."""
    path: str
    cwd: str
    """The working directory in it, which corresponds to the one in the user's checkout."""
    branch: str

    def original(self, path: str) -> str:
        """Map an absolute path in the worktree to the user's checkout. Other paths are returned unchanged."""
        inner = os.path.relpath(path, self.path)
        return path if inner == ".." or inner.startswith("../") else os.path.normpath(os.path.join(self.top, inner))

    def is_left_alone(self, path: str) -> bool:
        """Whether an absolute path is in the user's checkout but not in this worktree, which may be inside it."""
        is_ours = self.original(path) != path
        return not is_ours and (path == self.top or path.startswith(self.top.rstrip("/") + "/"))


class WorktreeChanges(Struct, frozen=True, kw_only=True):
    """What would be lost with a worktree."""

    files: int = 0
    """Files that are not committed."""
    commits: int = 0
    """Commits that no other branch has."""
    names: tuple[str, ...] = ()
    """Some of the files, and of the subjects of the commits."""

    def __bool__(self) -> bool:
        return bool(self.files or self.commits)


class Worktrees(Protocol):
    """Creates and removes worktrees for agents, and for sessions that ask for one.

    A worktree of an agent is removed if it has no changes. One of a session belongs to the user."""

    async def open(self, cwd: str, name: str) -> Worktree:
        """Create a worktree at the commit of `cwd`, or reopen the one of that name if it was kept. Raises ToolError."""

    async def leave(self, worktree: Worktree) -> bool:
        """Remove it if nothing was changed in it. Returns whether it was kept. Does not raise."""

    async def create(self, cwd: str, name: str) -> Worktree:
        """Create a worktree for the session. Raises ToolError, also if there is one with that name."""

    async def find(self, cwd: str, path: str) -> Worktree:
        """A worktree of the repository that `cwd` is in. Raises ToolError."""

    async def find_changes(self, worktree: Worktree) -> WorktreeChanges:
        """What would be lost with a worktree. Raises ToolError."""

    async def remove(self, worktree: Worktree) -> None:
        """Remove a worktree and its branch, with all changes. Raises ToolError."""

    async def sweep(self, cwd: str) -> None:
        """Do the same for the worktrees of engines that were killed. Does not raise."""
