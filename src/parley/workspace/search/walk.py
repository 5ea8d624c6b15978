"""Going through a tree: which files are there, but for those that ignore files name.

The walk holds on to opened folders and opens each next one from the one above it,
never through a link: nobody can lead it out of the tree by swapping a folder.

    for file in Walk(descriptor, "/home/me/project", glob=Glob.of("**/*.py")).files():
        file.path                # relative to where the walk began

Ignore files count as for ripgrep: `.rgignore` and `.ignore` everywhere, `.gitignore` and
`.git/info/exclude` inside a repository, those above the tree included. The folders that
version control keeps for itself are passed over. Standard library only (see python_grep.py).
"""

from __future__ import annotations

import heapq
import os
import stat
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from parley.workspace.globs import Glob, Places
from parley.workspace.search.gitignore import Rules

VERSION_CONTROL = frozenset({".git", ".svn", ".hg", ".bzr", ".jj", ".sl"})
TELLING = (".rgignore", ".ignore", ".gitignore", ".git")
"""What a folder may hold that decides about others."""
DEEPEST = 200
"""A folder is held open for every level."""
RULES_BYTES = 1 << 20
PATIENCE = 4096
"""How many names are looked at before somebody may stop us again."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class File(NamedTuple):
    """A file or a link that matches. Use it before the walk goes on: then its folder is closed."""

    path: str
    folder: int
    entry: os.DirEntry[str]


class Level(NamedTuple):
    """The rules of one file, and how a path of ours is spelled from where it lies."""

    rules: Rules
    lead: str
    cut: int

    def verdict(self, path: str, name: str, is_folder: bool) -> bool | None:
        return self.rules.verdict(self.lead + path[self.cut :], name, is_folder)


class Ignored(NamedTuple):
    """What counts in a folder. The first level with a verdict decides."""

    plain: tuple[Level, ...] = ()
    git: tuple[Level, ...] = ()
    in_repository: bool = False

    def hides(self, path: str, name: str, is_folder: bool) -> bool:
        for level in self.plain + self.git:
            verdict = level.verdict(path, name, is_folder)
            if verdict is not None:
                return verdict
        return False


class Frame:
    """A folder on the way down."""

    def __init__(self, descriptor: int, path: str, places: Places, ignored: Ignored) -> None:
        self.descriptor = descriptor
        self.path = path
        """Empty, or with a slash at its end."""
        self.places = places
        self.ignored = ignored
        self.below: list[tuple[str, Places]] | None = None
        """The folders still to enter; None before the listing."""


class Walk:
    """One way through a tree. `complete` tells afterwards whether all of it was seen."""

    def __init__(
        self,
        root: int,
        real: str,
        *,
        glob: Glob | None = None,
        ignores: bool = True,
        hidden: bool = True,
        in_order: bool = False,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._root = root
        self._real = real
        self._glob = glob or Glob.of("**")
        self._ignores = ignores
        self._hidden = hidden
        self._in_order = in_order
        self._stop = stop
        self.complete = True
        self.stopped = False

    def files(self) -> Iterator[File]:
        outer = above(self._real) if self._ignores else Ignored()
        stack = [Frame(os.dup(self._root), "", self._glob.start, outer)]
        try:
            while stack and not self.stopped:
                frame = stack[-1]
                if frame.below is None:
                    yield from self._listing(frame)
                elif frame.below:
                    self._descend(stack)
                else:
                    os.close(stack.pop().descriptor)
        finally:
            for frame in stack:
                os.close(frame.descriptor)

    def _descend(self, stack: list[Frame]) -> None:
        frame = stack[-1]
        assert frame.below
        name, places = frame.below.pop()
        if len(stack) >= DEEPEST:
            self.complete = False
            return
        try:
            descriptor = os.open(name, FOLDER, dir_fd=frame.descriptor)
        except OSError:
            self.complete = False  # not ours to read, or swapped for something else
            return
        stack.append(Frame(descriptor, f"{frame.path}{name}/", places, frame.ignored))

    def _listing(self, frame: Frame) -> Iterator[File]:
        """The files of a folder that match; its folders are kept for later."""
        below: list[tuple[str, Places]] = []
        frame.below = below
        try:
            with os.scandir(frame.descriptor) as listing:
                entries = list(listing)
        except OSError:
            self.complete = False
            return
        if self._in_order:
            entries.sort(key=lambda entry: entry.name)
        if self._ignores:
            telling = {entry.name for entry in entries if entry.name in TELLING}
            frame.ignored = with_rules(frame.ignored, frame.descriptor, telling, "", len(frame.path))
        for start in range(0, len(entries), PATIENCE):
            if self._stop():
                self.stopped, self.complete = True, False
                return
            yield from self._sifted(frame, entries[start : start + PATIENCE], below)
        below.reverse()  # they are taken from the end

    def _sifted(self, frame: Frame, entries: list[os.DirEntry[str]], below: list[tuple[str, Places]]) -> Iterator[File]:
        matches, hides, at = self._glob.names(frame.places), frame.ignored.hides, frame.path
        for entry in entries:
            name = entry.name
            if not self._hidden and name[0] == ".":
                continue
            if entry.is_dir(follow_symlinks=False):
                places = self._glob.enter(frame.places, name)
                if places and name not in VERSION_CONTROL and not hides(at + name, name, True):
                    below.append((name, places))
            elif matches(name) and name not in VERSION_CONTROL and not hides(at + name, name, False):
                yield File(at + name, frame.descriptor, entry)


def above(real: str) -> Ignored:
    """What the folders above a tree say about it."""
    ignored, pieces = Ignored(), real.strip("/").split("/")
    for count in range(len(pieces)):
        folder, lead = "/" + "/".join(pieces[:count]), "/".join(pieces[count:]) + "/"
        try:
            descriptor = os.open(folder, FOLDER & ~os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            telling = [name for name in TELLING if exists(name, descriptor)]
            ignored = with_rules(ignored, descriptor, telling, lead, 0)
        finally:
            os.close(descriptor)
    return ignored


def exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def with_rules(outer: Ignored, folder: int, telling: Collection[str], lead: str, cut: int) -> Ignored:
    """What counts in a folder, given what counts above it and which telling names it holds."""
    if not telling:
        return outer
    plain, git, in_repository = outer

    def add(levels: tuple[Level, ...], name: str) -> tuple[Level, ...]:
        rules = read_rules(name, folder)
        return levels if rules is None or rules.empty else (Level(rules, lead, cut), *levels)

    for name in (".ignore", ".rgignore"):
        if name in telling:
            plain = add(plain, name)
    if ".git" in telling:
        # A repository knows nothing of one around it.
        git, in_repository = add((), ".git/info/exclude"), True
    if ".gitignore" in telling and in_repository:
        git = add(git, ".gitignore")
    return Ignored(plain, git, in_repository)


def read_rules(name: str, folder: int) -> Rules | None:
    try:
        descriptor = os.open(name, FILE, dir_fd=folder)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return Rules(file.read(RULES_BYTES).decode("utf-8-sig", "replace").split("\n"))


class Newest(NamedTuple):
    """The files that changed last."""

    paths: list[str]
    total: int
    """How many match altogether."""


def newest(walk: Walk, count: int, wanted: Callable[[str, bool], bool]) -> Newest:
    """The newest files of a walk, newest first. `wanted` is asked about each: its path, and whether it is a link."""
    total = 0

    def aged() -> Iterator[tuple[int, str]]:
        nonlocal total
        for file in walk.files():
            is_link = file.entry.is_symlink()
            if not (is_link or file.entry.is_file(follow_symlinks=False)) or not wanted(file.path, is_link):
                continue
            try:
                status = file.entry.stat(follow_symlinks=False)
            except OSError:
                continue  # gone in the meantime
            total += 1
            yield -status.st_mtime_ns, file.path

    best = heapq.nsmallest(count, aged())
    return Newest([path for _, path in best], total)
