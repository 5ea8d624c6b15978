"""The rules of ignore files, as git reads them.

    rules = Rules(["*.log", "!keep.log", "/build/"])
    rules.verdict("logs/a.log", "a.log", is_folder=False)    # True: ignored
    rules.verdict("keep.log", "keep.log", is_folder=False)   # False: wanted all the same
    rules.verdict("a.py", "a.py", is_folder=False)           # None: not mentioned

The last rule that matches decides. Most rules name a file, an ending or a path, and are
found in a table; only the others are tried one by one. Pure, standard library only. Not
here: which files hold rules, and in which order they count (walk.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from parley.workspace.globs import WILD, PathGlob, name_regex, parse_row

MOST_RULES = 5_000
LONGEST_RULE = 1_000
"""Nobody writes more or longer ones by hand; they are passed over."""


class IgnoreRule(NamedTuple):
    pattern: str
    ignores: bool
    """False for a rule with `!`."""
    folders_only: bool
    anchored: bool
    """Counted from the folder of the file, as there is a slash in it."""


class IgnoreRules:
    """The rules of one file. Paths are relative to the folder it lies in."""

    def __init__(self, lines: Iterable[str]) -> None:
        rules = [rule for line in lines if (rule := parse_rule(line))][:MOST_RULES]
        numbered = list(enumerate(rules))
        self._for_folders = Table(numbered)
        self._for_files = Table([(number, rule) for number, rule in numbered if not rule.folders_only])
        self.empty = not rules

    def verdict(self, path: str, name: str, is_folder: bool) -> bool | None:
        """True if ignored, False if wanted by a rule with `!`, None if no rule mentions it."""
        return (self._for_folders if is_folder else self._for_files).verdict(path, name)


class Table:
    """Numbered rules, filed so that few of them have to be tried."""

    def __init__(self, rules: list[tuple[int, IgnoreRule]]) -> None:
        self._by_name: dict[str, tuple[int, bool]] = {}
        self._by_ending: dict[str, tuple[int, bool]] = {}
        self._by_path: dict[str, tuple[int, bool]] = {}
        self._names: list[tuple[int, bool, re.Pattern[str]]] = []
        self._paths: list[tuple[int, bool, PathGlob]] = []
        for number, rule in rules:
            self._file(number, rule)
        self._names.reverse()
        self._paths.reverse()
        every = "|".join(pattern.pattern for _, _, pattern in self._names)
        self._some_name = re.compile(every, re.DOTALL) if every else None

    def _file(self, number: int, rule: IgnoreRule) -> None:
        pattern, judged = rule.pattern, (number, rule.ignores)
        if rule.anchored:
            if WILD.search(pattern):
                self._paths.append((*judged, PathGlob([parse_row(pattern)])))
            else:
                self._by_path[pattern] = judged
        elif not WILD.search(pattern):
            self._by_name[pattern] = judged
        elif pattern.startswith("*.") and not WILD.search(pattern, 1):
            self._by_ending[pattern[1:]] = judged
        else:
            self._names.append((*judged, re.compile(name_regex(pattern), re.DOTALL)))

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
            found = next(((at, ignores) for at, ignores, fits in self._names if fits.fullmatch(name)), NONE)
            best = max(best, found)
        for at, ignores, glob in self._paths:
            if at < best[0]:
                break
            if glob.matches(path):
                best = (at, ignores)
                break
        return best[1] if best[0] >= 0 else None


NONE = (-1, False)


def parse_rule(line: str) -> IgnoreRule | None:
    """The rule of a line; None for a comment or an empty one."""
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
    # To git a brace is a character like others; to a Glob's row as well, so nothing is lost here.
    return IgnoreRule(plain(pattern), ignores, folders_only, anchored)


def plain(pattern: str) -> str:
    """Without the backslashes that protect nothing, and with at most two stars in a row."""
    return re.sub(r"\*{3,}", "**", re.sub(r"\\([^*?\[\\{])", r"\1", pattern))
