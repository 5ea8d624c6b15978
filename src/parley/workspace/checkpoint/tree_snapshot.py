"""The working tree before and after a command, so that what commands change can be rewound too.

    tree.keep()       before: every file that is not kept as it is gets a copy in the history
    ...               a command runs
    tree.compare()    after: what differs is a change like any other

What ignore files name, what version control keeps for itself, links, and large files are not
covered: those come back by other means, or not at all. Optional, since the first copy costs
as much as the tree is large.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace import safe_open
from parley.workspace.checkpoint.store import Change, Checkpoints, State, digest
from parley.workspace.search.walk import Walk

KEPT_FILE_BYTES = 10 << 20
"""No larger file is covered."""
KEPT_BYTES = 1 << 30
"""Of all copies of a session."""
RULES = frozenset({".gitignore", ".ignore", ".rgignore"})
CLOCK_SLACK_NS = 20_000_000
"""A file system's clock may be a tick behind, and two changes in one tick have the same time."""

Mark = tuple[int, int, int, int]
"""Inode, time of change, time of change of the inode, size."""


class Known(Struct, frozen=True):
    mark: Mark
    state: State | None
    """None for a file that is not covered."""


class Tree:
    def __init__(self, root: str, checkpoints: Checkpoints, skipped: Collection[str]) -> None:
        self._root = os.path.realpath(root)
        self._checkpoints = checkpoints
        self._skipped = tuple(f"{os.path.realpath(folder)}/" for folder in skipped)
        self._known: dict[str, Known] = {}
        self._kept_bytes = 0
        self._begun_ns = self._begun_at = 0
        self._in_repository = False

    def keep(self) -> None:
        """See to it that every file can be had back as it is now. Raises OSError if a copy cannot be kept."""
        last_ns, self._begun_ns = self._begun_ns, time.time_ns() - CLOCK_SLACK_NS
        self._begun_at = len(self._checkpoints.rows())
        self._in_repository = os.path.lexists(f"{self._root}/.git")
        seen: dict[str, Known] = {}
        for path, mark in self._marks():
            known = self._known.get(path)
            same = known is not None and known.mark == mark and mark[2] < last_ns
            seen[path] = known if known is not None and same else Known(mark, self._copy(path, mark))
        self._known = seen

    def compare(self) -> None:
        """Note every change since `keep`. Raises OSError."""
        now = dict(self._marks())
        touched = [path for path, mark in now.items() if self._may_differ(path, mark)]
        gone = [path for path in self._known if path not in now]
        # With other rules, old files come to light: they must not pass for new ones.
        same_rules = self._in_repository == os.path.lexists(f"{self._root}/.git") and not any(
            os.path.basename(path) in RULES for path in (*touched, *gone)
        )
        changes = [self._change(path, now.get(path), same_rules) for path in (*touched, *gone)]
        noted = {(row.path, row.after) for row in self._checkpoints.rows()[self._begun_at :] if isinstance(row, Change)}
        new = [change for change in changes if change is not None and (change.path, change.after) not in noted]
        if new:
            self._checkpoints.add_done(new)

    def _may_differ(self, path: str, mark: Mark) -> bool:
        known = self._known.get(path)
        return known is None or known.mark != mark or mark[2] >= self._begun_ns

    def _change(self, path: str, mark: Mark | None, same_rules: bool) -> Change | None:
        """What became of a file; None if nothing did, or nothing that could be taken back."""
        known = self._known.get(path)
        if known is None and (mark is None or not same_rules or mark[2] < self._begun_ns):
            return None
        if known is not None and known.state is None:
            return None
        before = None if known is None else known.state
        try:
            after = current_hash(path)
        except (OSError, safe_open.Swapped):
            return None
        if after == (None if before is None else before.sha256):
            return None
        return Change(path=path, before=before, after=after, beside="")

    def _marks(self) -> Iterator[tuple[str, Mark]]:
        """Every file that is covered."""
        folder = safe_open.open_root(self._root)
        try:
            top = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            for file in Walk(top, self._root).files():
                path = f"{self._root}/{file.path}"
                if not file.entry.is_file(follow_symlinks=False) or path.startswith(self._skipped):
                    continue
                with suppress(OSError, UnicodeEncodeError):
                    path.encode()
                    status = file.entry.stat(follow_symlinks=False)
                    yield path, (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        finally:
            os.close(top)

    def _copy(self, path: str, mark: Mark) -> State | None:
        """Keep a file's content. None if it is too large, may not be read, or is not there any more."""
        size = mark[3]
        if size > KEPT_FILE_BYTES or self._kept_bytes + size > KEPT_BYTES:
            return None
        try:
            with safe_open.at(path) as place:
                opened = place.open()
        except (OSError, safe_open.Swapped, ToolError):
            return None
        try:
            state = self._checkpoints.store(opened)
        finally:
            os.close(opened)
        self._kept_bytes += size
        return state


def current_hash(path: str) -> str | None:
    """Of what has exactly this real path; None if nothing has. Raises OSError and Swapped."""
    try:
        with safe_open.at(path) as place:
            opened = os.open(place.name, safe_open.FILE, dir_fd=place.folder)
    except FileNotFoundError:
        return None
    try:
        return digest(opened)
    finally:
        os.close(opened)
