"""Where a line goes by names that it gives itself.

Links are looked at before a line runs. Behind `mv a b`, `b/x` is what `a/x` was before: a link in it leads on, under a
name where no link could be seen. And `cp -r a b` writes through the links of a `b/a` that is there already.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from parley.permissions.base import Filesystem
from parley.permissions.paths.patterns import relative_parts
from parley.permissions.shell import Step
from parley.protocol.base import Struct

MAX_NAMES = 256
MAX_COMPARISONS = 10_000


class MovedPath(Struct, frozen=True):
    """What a file was called before the line ran."""

    path: str
    moved_root: str
    """The file or folder above it that was moved, under the name it had."""


def find_moved_paths(steps: Sequence[Step]) -> list[MovedPath] | None:
    """The former names of all files that a command finds where another one has put them; None if too many."""
    moves = [(number, *move) for number, step in enumerate(steps) for move in step.moves]
    # A command finds nothing where it has only put it itself.
    by_others = [len(moves) - len(step.moves) for step in steps]
    found: dict[MovedPath, None] = {}
    waiting = [(number, name) for number, count in enumerate(by_others) if count for name in steps[number].names]
    left = MAX_COMPARISONS
    while waiting:
        number, name = waiting.pop()
        left -= by_others[number]
        if left < 0 or len(found) >= MAX_NAMES:
            return None
        for other, old, new in moves:
            inner = relative_parts(name, new) if other != number else None
            if inner is None:
                continue
            moved_path = MovedPath(os.path.normpath(os.path.join(old, *inner)), old)
            if moved_path not in found:
                found[moved_path] = None
                if by_others[other]:
                    waiting.append((other, moved_path.path))
    return list(found)


def traverses_moved_symlink(known: Sequence[MovedPath] | None, fs: Filesystem) -> bool:
    """Whether a link was moved that is on the way: it may lead somewhere else now, and nobody has seen where."""
    return known is None or any(_traverses_moved_symlink(moved_path, fs) for moved_path in known)


def _traverses_moved_symlink(moved_path: MovedPath, fs: Filesystem) -> bool:
    folder = os.path.dirname(moved_path.moved_root)
    above = fs.resolve(folder).real
    if above is None:
        return True
    return fs.resolve(moved_path.path).real != os.path.normpath(
        os.path.join(above, os.path.relpath(moved_path.path, folder))
    )


def merges_folders(steps: Sequence[Step], fs: Filesystem) -> bool:
    """Whether a folder is copied over one that may be there, with links in it."""
    for number, step in enumerate(steps):
        if step.copies_folders:
            created = [new for other, one in enumerate(steps) if other != number for _, new in one.moves]
            targets = [new for old, new in step.moves if os.path.basename(new) == os.path.basename(old)]
            if any(
                fs.exists(target) or any(relative_parts(new, target) is not None for new in created)
                for target in targets
            ):
                return True
    return False
