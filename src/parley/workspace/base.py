"""The only door to the user's machine: what tools may ask of it.

`Files` reads and changes files, `Search` finds them, `Processes` (process/processes.py) runs commands. Nobody else
touches the user's files, so that every change can be rewound and every decision is
taken on the opened object, never on a name that may point elsewhere a moment later.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, Protocol

from parley.protocol.base import Struct

WORKTREES = (".claude", "worktrees")
"""Where in a checkout the worktrees of agents are."""


class Reach(Struct, frozen=True, kw_only=True):
    """How far a call may go. It is part of the permission that was given.

    Anywhere, or beneath these folders, or to exactly these files. What is opened is
    judged, not what it is called: a link that leads out is refused.
    """

    anywhere: bool = False
    folders: tuple[str, ...] = ()
    """Each is bound to the place it is when it is first used: it cannot become a link later."""
    files: tuple[str, ...] = ()
    """Real paths (`os.path.realpath`). A name with a link in it would be somebody else's a moment later."""
    call: str = ""
    """The call it was given to: what it changes is noted under this id."""


class Snapshot(Struct, frozen=True, kw_only=True):
    """A file as it was when it was opened."""

    path: str
    """The path of the opened object itself, links resolved."""
    data: bytes
    size: int
    """Of the whole file; `data` may be less of it if a limit was given."""
    mode: int
    mtime_ns: int
    inode: int


class Files(Protocol):
    """Reading and changing files. Paths are absolute. Every failure is a ToolError with words for the model."""

    watches_commands: bool
    """Whether what commands change can be rewound, too."""

    def read(self, path: str, reach: Reach, limit_bytes: int | None = None) -> Snapshot:
        """A regular file. Refuses folders (says so), devices, pipes and sockets; names near ones if it is missing.

        Without a limit, refuses what is too large to be held in memory.
        """

    def peek(self, path: str, reach: Reach, limit_bytes: int | None = None) -> Snapshot | None:
        """As `read`, or None if there is no such file."""

    def write(self, path: str, data: bytes, reach: Reach, *, replacing: Snapshot | None) -> Snapshot:
        """Replace a file, or create it (and its folders) if `replacing` is None.

        Atomic: at every moment the file is the old one or the new one. The mode is kept. Refused if the
        file is not the one in `replacing` any more: it must hold the same bytes, or have the same inode, time
        and size if `replacing` has only a part. What was there is checkpointed first.
        """

    def before_command(self) -> None:
        """A command is about to run, which may change any file. May take a while."""

    def after_command(self) -> None:
        """The command is over. May take a while; never fails."""

    def changed_by(self, call: str) -> list[str] | None:
        """The files that a call has changed, also if the process ended meanwhile; None if nobody knows."""

    def begin_message(self, user_message_id: str) -> None:
        """Changes from here on belong to this user message. Never fails."""

    def rewind(self, user_message_id: str, *, dry_run: bool) -> Rewound:
        """Bring the files back to what they were when that message came in. Never fails; the answer says why not.

        What somebody else wrote since our last change is left alone.
        """

    def close(self) -> None:
        """The session is over."""


class Rewound(Struct, frozen=True, kw_only=True):
    """What a rewind did, or would do."""

    possible: bool
    reason: str = ""
    """Why not, or what was left alone."""
    files: tuple[str, ...] = ()
    """Those that were, or would be, restored."""
    left_alone: tuple[str, ...] = ()
    skipped_links: int = 0
    """Of those left alone, how many because a link took their place."""
    insertions: int = 0
    deletions: int = 0


class Area(Struct, frozen=True, kw_only=True):
    """Where to search, and what of it may be told."""

    path: str
    """Absolute: a folder, or a file to be searched alone."""
    cwd: str
    """Paths beneath it are told relative to it, others in full."""
    reach: Reach
    hides: Callable[[str], bool] = lambda path: False
    """Whether nothing may be told of the file with this absolute path."""


class Listing(Struct, frozen=True, kw_only=True):
    """Files that fit a pattern, the newest first."""

    paths: list[str] = []
    total: int = 0
    """How many fit, told or not."""
    complete: bool = True
    """Whether all of the tree was seen."""
    stopped: bool = False


class Query(Struct, frozen=True, kw_only=True):
    """What to search files for."""

    pattern: str
    mode: Literal["files", "count", "content"] = "files"
    globs: tuple[str, ...] = ()
    """Of the files to search; with `!` of those to leave out."""
    type: str | None = None
    before: int = 0
    after: int = 0
    ignore_case: bool = False
    only_matching: bool = False
    multiline: bool = False


class Found(Struct, frozen=True, kw_only=True):
    """Files with matches: the newest first in the mode `files`, else in the order of their paths."""

    files: list[tuple[str, list[bytes]]]
    """With nothing more in the mode `files`, the number of lines in `count`, and in `content` the lines: `12:` before
    a match, `12-` before a line around it, `--` where lines are left out."""
    complete: bool
    timed_out: bool
    slow: bool = False
    """There was no ripgrep to do it."""


class Search(Protocol):
    """Finding files, but for those that ignore files name. Every failure is a ToolError with words for the model."""

    def files(
        self, pattern: str, area: Area, *, most: int, ignored: bool, hidden: bool, stop: Callable[[], bool]
    ) -> Listing:
        """By their paths. For a thread; `stop` is asked now and then.

        `ignored` finds what ignore files name as well, `hidden` what has a dot before its name.
        """

    async def matches(self, query: Query, area: Area, *, timeout_seconds: float, enough_lines: int) -> Found:
        """By what is in them. Lines behind `enough_lines` are not looked for if that costs much."""


class Worktree(Struct, frozen=True, kw_only=True):
    """A checkout of its own beside that of the person."""

    top: str
    """The person's checkout."""
    path: str
    cwd: str
    """Where work begins in it: the place that is called so in the person's checkout."""
    branch: str

    def original(self, path: str) -> str:
        """What an absolute path stands for in the person's checkout; a path that is elsewhere stays as it is."""
        inner = os.path.relpath(path, self.path)
        return path if inner == ".." or inner.startswith("../") else os.path.normpath(os.path.join(self.top, inner))

    def is_left_alone(self, path: str) -> bool:
        """Whether an absolute path is in the person's checkout, and not in ours, which may be in it."""
        is_ours = self.original(path) != path
        return not is_ours and (path == self.top or path.startswith(self.top.rstrip("/") + "/"))


class Worktrees(Protocol):
    """Checkouts for agents that work apart."""

    async def open(self, cwd: str, name: str) -> Worktree:
        """A new one, at the commit that `cwd` is at, or the one of that name if it was kept. Raises ToolError."""

    async def leave(self, worktree: Worktree) -> bool:
        """Take it away if nothing was changed in it; whether it was kept. Never fails."""

    async def sweep(self, cwd: str) -> None:
        """Do the same for those that engines left behind which were killed. Never fails."""
