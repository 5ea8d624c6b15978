"""Where a line goes by names that it gives itself.

Links are looked at before a line runs. Behind `mv a b`, `b/x` is what `a/x` was before: a link in it leads on, under a
name where no link could be seen. And `cp -r a b` writes through the links of a `b/a` that is there already.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from parley.permissions.base import View
from parley.permissions.paths.patterns import beneath
from parley.permissions.shell import Step
from parley.protocol.base import Struct

MOST_NAMES = 256
MOST_COMPARISONS = 10_000


class Former(Struct, frozen=True):
    """What a file was called before the line ran."""

    path: str
    moved: str
    """The file or folder above it that was moved, under the name it had."""


def formers(steps: Sequence[Step]) -> list[Former] | None:
    """The former names of all files that a command finds where another one has put them; None if too many."""
    moves = [(number, *move) for number, step in enumerate(steps) for move in step.moves]
    # A command finds nothing where it has only put it itself.
    by_others = [len(moves) - len(step.moves) for step in steps]
    found: dict[Former, None] = {}
    waiting = [(number, name) for number, count in enumerate(by_others) if count for name in steps[number].names]
    left = MOST_COMPARISONS
    while waiting:
        number, name = waiting.pop()
        left -= by_others[number]
        if left < 0 or len(found) >= MOST_NAMES:
            return None
        for other, old, new in moves:
            inner = beneath(name, new) if other != number else None
            if inner is None:
                continue
            former = Former(os.path.normpath(os.path.join(old, *inner)), old)
            if former not in found:
                found[former] = None
                if by_others[other]:
                    waiting.append((other, former.path))
    return list(found)


def go_by_a_link(known: Sequence[Former] | None, view: View) -> bool:
    """Whether a link was moved that is on the way: it may lead somewhere else now, and nobody has seen where."""
    return known is None or any(_goes_by_a_link(former, view) for former in known)


def _goes_by_a_link(former: Former, view: View) -> bool:
    folder = os.path.dirname(former.moved)
    above = view.way(folder).real
    if above is None:
        return True
    return view.way(former.path).real != os.path.normpath(os.path.join(above, os.path.relpath(former.path, folder)))


def merges(steps: Sequence[Step], view: View) -> bool:
    """Whether a folder is copied over one that may be there, with links in it."""
    for number, step in enumerate(steps):
        if step.copies_folders:
            made = [new for other, one in enumerate(steps) if other != number for _, new in one.moves]
            places = [new for old, new in step.moves if os.path.basename(new) == os.path.basename(old)]
            if any(view.has(place) or any(beneath(new, place) is not None for new in made) for place in places):
                return True
    return False
