"""Detect commands that move a path and then use it under its new name, which could hide a symlink.

Symlinks are followed before a line runs. After `mv a b`, `b/x` is what `a/x` was before: a symlink in it leads on,
under a name where no symlink could be seen. And `cp -r a b` writes through the symlinks of an existing `b/a`.
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
    """The path that a file had before the line ran."""

    path: str
    moved_root: str
    """The former path of the file or folder above it that was moved."""


def find_moved_paths(steps: Sequence[Step]) -> list[MovedPath] | None:
    """The former paths of all files that one command moves and another one uses; None if there are too many."""
    moves = [(number, *move) for number, step in enumerate(steps) for move in step.moves]
    # What a command moves itself does not count for it.
    other_moves = [len(moves) - len(step.moves) for step in steps]
    found: dict[MovedPath, None] = {}
    pending = [(number, name) for number, count in enumerate(other_moves) if count for name in steps[number].names]
    comparisons_left = MAX_COMPARISONS
    while pending:
        number, name = pending.pop()
        comparisons_left -= other_moves[number]
        if comparisons_left < 0 or len(found) >= MAX_NAMES:
            return None
        for other, old, new in moves:
            inner = relative_parts(name, new) if other != number else None
            if inner is None:
                continue
            moved_path = MovedPath(os.path.normpath(os.path.join(old, *inner)), old)
            if moved_path not in found:
                found[moved_path] = None
                if other_moves[other]:
                    pending.append((other, moved_path.path))
    return list(found)


def traverses_moved_symlink(moved_paths: Sequence[MovedPath] | None, fs: Filesystem) -> bool:
    """Whether a moved symlink is part of a path: its new target is not known."""
    return moved_paths is None or any(_traverses_moved_symlink(moved_path, fs) for moved_path in moved_paths)


def _traverses_moved_symlink(moved_path: MovedPath, fs: Filesystem) -> bool:
    folder = os.path.dirname(moved_path.moved_root)
    above = fs.resolve(folder).real
    if above is None:
        return True
    return fs.resolve(moved_path.path).real != os.path.normpath(
        os.path.join(above, os.path.relpath(moved_path.path, folder))
    )


def merges_folders(steps: Sequence[Step], fs: Filesystem) -> bool:
    """Whether a folder is copied over one that may exist and contain symlinks."""
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
