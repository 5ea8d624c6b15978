"""Walk a tree and yield the files that are not ignored.

The walk keeps folders open and opens each folder from its parent, never through a symlink. Replacing a folder cannot
lead it out of the tree.

    for file in Walk(descriptor, "/home/me/project", WalkFilter(PathGlob.of("**/*.py"))).files():
        file.path                # relative to the start of the walk

Ignore files apply as in ripgrep: `.rgignore` and `.ignore` everywhere, `.gitignore` and `.git/info/exclude` inside a
repository, including those above the tree. The folders of version control are skipped.

    rules = IgnoreRules(["*.log", "!keep.log", "/build/"])     # of one file; the last matching rule decides
    rules.verdict("logs/a.log", "a.log", is_folder=False)    # True: ignored
    rules.verdict("keep.log", "keep.log", is_folder=False)   # False: included again
    rules.verdict("a.py", "a.py", is_folder=False)           # None: no rule matches

Most rules are a file name, an extension or a path and are looked up in a dict; only the others are tried one by one.

Uses only the standard library (see python_grep.py).
"""

from __future__ import annotations

import heapq
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from parley.workspace.globs import WILD, GlobState, PathGlob, name_regex, parse_row

VERSION_CONTROL = frozenset({".git", ".svn", ".hg", ".bzr", ".jj", ".sl"})
IGNORE_SOURCES = (".rgignore", ".ignore", ".gitignore", ".git")
"""The names in a folder that determine what is ignored."""
DEEPEST = 200
"""The depth limit. One folder is kept open per level."""
RULES_BYTES = 1 << 20
STOP_INTERVAL = 4096
"""How many names are processed between two calls of `stop`."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MOST_RULES = 5_000
LONGEST_RULE = 1_000
"""More and longer rules are ignored. They are not written by hand."""
NONE = (-1, False)


class File(NamedTuple):
    """A matching file or symlink. Use it before the next step of the walk, which may close its folder."""

    path: str
    folder: int
    entry: os.DirEntry[str]


class Level(NamedTuple):
    """The rules of one ignore file, and how to make our paths relative to its folder."""

    rules: IgnoreRules
    prefix: str
    cut: int

    def verdict(self, path: str, name: str, is_folder: bool) -> bool | None:
        return self.rules.verdict(self.prefix + path[self.cut :], name, is_folder)


class Ignored(NamedTuple):
    """The rules that apply in a folder. The first level with a verdict decides."""

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
    """An open folder on the current path."""

    def __init__(self, descriptor: int, path: str, state: GlobState, ignored: Ignored) -> None:
        self.descriptor = descriptor
        self.path = path
        """Empty, or with a trailing slash."""
        self.state = state
        self.ignored = ignored
        self.below: list[tuple[str, GlobState]] | None = None
        """The folders still to enter; None before the folder was listed."""


class WalkFilter(NamedTuple):
    """Which files a walk yields."""

    glob: PathGlob | None = None
    ignored: bool = False
    """Include what ignore files exclude."""
    hidden: bool = True
    """Include names that start with a dot."""


ALL_FILES = WalkFilter()


class Walk:
    """One walk through a tree. `complete` tells afterwards whether all of it was visited."""

    def __init__(
        self,
        root: int,
        real: str,
        filter: WalkFilter = ALL_FILES,
        *,
        in_order: bool = False,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._root = root
        self._real = real
        self._glob = filter.glob or PathGlob.of("**")
        self._ignores = not filter.ignored
        self._hidden = filter.hidden
        self._in_order = in_order
        self._stop = stop
        self.complete = True
        self.stopped = False

    def files(self) -> Iterator[File]:
        outer = rules_above(self._real) if self._ignores else Ignored()
        stack = [Frame(os.dup(self._root), "", self._glob.start, outer)]
        try:
            while stack and not self.stopped:
                frame = stack[-1]
                if frame.below is None:
                    yield from self._list_folder(frame)
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
        name, state = frame.below.pop()
        if len(stack) >= DEEPEST:
            self.complete = False
            return
        try:
            descriptor = os.open(name, FOLDER, dir_fd=frame.descriptor)
        except OSError:
            self.complete = False  # not readable, or replaced in the meantime
            return
        stack.append(Frame(descriptor, f"{frame.path}{name}/", state, frame.ignored))

    def _list_folder(self, frame: Frame) -> Iterator[File]:
        """Yield the matching files of a folder, and queue its folders."""
        below: list[tuple[str, GlobState]] = []
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
            sources = {entry.name for entry in entries if entry.name in IGNORE_SOURCES}
            frame.ignored = with_rules(frame.ignored, frame.descriptor, sources, "", len(frame.path))
        for start in range(0, len(entries), STOP_INTERVAL):
            if self._stop():
                self.stopped, self.complete = True, False
                return
            yield from self._filter_entries(frame, entries[start : start + STOP_INTERVAL], below)
        below.reverse()  # `_descend` pops from the end

    def _filter_entries(
        self, frame: Frame, entries: list[os.DirEntry[str]], below: list[tuple[str, GlobState]]
    ) -> Iterator[File]:
        matches, hides, at = self._glob.names(frame.state), frame.ignored.hides, frame.path
        for entry in entries:
            name = entry.name
            if not self._hidden and name[0] == ".":
                continue
            if entry.is_dir(follow_symlinks=False):
                state = self._glob.enter(frame.state, name)
                if state and name not in VERSION_CONTROL and not hides(at + name, name, True):
                    below.append((name, state))
            elif matches(name) and name not in VERSION_CONTROL and not hides(at + name, name, False):
                yield File(at + name, frame.descriptor, entry)


def rules_above(real: str) -> Ignored:
    """The ignore rules of the folders above a tree."""
    ignored, pieces = Ignored(), real.strip("/").split("/")
    for count in range(len(pieces)):
        folder, prefix = "/" + "/".join(pieces[:count]), "/".join(pieces[count:]) + "/"
        try:
            descriptor = os.open(folder, FOLDER & ~os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            sources = [name for name in IGNORE_SOURCES if exists(name, descriptor)]
            ignored = with_rules(ignored, descriptor, sources, prefix, 0)
        finally:
            os.close(descriptor)
    return ignored


def exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def with_rules(outer: Ignored, folder: int, sources: Collection[str], prefix: str, cut: int) -> Ignored:
    """The rules of a folder, given those of its parent and the ignore sources that it contains."""
    if not sources:
        return outer
    plain, git, in_repository = outer

    def add(levels: tuple[Level, ...], name: str) -> tuple[Level, ...]:
        rules = read_rules(name, folder)
        return levels if rules is None or rules.empty else (Level(rules, prefix, cut), *levels)

    for name in (".ignore", ".rgignore"):
        if name in sources:
            plain = add(plain, name)
    if ".git" in sources:
        # The rules of an outer repository do not apply in a nested one.
        git, in_repository = add((), ".git/info/exclude"), True
    if ".gitignore" in sources and in_repository:
        git = add(git, ".gitignore")
    return Ignored(plain, git, in_repository)


def read_rules(name: str, folder: int) -> IgnoreRules | None:
    try:
        descriptor = os.open(name, FILE, dir_fd=folder)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return IgnoreRules(file.read(RULES_BYTES).decode("utf-8-sig", "replace").split("\n"))


def newest(walk: Walk, count: int, is_included: Callable[[str, bool], bool]) -> tuple[list[str], int]:
    """The newest files of a walk, newest first, and how many match in total.

    `is_included` gets each path, and whether it is a symlink.
    """
    total = 0

    def by_age() -> Iterator[tuple[int, str]]:
        nonlocal total
        for file in walk.files():
            is_link = file.entry.is_symlink()
            if not (is_link or file.entry.is_file(follow_symlinks=False)) or not is_included(file.path, is_link):
                continue
            try:
                status = file.entry.stat(follow_symlinks=False)
            except OSError:
                continue  # gone in the meantime
            total += 1
            yield -status.st_mtime_ns, file.path

    best = heapq.nsmallest(count, by_age())
    return [path for _, path in best], total


class IgnoreRule(NamedTuple):
    pattern: str
    ignores: bool
    """False for a rule with `!`."""
    folders_only: bool
    anchored: bool
    """Relative to the folder of the ignore file, because the pattern contains a slash."""


class IgnoreRules:
    """The rules of one file. Paths are relative to its folder."""

    def __init__(self, lines: Iterable[str]) -> None:
        rules = [rule for line in lines if (rule := parse_rule(line))][:MOST_RULES]
        numbered = list(enumerate(rules))
        self._for_folders = Table(numbered)
        self._for_files = Table([(number, rule) for number, rule in numbered if not rule.folders_only])
        self.empty = not rules

    def verdict(self, path: str, name: str, is_folder: bool) -> bool | None:
        """True if ignored, False if included by a rule with `!`, None if no rule matches."""
        return (self._for_folders if is_folder else self._for_files).verdict(path, name)


class Table:
    """Numbered rules, indexed so that few of them have to be tried."""

    def __init__(self, rules: list[tuple[int, IgnoreRule]]) -> None:
        self._by_name: dict[str, tuple[int, bool]] = {}
        self._by_ending: dict[str, tuple[int, bool]] = {}
        self._by_path: dict[str, tuple[int, bool]] = {}
        self._names: list[tuple[int, bool, re.Pattern[str]]] = []
        self._paths: list[tuple[int, bool, PathGlob]] = []
        for number, rule in rules:
            self._index(number, rule)
        self._names.reverse()
        self._paths.reverse()
        combined = "|".join(pattern.pattern for _, _, pattern in self._names)
        self._some_name = re.compile(combined, re.DOTALL) if combined else None

    def _index(self, number: int, rule: IgnoreRule) -> None:
        pattern, verdict = rule.pattern, (number, rule.ignores)
        if rule.anchored:
            if WILD.search(pattern):
                self._paths.append((*verdict, PathGlob([parse_row(pattern)])))
            else:
                self._by_path[pattern] = verdict
        elif not WILD.search(pattern):
            self._by_name[pattern] = verdict
        elif pattern.startswith("*.") and not WILD.search(pattern, 1):
            self._by_ending[pattern[1:]] = verdict
        else:
            self._names.append((*verdict, re.compile(name_regex(pattern), re.DOTALL)))

    def verdict(self, path: str, name: str) -> bool | None:
        best = self._by_name.get(name, NONE)
        if self._by_ending:
            dot = name.find(".")
            while dot >= 0:
                best = max(best, self._by_ending.get(name[dot:], NONE))
                dot = name.find(".", dot + 1)
        if self._by_path:
            best = max(best, self._by_path.get(path, NONE))
        if self._some_name is not None and self._some_name.fullmatch(name):
            found = next(((at, ignores) for at, ignores, pattern in self._names if pattern.fullmatch(name)), NONE)
            best = max(best, found)
        for at, ignores, glob in self._paths:
            if at < best[0]:
                break
            if glob.matches(path):
                best = (at, ignores)
                break
        return best[1] if best[0] >= 0 else None


def parse_rule(line: str) -> IgnoreRule | None:
    """Parse a line; None for a comment or an empty line."""
    line = line.rstrip("\r\n")
    if line.startswith("#") or len(line) > LONGEST_RULE:
        return None
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    ignores = not line.startswith("!")
    pattern = line if ignores else line[1:]
    if pattern.startswith(("\\#", "\\!")):
        pattern = pattern[1:]
    folders_only = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    anchored = "/" in pattern
    pattern = pattern.lstrip("/")
    if pattern.startswith("**/") and "/" not in pattern[3:]:
        pattern, anchored = pattern[3:], False
    if not pattern:
        return None
    # Braces are literal characters in git, and also in `parse_row`.
    return IgnoreRule(simplify(pattern), ignores, folders_only, anchored)


def simplify(pattern: str) -> str:
    """Remove backslashes before ordinary characters, and limit stars to two in a row."""
    return re.sub(r"\*{3,}", "**", re.sub(r"\\([^*?\[\\{])", r"\1", pattern))
