"""What a reader meets in folders: the links there, where it follows them, and keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from parley.permissions.base import View
from parley.permissions.paths.filesystem import MOST_ENTRIES
from parley.permissions.paths.protected import KEYS
from parley.permissions.rules import Rules
from parley.permissions.shell import Line, Step
from parley.permissions.shell.denied.mentions import searches
from parley.permissions.shell.wrappers import unwrapped
from parley.protocol.base import Struct

HIDDEN = re.compile(r"--hidden|-[A-Za-z.]*[u.][A-Za-z.]*")
"""The flags with which `rg` looks at names with a dot in front."""


class Met(Struct, frozen=True):
    links: tuple[str, ...] = ()
    doubt: str = ""
    """Why there may be others."""


NONE_MET = Met()


def met(followed: Collection[tuple[str, bool]], rules: Rules, view: View) -> Met:
    """The links in some folders, at any depth where that is said. One that leads out is not entered."""
    if not followed:
        return NONE_MET
    links: dict[str, None] = {}
    waiting, known = list(followed), set[tuple[str | None, bool]]()
    while waiting:
        folder, deep = waiting.pop()
        here = (view.way(folder).real, deep)
        if here in known:
            continue
        known.add(here)
        names = view.entries(folder, MOST_ENTRIES)
        if names is None:
            return Met(tuple(links), f"There are too many files below {shown(folder)} to see where each link leads")
        for name, kind in names.items():
            path = f"{folder.rstrip('/')}/{name}"
            if kind == "link":
                links[path] = None
            if deep and (kind == "folder" or (kind == "link" and rules.is_at_hand(view.way(path), view))):
                waiting.append((path, deep))
    return Met(tuple(links))


def keys_below(line: Line, steps: Sequence[Step], view: View) -> list[str]:
    """The files with keys right in the folders that a line searches."""
    found: list[str] = []
    for command, step in zip(line.commands, steps, strict=True):
        if not step.names:
            continue
        inner = unwrapped(command)
        argv = inner.argv if inner else command.argv
        if searches(argv) and (argv[0] != "rg" or any(map(HIDDEN.fullmatch, argv[1:]))):
            paths = (f"{folder.rstrip('/')}/{name}" for folder in step.names for name in KEYS)
            found += filter(view.has, paths)
    return found


def shown(path: str) -> str:
    """A path that every reader of our lines takes: a name may hold bytes that are no character."""
    return path.encode(errors="surrogateescape").decode(errors="replace")
