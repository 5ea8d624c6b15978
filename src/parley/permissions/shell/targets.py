"""The files a proven line reads and writes, as absolute paths.

`cd` is followed: after `cd sub &&` names are below `sub`; where it is not sure that the `cd` took
place, they are below both folders (CVE-2026-25722). Patterns stand for the files that are there now.
A path keeps the `..` in it: where that leads is decided by the links before it.

A line may go where no one can tell, or name too much to look at: then there is a `doubt`, and what
is known of its files is not all of them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice

from parley.permissions.base import View
from parley.permissions.paths.filesystem import MOST_ENTRIES
from parley.permissions.shell import assignments
from parley.permissions.shell.ast import Line, Simple
from parley.permissions.shell.change_directory import IN_SHELL, MOVES, goal_of
from parley.permissions.shell.edits import EDITS, Touched
from parley.permissions.shell.expansion import Look, expand, is_pattern
from parley.permissions.shell.readonly.check import files_read, program_name
from parley.permissions.shell.readonly.following import followed, listed, lists
from parley.permissions.shell.wrappers import unwrapped
from parley.protocol.base import Struct

GLOB = re.compile(r"[*?\[]")
STATUS = "$?"
SURE_BEFORE = ("", ";", "\n", "&&")
"""Operators after which a command of a chain runs for sure, if the one after it does."""
MOST_FOLDERS = 32
MOST_NAMES = 1_000
MOST_EFFORT = 100_000
"""How much is spent on paths: their characters, and as many as `PER_PATH` for each."""
PER_PATH = 40
MOST_LISTED_BYTES = 64_000
TOO_MANY_FOLDERS = f"It changes the folder so often that its files may be in more than {MOST_FOLDERS} folders"
DEPENDS_ON_STATUS = "The name of a file in it depends on how another command ends"
TOO_MANY_NAMES = "It names too many files, or too long ones, to look at each"


class Step(Struct, frozen=True):
    """The files of one command of a line."""

    names: tuple[str, ...]
    moves: tuple[tuple[str, str], ...]
    copies_folders: bool
    folders: tuple[str, ...] = ()
    """Where it may run; nothing if that is not known."""


NOTHING = Step((), (), False)


class Targets(Struct, frozen=True):
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    unknown: bool = False
    """Some command may read or write more than this: it is not in our tables, or there is a doubt."""
    doubt: str = ""
    """Why not all files are known of the commands that are in our tables."""
    followed: tuple[tuple[str, bool], ...] = ()
    """Folders in which links are followed, and whether at any depth."""
    plain: frozenset[str] = frozenset()
    """Files that a pattern stands for and that are not links: each is in a folder among `reads`."""


class _Tracker:
    """Walks through a line with the folders that its commands may run in."""

    def __init__(self, cwd: str, view: View | None, text: str) -> None:
        self.folders: tuple[str, ...] = (cwd,)
        self.otherwise: tuple[str, ...] = ()
        """Where a command runs if the `cd` of the current `&&` chain failed."""
        self.reads: dict[str, None] = {}
        self.writes: dict[str, None] = {}
        self.followed: dict[tuple[str, bool], None] = {}
        self.plain: set[str] = set()
        self.unknown = False
        self.doubt = ""
        self.edits = False
        self.patterns = False
        self.steps: list[Step] = []
        self._effort_left = MOST_EFFORT
        self._view = view
        self._look: Look | None = None
        # A line that sets one of these decides itself where `cd` leads.
        self._home = view.home if view and "HOME" not in text and "CDPATH" not in text else None
        self._sets_cdpath = "CDPATH" in text

    def command(self, command: Simple) -> None:
        if command.before != "&&":
            self._stand(_union(self.folders, self.otherwise))
            self.otherwise = ()
        if command.globs:
            self.patterns = self.patterns or any(is_pattern(command.words[place]) for place in command.globs)
        steps = [self._touch(found, folders) for found, folders in self._found(command)]
        steps += [self._touch(_redirected(command), self.folders)] if command.redirects else []
        self.steps.append(_together(steps, self.folders))
        inner = unwrapped(command)
        if inner is not None and inner.argv[0] in MOVES:
            self._move(inner.argv, command, in_shell=IN_SHELL.issuperset(inner.wrappers))

    def _found(self, command: Simple) -> Iterator[tuple[Touched, tuple[str, ...]]]:
        """What the words of a command name, in which folders: a pattern stands for other files in each."""
        found = touched(command)
        if found is None:
            self.unknown = self.edits = True
            yield Touched(), self.folders
            return
        self.edits = self.edits or bool(found.writes)
        if not command.globs or self._view is None:
            self.unknown = self.unknown or bool(command.globs)
            self._follow(command, self.folders)
            self._list(command, self.folders)
            yield found, self.folders
            return
        entries = partial(self._view.entries, most=MOST_ENTRIES)
        look = self._look = self._look or Look(entries, self._view.has)
        for folder in self.folders:
            concrete = self._concrete(command, folder, look)
            if concrete is None:
                yield found, (folder,)
                continue
            names = touched(concrete)
            if names is None:
                self._doubt(f"{command.argv[0]} would take a file's name for a flag that is not known to only read")
                yield found, (folder,)
                continue
            if any(STATUS in name for name in (*names.reads, *names.writes)):
                self._doubt(DEPENDS_ON_STATUS)
            self._follow(concrete, (folder,))
            self._list(concrete, (folder,))
            yield names, (folder,)

    def _concrete(self, command: Simple, folder: str, look: Look) -> Simple | None:
        """The command with the names in place of its patterns. The folders that are listed for them are read."""
        argv: list[str] = []
        for place, word in enumerate(command.argv):
            if place not in command.globs:
                argv.append(word)
                continue
            if STATUS in word and is_pattern(command.words[place]):
                self._doubt(DEPENDS_ON_STATUS)
                return None
            found = expand(command.words[place], folder, look)
            if found is None or len(argv) + len(found.words) > MOST_NAMES:
                self._doubt(f"{word} stands for more files than are looked at before a command runs")
                return None
            self._add(self.reads, found.folders, (folder,))
            self.plain.update(map(_absolute, found.plain))
            argv += found.words
        return Simple(tuple(argv), tuple(argv), command.text)

    def _touch(self, found: Touched, folders: tuple[str, ...]) -> Step:
        reads = self._add(self.reads, found.reads, folders) if found.reads else []
        writes = self._add(self.writes, found.writes, folders) if found.writes else []
        if not reads and not writes:
            return NOTHING
        before = (part for name in (*found.reads, *found.writes) for part in _before_climbs(name))
        named = map(_folded, (*reads, *writes, *self._resolved(before, folders)))
        if not found.moves:
            return Step(tuple(dict.fromkeys(named)), (), found.copies_folders)
        pairs = [(self._resolved([old], folders), self._resolved([new], folders)) for old, new in found.moves]
        both = ((_folded(old), _folded(new)) for olds, news in pairs for old in olds for new in news)
        moves = tuple(islice(both, MOST_NAMES))
        if len(moves) == MOST_NAMES:
            self._doubt(TOO_MANY_NAMES)
        return Step(tuple(dict.fromkeys(named)), moves, found.copies_folders)

    def _follow(self, command: Simple, folders: tuple[str, ...]) -> None:
        for name, deep in followed(command):
            self.followed.update(((path, deep), None) for path in self._resolved([name], folders))

    def _list(self, command: Simple, folders: tuple[str, ...]) -> None:
        """What a list names is read as well. It is looked at before the line runs, so the line must not write it."""
        for path in self._resolved(lists(command), folders):
            data = self._view.read(path, MOST_LISTED_BYTES) if self._view else None
            names = listed(data) if data is not None else None
            if names is None or self.edits:
                self._doubt(f"{command.argv[0]} reads the files that a list names, and they are not known")
                return
            self._add(self.reads, names, folders)

    def _move(self, argv: tuple[str, ...], command: Simple, *, in_shell: bool) -> None:
        goal = goal_of(argv, self._home)
        if goal is None or (self._sets_cdpath and goal[:1] != "/"):
            self._doubt(f"It is not known which folder {' '.join(argv)} leads to")
            self._stand(())
            return
        self._add(self.reads, (goal,), self.folders)
        moved = tuple(dict.fromkeys(place for folder in self.folders for place in self._arrivals(folder, goal)))
        sure = in_shell and command.after == "&&" and command.before in SURE_BEFORE
        self.otherwise = _union(self.otherwise, self.folders)
        self._stand(moved if sure else _union(self.folders, moved))

    def _arrivals(self, folder: str, goal: str) -> Iterator[str]:
        """Where `cd` leads: bash folds the path as text, with `-P` it follows the links before `..`."""
        path = posixpath.join(folder, goal)
        yield _folded(path)
        if self._view is not None and ".." in goal:
            real = self._view.way(path).real
            if real is not None and real != self._view.way(_folded(path)).real:
                yield real

    def _stand(self, folders: tuple[str, ...]) -> None:
        if len(folders) > MOST_FOLDERS:
            self._doubt(TOO_MANY_FOLDERS)
            folders = ()
        self.folders = folders

    def _add(self, to: dict[str, None], names: Iterable[str], folders: tuple[str, ...]) -> list[str]:
        found = self._resolved(names, folders)
        to.update(dict.fromkeys(found if self._view else map(_folded, found)))
        if len(to) > MOST_NAMES:
            self._doubt(TOO_MANY_NAMES)
        return found

    def _resolved(self, names: Iterable[str], folders: tuple[str, ...]) -> list[str]:
        """The paths that names have in some folders, as far as the effort goes."""
        found: list[str] = []
        for name in names:
            for folder in ("/",) if name.startswith("/") else folders:
                self._effort_left -= len(folder) + len(name) + PER_PATH
                if self._effort_left < 0:
                    self._doubt(TOO_MANY_NAMES)
                    return found
                found.append(_absolute(posixpath.join(folder, name)))
        return found

    def _doubt(self, reason: str) -> None:
        self.unknown = True
        self.doubt = self.doubt or reason

    def targets(self) -> Targets:
        # Files that a line makes or moves are not there yet when its patterns are looked at.
        unknown = self.unknown or (self.patterns and self.edits)
        reads, writes, follows = tuple(self.reads), tuple(self.writes), tuple(self.followed)
        return Targets(reads, writes, unknown, self.doubt, follows, frozenset(self.plain))


def tracked(line: Line, cwd: str, view: View | None) -> tuple[Targets, tuple[Step, ...]]:
    """The files of a line, and the same command by command.

    Without a view paths are folded as text, a pattern stands for the folder that its files are in, and it is not
    known where a bare `cd` leads.
    """
    tracker = _Tracker(cwd, view, line.text)
    for command in line.commands:
        tracker.command(command)
    return tracker.targets(), tuple(tracker.steps)


def targets(line: Line, cwd: str, view: View | None = None) -> Targets:
    return tracked(line, cwd, view)[0]


def steps(line: Line, cwd: str, view: View | None = None) -> tuple[Step, ...]:
    return tracked(line, cwd, view)[1]


def touched(command: Simple) -> Touched | None:
    """What the words of a command name; None if it is neither in the closed list nor known to only read."""
    if not assignments.are_safe(command):
        return None
    files = files_read(command)
    if files is not None:
        return Touched(reads=tuple(map(_fixed, files)) if command.globs else files)
    edit = EDITS.get(program_name(command.argv[0])) if command.argv else None
    return None if edit is None else edit(command.argv)


def _together(found: list[Step], folders: tuple[str, ...]) -> Step:
    if len(found) == 1:
        return Step(found[0].names, found[0].moves, found[0].copies_folders, folders)
    names = tuple(dict.fromkeys(name for step in found for name in step.names))
    moves = tuple(move for step in found for move in step.moves)
    return Step(names, moves, any(step.copies_folders for step in found), folders)


def _redirected(command: Simple) -> Touched:
    reads = tuple(redirect.target for redirect in command.redirects if redirect.reads)
    return Touched(reads, tuple(redirect.target for redirect in command.redirects if redirect.writes))


def _before_climbs(name: str) -> Iterator[str]:
    """`a/b` for `a/b/../c`: a link there decides where the rest is."""
    parts = name.split("/") if ".." in name else []
    return ("/".join(parts[:place]) for place, part in enumerate(parts) if part == ".." and place)


def _fixed(name: str) -> str:
    """The folder that everything a pattern stands for is in."""
    return GLOB.split(name, maxsplit=1)[0].rpartition("/")[0] or "." if GLOB.search(name) else name


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _absolute(path: str) -> str:
    """Without `.` and doubled slashes, which mean nothing; `..` stays."""
    if ".." not in path:
        return _folded(path)
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def _folded(path: str) -> str:
    """`..` and `.` taken out, the way the kernel would without links."""
    return "/" + posixpath.normpath(path).lstrip("/")
