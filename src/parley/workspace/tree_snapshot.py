"""Snapshot the working tree around a command, so that changes made by commands can be rewound, too.

    tree.save()       # before: copies every file that has no up-to-date copy to the history
    ...               # a command runs
    tree.compare()    # after: records each difference as a change

Ignored files, the folders of version control, symlinks and large files are not covered. The snapshot is optional,
because the first one copies the whole tree.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace import safe_open
from parley.workspace.checkpoints import ChangeRow, CheckpointStore, FileState, hash_file
from parley.workspace.search.walk import Walk

MAX_FILE_BYTES = 10 << 20
"""Larger files are not covered."""
MAX_TOTAL_BYTES = 1 << 30
"""The limit for all copies of a session."""
IGNORE_FILES = frozenset({".gitignore", ".ignore", ".rgignore"})
CLOCK_SLACK_NS = 20_000_000
"""The file system's clock may lag by a tick, and two changes in one tick have the same time."""

Mark = tuple[int, int, int, int]
"""Inode, mtime, ctime (both in ns) and size."""


class KnownFile(Struct, frozen=True):
    mark: Mark
    state: FileState | None
    """None for a file that is not covered."""


class TreeSnapshot:
    """The state of all covered files of a folder. `skipped` folders are left out."""

    def __init__(self, root: str, checkpoints: CheckpointStore, skipped: Collection[str]) -> None:
        self._root = os.path.realpath(root)
        self._checkpoints = checkpoints
        self._skipped = tuple(f"{os.path.realpath(folder)}/" for folder in skipped)
        self._known: dict[str, KnownFile] = {}
        self._copied_bytes = 0
        self._started_ns = self._started_at = 0
        self._in_repository = False

    def save(self) -> None:
        """Make sure that the history has a copy of every covered file. Raises OSError if a copy cannot be written."""
        last_ns, self._started_ns = self._started_ns, time.time_ns() - CLOCK_SLACK_NS
        self._started_at = len(self._checkpoints.rows())
        self._in_repository = os.path.lexists(f"{self._root}/.git")
        seen: dict[str, KnownFile] = {}
        for path, mark in self._marks():
            known = self._known.get(path)
            same = known is not None and known.mark == mark and mark[2] < last_ns
            seen[path] = known if known is not None and same else KnownFile(mark, self._copy(path, mark))
        self._known = seen

    def compare(self) -> None:
        """Record every change since `save`. Raises OSError."""
        now = dict(self._marks())
        touched = [path for path, mark in now.items() if self._may_differ(path, mark)]
        gone = [path for path in self._known if path not in now]
        # If ignore rules changed, old files may appear. They must not be recorded as new.
        same_rules = self._in_repository == os.path.lexists(f"{self._root}/.git") and not any(
            os.path.basename(path) in IGNORE_FILES for path in (*touched, *gone)
        )
        changes = [self._change(path, now.get(path), same_rules) for path in (*touched, *gone)]
        recorded = {
            (row.path, row.after) for row in self._checkpoints.rows()[self._started_at :] if isinstance(row, ChangeRow)
        }
        new = [change for change in changes if change is not None and (change.path, change.after) not in recorded]
        if new:
            self._checkpoints.add_done(new)

    def _may_differ(self, path: str, mark: Mark) -> bool:
        known = self._known.get(path)
        return known is None or known.mark != mark or mark[2] >= self._started_ns

    def _change(self, path: str, mark: Mark | None, same_rules: bool) -> ChangeRow | None:
        """The change of a file; None if it did not change or the change cannot be rewound."""
        known = self._known.get(path)
        if known is None and (mark is None or not same_rules or mark[2] < self._started_ns):
            return None
        if known is not None and known.state is None:
            return None
        before = None if known is None else known.state
        try:
            after = hash_at(path)
        except (OSError, safe_open.Swapped):
            return None
        if after == (None if before is None else before.sha256):
            return None
        return ChangeRow(path=path, before=before, after=after, temp_name="")

    def _marks(self) -> Iterator[tuple[str, Mark]]:
        """Yield every covered file."""
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

    def _copy(self, path: str, mark: Mark) -> FileState | None:
        """Copy a file's content. Returns None if it is too large, unreadable or gone."""
        size = mark[3]
        if size > MAX_FILE_BYTES or self._copied_bytes + size > MAX_TOTAL_BYTES:
            return None
        try:
            with safe_open.at(path) as location:
                opened = location.open()
        except (OSError, safe_open.Swapped, ToolError):
            return None
        try:
            state = self._checkpoints.store(opened)
        finally:
            os.close(opened)
        self._copied_bytes += size
        return state


def hash_at(path: str) -> str | None:
    """The hash of the file with exactly this real path; None if it does not exist. Raises OSError and Swapped."""
    try:
        with safe_open.at(path) as location:
            opened = os.open(location.name, safe_open.FILE, dir_fd=location.folder)
    except FileNotFoundError:
        return None
    try:
        return hash_file(opened)
    finally:
        os.close(opened)
