"""The files that a text names, proven or not: only for deny rules, ask rules and hazards.

`find_targets` knows the files of proven lines. Here every command that the deny search finds counts: after `sudo`, in
`bash -c`, in loops and substitutions. For a command that is in no table, every argument may be a file. A file too many
costs a question; a missed file would be read.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from parley.permissions.patterns import may_be_path
from parley.permissions.shell.change_directory import CD_COMMANDS
from parley.permissions.shell.denied.search import ASSIGNMENT, survey_command
from parley.permissions.shell.readonly.check import reads_whole_folders
from parley.permissions.shell.strict_parser import DEV_NULL, CommandLine, SimpleCommand
from parley.permissions.shell.targets import find_file_operands
from parley.permissions.shell.treesitter import CommandWords
from parley.protocol.base import Struct

GIT_VALUES = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"})
MAX_FOLDERS = 16
MAX_NAMES = 400
WILD = re.compile(r"[*?\[{]")
DUPLICATE = re.compile(r"[<>]&(?:\d+-?|-)")
QUOTES = re.compile(r"[\'\"\\]")
HOME = re.compile(r"^~(?=/|$)|\$HOME\b|\$\{HOME\}")
TOP = re.compile(r"\$\(git rev-parse --show-toplevel\)|`git rev-parse --show-toplevel`")
HERE = re.compile(r"\$PWD\b|\$\{PWD\}|\$\(pwd\)|`pwd`")
QUOTED = re.compile(r"['\"]([^'\"]+)['\"]")
NAME = re.compile(r"[\w.~/-]+")
SEPARATORS = re.compile(r"[=:@,;<]")
"""Separators before or after a file name in a word: `if=x`, `HEAD:x`, `@x`, `f=<x;type=text/plain`."""


class Mentions(Struct, frozen=True):
    """The files that a text names, as absolute paths."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """Arguments of commands that are in no table: each may be a file that is read."""
    patterns: tuple[str, ...] = ()
    """Globs and braces, as written."""
    reads_whole_folders: bool = False
    """A command reads whole folders."""
    too_many: bool = False
    """There are too many files to check."""
    has_unknown_folder: bool = False
    """A command changes to an unknown folder."""


class BaseFolders:
    """The folders in which the relative paths of a text may start."""

    def __init__(self, cwd: str, home: str) -> None:
        self.home = home
        self.folders = [cwd]
        self.has_unknown_folder = False
        """Some folder is unknown, or there are too many."""

    def change_directory(self, words: Sequence[str]) -> None:
        """After a `cd`, paths may start in another folder."""
        destinations = [word for word in words[1:] if word == "-" or word[:1] != "-"] or ["~"]
        top = TOP.fullmatch(destinations[-1])
        found = self.folders if top else list(self.resolve_all(destinations[-1]))
        self.has_unknown_folder = self.has_unknown_folder or not found or destinations[-1] == "-" or words[0] == "popd"
        self.folders += [path for path in dict.fromkeys(found) if path not in self.folders]
        if len(self.folders) > MAX_FOLDERS:
            self.has_unknown_folder, self.folders = True, self.folders[:MAX_FOLDERS]

    def resolve_all(self, name: str) -> Iterator[str]:
        name = HERE.sub(lambda _: self.folders[0], HOME.sub(lambda _: self.home, name))
        if "\0" not in name and "$" not in name and "`" not in name:
            yield from (posixpath.join(folder, name) for folder in self.folders)


def find_mentions(command: str, cwd: str, home: str, line: CommandLine | None) -> Mentions:
    """The files besides those that a proven line is known to touch."""
    survey, bases = survey_command(command), BaseFolders(cwd, home)
    if survey.over_budget:
        return Mentions(too_many=True)
    commands = [words for words in map(_literal_words, survey.commands) if words]
    for words in commands:
        if words[0] in CD_COMMANDS:
            bases.change_directory(words)
    search = _MentionSearch(bases, line)
    for words in commands:
        search.add_command(words)
    for operator, target in survey.redirects:
        search.add_redirect(operator, target)
    if line is None or line.has_documents or any("xargs" in words for words in commands):
        search.add_text(command)
    return search.result()


def has_nested_commands(line: CommandLine) -> bool:
    """Whether the arguments of a command in a proven line contain another command."""
    return len(survey_command(line.text).commands) > len(line.commands)


class _MentionSearch:
    def __init__(self, bases: BaseFolders, line: CommandLine | None) -> None:
        self._bases = bases
        simple = line.commands if line else ()
        self._proven = {command.argv for command in simple}
        self._known = {command.argv for command in simple if find_file_operands(command) is not None}
        self._known_redirects = {(found.operator, found.target) for command in simple for found in command.redirects}
        self._reads: dict[str, None] = {}
        self._writes: dict[str, None] = {}
        self._words: dict[str, None] = {}
        self._patterns: dict[str, None] = {}
        self._added: set[tuple[int, str]] = set()
        self._reads_whole_folders = False

    def add_command(self, words: tuple[str, ...]) -> None:
        found = find_file_operands(SimpleCommand(words, words, ""))
        self._reads_whole_folders = self._reads_whole_folders or reads_whole_folders(words)
        if found is None:
            for word in words[1:]:
                self._add(self._words, _names_in_word(word))
        elif words not in self._known:
            self._add(self._reads, found.reads)
            self._add(self._writes, found.writes)
        if words not in self._proven:
            self._patterns.update(dict.fromkeys(word for word in words[1:] if WILD.search(word)))

    def add_text(self, command: str) -> None:
        """Not everything that runs is known: any text that looks like a name may be a file."""
        found = (match[0] for match in NAME.finditer(command))
        self._add(self._words, dict.fromkeys(name for name in found if name[0] != "-"))

    def add_redirect(self, operator: str, target: str) -> None:
        if (operator, target) in self._known_redirects or target == DEV_NULL or DUPLICATE.fullmatch(operator + target):
            return
        self._add(self._reads if operator == "<" else self._writes, [QUOTES.sub("", target)])

    def result(self) -> Mentions:
        kinds = (self._reads, self._writes, self._words, self._patterns)
        too_many = any(len(kind) > MAX_NAMES for kind in kinds)
        reads, writes, words, patterns = (tuple(islice(kind, MAX_NAMES)) for kind in kinds)
        return Mentions(
            reads, writes, words, patterns, self._reads_whole_folders, too_many, self._bases.has_unknown_folder
        )

    def _add(self, to: dict[str, None], names: Iterable[str]) -> None:
        for name in names:
            if len(to) > MAX_NAMES:
                return
            if (id(to), name) not in self._added:
                self._added.add((id(to), name))
                to.update(dict.fromkeys(self._bases.resolve_all(name)))


def _literal_words(candidate: CommandWords) -> tuple[str, ...]:
    """The values of the words; for an unknown one, the text as written."""
    words = [
        QUOTES.sub("", candidate.raw_words[index]) if word is None else word
        for index, word in enumerate(candidate.words)
    ]
    while len(words) > 1 and ASSIGNMENT.match(words[0]):
        words = words[1:]
    return tuple(words)


def _names_in_word(word: str) -> list[str]:
    """The files that a word may name: itself, the part after a flag letter, and the parts between separators."""
    names = [word, *SEPARATORS.split(word), *QUOTED.findall(word)]
    if word[:1] == "-" and word[:2] != "--":
        names.append(word[2:])
    return [name for name in names if name and name[0] != "-" and may_be_path(name)]
