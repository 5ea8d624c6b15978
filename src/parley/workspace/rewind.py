"""Plan a rewind: which files to restore to their state when a message arrived.

These functions are pure. They decide from the history and the current hashes; `local.py` restores the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import unified_diff
from typing import Literal

from parley.protocol.base import Struct
from parley.workspace.base import RewindDiff, RewindReport
from parley.workspace.checkpoints import ChangeRow, FileState, MessageRow

COUNTED_BYTES = 16 << 20
"""In larger files, all lines are counted as inserted and deleted."""
DIFF_BYTES = 256 << 10
"""Larger files have no diff, which can take quadratic time."""
Verdict = Literal["as it was", "restore", "leave alone"]


class RestoreGoal(Struct, frozen=True, kw_only=True):
    """A file that was changed since the message, and its state at that time."""

    path: str
    target: FileState | None
    """The state to restore; None if the file did not exist."""
    ours: str | None
    """The hash of our last version; None if we deleted it."""

    def verdict(self, current_sha256: str | None) -> Verdict:
        """What to do with the file in its current state. Changes by others are never overwritten."""
        if current_sha256 == (None if self.target is None else self.target.sha256):
            return "as it was"
        # If the file does not exist, nothing can be lost.
        if current_sha256 is None or current_sha256 == self.ours:
            return "restore"
        return "leave alone"


def find_goals(rows: Sequence[MessageRow | ChangeRow], message_id: str) -> list[RestoreGoal] | None:
    """The files changed since a message arrived, in the order of their first change; None if the message is unknown."""
    start = next((at for at, row in enumerate(rows) if isinstance(row, MessageRow) and row.id == message_id), None)
    if start is None:
        return None
    first: dict[str, ChangeRow] = {}
    last: dict[str, ChangeRow] = {}
    for row in rows[start:]:
        if isinstance(row, ChangeRow):
            first.setdefault(row.path, row)
            last[row.path] = row
    return [RestoreGoal(path=path, target=first[path].before, ours=last[path].after) for path in first]


class RewindTally:
    """Collects the outcome of a rewind, file by file."""

    def __init__(self, with_diffs: bool = False) -> None:
        self._with_diffs = with_diffs
        self._diffs: list[RewindDiff] = []
        self._restored: list[str] = []
        self._left: dict[str, str] = {}
        self._links = self._insertions = self._deletions = 0

    def restore(self, path: str, current: bytes | None, restored: bytes | None) -> None:
        insertions, deletions = line_counts(current, restored)
        self._restored.append(path)
        self._insertions += insertions
        self._deletions += deletions
        if self._with_diffs:
            self._diffs.append(make_diff(path, current, restored))

    def leave(self, path: str, reason: str, *, is_link: bool = False) -> None:
        if self._with_diffs:
            self._diffs.append(RewindDiff(path=path, status="skipped", reason=reason))
        self._left[path] = reason
        self._links += is_link

    def report(self) -> RewindReport:
        left = "; ".join(f"{path} ({reason})" for path, reason in self._left.items())
        return RewindReport(
            possible=bool(self._restored) or not self._left,
            reason=f"Not rewound: {left}" if left else "",
            files=tuple(self._restored),
            left_alone=tuple(self._left),
            skipped_links=self._links,
            insertions=self._insertions,
            deletions=self._deletions,
            diffs=tuple(self._diffs),
        )


def line_counts(current: bytes | None, restored: bytes | None) -> tuple[int, int]:
    """How many lines a restore inserts and deletes. A line that only moves is not counted."""
    old, new = current or b"", restored or b""
    if max(len(old), len(new)) > COUNTED_BYTES:
        return count_lines(new), count_lines(old)
    old_lines, new_lines = Counter(old.splitlines(True)), Counter(new.splitlines(True))
    return (new_lines - old_lines).total(), (old_lines - new_lines).total()


def make_diff(path: str, current: bytes | None, restored: bytes | None) -> RewindDiff:
    """What a restore does to a file."""
    status: Literal["modified", "added", "deleted"] = "modified"
    if current is None or restored is None:
        status = "added" if current is None else "deleted"
    old, new = current or b"", restored or b""
    if max(len(old), len(new)) > DIFF_BYTES or b"\0" in old or b"\0" in new:
        return RewindDiff(path=path, status=status)
    before, after = (data.decode(errors="replace").splitlines(keepends=True) for data in (old, new))
    lines = unified_diff(before, after, path, path)
    diff = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return RewindDiff(path=path, status=status, diff=diff)


def count_lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
