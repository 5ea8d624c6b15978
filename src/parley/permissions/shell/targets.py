"""The files a proven line reads and writes, as absolute paths.

`cd` is followed: behind `cd sub &&` names are below `sub`; where it is not sure that the `cd` took
place, they are below both folders (CVE-2026-25722). Paths are folded as text; links are the business
of whoever opens them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from parley.permissions.shell import assignments
from parley.permissions.shell.edits import EDITS, Touched
from parley.permissions.shell.readonly import MOVES, files_read, program_name
from parley.permissions.shell.simple import Line, Simple
from parley.permissions.shell.wrappers import Inner, unwrapped
from parley.protocol.base import Struct

GLOB = re.compile(r"[*?\[]")
PIPES = ("|", "|&", "&")


class Targets(Struct, frozen=True):
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    unknown: bool = False
    """Some command may read or write more than this: it is not in our tables, or it has a pattern of file names."""


class Step(Struct, frozen=True):
    """The files of one command of a line."""

    names: tuple[str, ...]
    moves: tuple[tuple[str, str], ...]
    copies_folders: bool


class _Tracker:
    """Walks through a line with the folders that its commands may run in."""

    def __init__(self, cwd: str) -> None:
        self.folders: tuple[str, ...] = (cwd,)
        self.otherwise: tuple[str, ...] = ()
        """Where a command runs if the `cd` of the current `&&` chain failed."""
        self.reads: dict[str, None] = {}
        self.writes: dict[str, None] = {}
        self.unknown = False
        self.steps: list[Step] = []

    def command(self, command: Simple) -> None:
        if command.before != "&&":
            self.folders, self.otherwise = _union(self.folders, self.otherwise), ()
        found = touched(command)
        self.unknown = self.unknown or found is None or bool(command.globs)
        for redirect in command.redirects:
            if redirect.writes:
                self._add(self.writes, (redirect.target,))
            if redirect.reads:
                self._add(self.reads, (redirect.target,))
        if found is not None:
            self._add(self.reads, found.reads)
            self._add(self.writes, found.writes)
        self.steps.append(self._step(found or Touched(), [redirect.target for redirect in command.redirects]))
        inner = unwrapped(command)
        if inner is not None and inner.argv[0] in MOVES:
            self._move(inner, command)

    def _step(self, found: Touched, redirected: Iterable[str]) -> Step:
        names = [part for name in (*found.reads, *found.writes, *redirected) for part in (name, *_before_climbs(name))]
        named = [place for name in names for place in self._resolved(name)]
        pairs = [(self._resolved(old), self._resolved(new)) for old, new in found.moves]
        moves = tuple((old, new) for olds, news in pairs for old in olds for new in news)
        return Step(tuple(dict.fromkeys(named)), moves, found.copies_folders)

    def _move(self, inner: Inner, command: Simple) -> None:
        goals = [word for word in inner.argv[1:] if word[:1] != "-"]
        if inner.argv[0] != "cd" or len(goals) != 1 or "-" in inner.argv:
            self.unknown = True
            self.folders = ()
            return
        moved = tuple(self._resolved(goals[0]))
        sure = command.after == "&&" and command.before not in PIPES
        self.otherwise = _union(self.otherwise, self.folders)
        self.folders = moved if sure else _union(self.folders, moved)

    def _add(self, to: dict[str, None], names: Iterable[str]) -> None:
        for name in names:
            found = self._resolved(name)
            self.unknown = self.unknown or not found
            to.update(dict.fromkeys(found))

    def _resolved(self, name: str) -> list[str]:
        if name.startswith("/"):
            return [_folded(name)]
        return [_folded(posixpath.join(folder, name)) for folder in self.folders]


def targets(line: Line, cwd: str) -> Targets:
    tracker = _Tracker(cwd)
    for command in line.commands:
        tracker.command(command)
    return Targets(tuple(tracker.reads), tuple(tracker.writes), tracker.unknown)


def steps(line: Line, cwd: str) -> tuple[Step, ...]:
    """The same, command by command."""
    tracker = _Tracker(cwd)
    for command in line.commands:
        tracker.command(command)
    return tuple(tracker.steps)


def touched(command: Simple) -> Touched | None:
    """What the words of a command name; None if it is neither in the closed list nor known to only read."""
    if not assignments.are_safe(command):
        return None
    files = files_read(command)
    if files is not None:
        return Touched(reads=tuple(map(_fixed, files)) if command.globs else files)
    edit = EDITS.get(program_name(command.argv[0])) if command.argv else None
    return None if edit is None else edit(command.argv)


def _before_climbs(name: str) -> list[str]:
    """`a/b` for `a/b/../c`: a link there decides where the rest is."""
    parts = name.split("/")
    return ["/".join(parts[:place]) for place, part in enumerate(parts) if part == ".." and place]


def _fixed(name: str) -> str:
    """The folder that everything a pattern stands for is in."""
    return GLOB.split(name, maxsplit=1)[0].rpartition("/")[0] or "." if GLOB.search(name) else name


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _folded(path: str) -> str:
    """`..` and `.` taken out, the way the kernel would without links."""
    return "/" + posixpath.normpath(path).lstrip("/")
