"""What to restore so that the files are as they were when a message came in.

Pure: it looks at the history and at what files hold now, and decides; local.py does it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from parley.protocol.base import Struct
from parley.workspace.base import Rewound
from parley.workspace.checkpoint.store import Change, Message, State

COUNTED_BYTES = 16 << 20
"""Above this the lines of a file are counted as all new and all gone."""

Verdict = Literal["as it was", "restore", "leave alone"]


class Goal(Struct, frozen=True, kw_only=True):
    """One file that was changed since."""

    path: str
    target: State | None
    """What it was; None: nothing was there."""
    ours: str | None
    """The hash of what we left it as; None: we took it away."""

    def verdict(self, current_sha256: str | None) -> Verdict:
        """What to do with the file as it is now. What somebody else wrote since is never overwritten."""
        if current_sha256 == (None if self.target is None else self.target.sha256):
            return "as it was"
        # Where nothing is, nothing can be lost.
        if current_sha256 is None or current_sha256 == self.ours:
            return "restore"
        return "leave alone"


def goals(rows: Sequence[Message | Change], message_id: str) -> list[Goal] | None:
    """The files that were changed since a message came in, in the order of their first change; None if unknown."""
    begun = next((at for at, row in enumerate(rows) if isinstance(row, Message) and row.id == message_id), None)
    if begun is None:
        return None
    first: dict[str, Change] = {}
    last: dict[str, Change] = {}
    for row in rows[begun:]:
        if isinstance(row, Change):
            first.setdefault(row.path, row)
            last[row.path] = row
    return [Goal(path=path, target=first[path].before, ours=last[path].after) for path in first]


class Tally:
    """What came of a rewind, file by file."""

    def __init__(self) -> None:
        self._restored: list[str] = []
        self._left: dict[str, str] = {}
        self._links = self._insertions = self._deletions = 0

    def restore(self, path: str, now: bytes | None, then: bytes | None) -> None:
        insertions, deletions = line_counts(now, then)
        self._restored.append(path)
        self._insertions += insertions
        self._deletions += deletions

    def leave(self, path: str, why: str, *, link: bool = False) -> None:
        self._left[path] = why
        self._links += link

    def rewound(self) -> Rewound:
        left = "; ".join(f"{path} ({why})" for path, why in self._left.items())
        return Rewound(
            possible=bool(self._restored) or not self._left,
            reason=f"Left alone: {left}" if left else "",
            files=tuple(self._restored),
            left_alone=tuple(self._left),
            skipped_links=self._links,
            insertions=self._insertions,
            deletions=self._deletions,
        )


def line_counts(now: bytes | None, then: bytes | None) -> tuple[int, int]:
    """How many lines going back puts in and takes out. A line that only moves counts for neither."""
    old, new = now or b"", then or b""
    if max(len(old), len(new)) > COUNTED_BYTES:
        return lines(new), lines(old)
    gone, come = Counter(old.splitlines(True)), Counter(new.splitlines(True))
    return (come - gone).total(), (gone - come).total()


def lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
