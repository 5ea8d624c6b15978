"""The rules of ignore files, as git reads them.

    rules = IgnoreRules(["*.log", "!keep.log", "/build/"])
    rules.verdict("logs/a.log", "a.log", is_folder=False)    # True: ignored
    rules.verdict("keep.log", "keep.log", is_folder=False)   # False: included again
    rules.verdict("a.py", "a.py", is_folder=False)           # None: no rule matches

The last matching rule decides. Most rules are a file name, an extension or a path and are looked up in a dict; only the
others are tried one by one. Pure, and standard library only.

See also: `walk.py` decides which files contain rules and which takes precedence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from parley.workspace.globs import WILD, PathGlob, name_regex, parse_row

MOST_RULES = 5_000
LONGEST_RULE = 1_000
"""More and longer rules are ignored. They are not written by hand."""


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


NONE = (-1, False)


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
