"""Where the words of a command lead that only a rule for its beginning allows.

A rule like `Bash(tee:*)` says nothing of the file. Of a program that is in no table, every word may be a file that is
written, and so may be the value of a flag and either half of `a=b`: if one leads to a protected name, or to a file
that an Edit rule denies, a person is asked. A rule for exactly the command is about exactly these words.

Not here: which words those are, and flags that no such rule approves (shell/prefixed.py).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Sequence
from itertools import islice, zip_longest

from parley.permissions.assessment import RESTRICTING
from parley.permissions.base import Filesystem, ResolvedPath, ToolRequest
from parley.permissions.paths.filesystem import MAX_ENTRIES
from parley.permissions.paths.patterns import may_be_path, relative_parts
from parley.permissions.paths.programs import SHADOWED, explain_shadowing
from parley.permissions.paths.protected import FILES, is_protected
from parley.permissions.rules import RuleSet
from parley.permissions.shell import CommandLine, SimpleCommand, Step
from parley.permissions.shell.ast import word_set
from parley.permissions.shell.edits import EDITS
from parley.permissions.shell.expansion import GlobLookup, expand
from parley.permissions.shell.prefix_rules import file_words, find_concern, shorten, writes_no_operand
from parley.permissions.shell.readonly.check import files_read, program_name
from parley.permissions.shell.rule_patterns import compile_patterns
from parley.permissions.shell.targets import find_file_operands
from parley.permissions.shell.wrappers import UnwrappedCommand, unwrap

RESOLVES_TO_PROTECTED = "{word} leads to {path}, which decides what runs later: no rule approves it in advance"
IS_RESTRICTED = "{word} names a file that the rule {rule} ({source}) is against"
COPIES_PROTECTED = "{word} has {name} in it, which decides what runs later: no rule approves it in advance"
IS_FLAG = "{word} stands for the file {name}, which {program} takes for a flag"
TOO_MANY = "It names too many files to judge them"
UNKNOWN_FOLDER = "It is not known in which folder it names files"
MAX_NAMES = 1_000
XARGS = "xargs"
RUNS_THE_TREE = word_set("npm yarn pnpm bun make cargo go pytest tox nox gradle mvn dotnet mix rake")
"""What they do comes from the working tree anyway; a single word is the name of a target to them."""
MERGES = re.compile(r"-[A-Za-z]*T[A-Za-z]*|--no-target-d[a-z-]*")
"""With this flag a folder is not put into the other, but in its place."""
TAKES_CONTENTS = ("cp", "rsync", "mv", "ditto", "scp")


def find_operand_hazard(
    line: CommandLine,
    steps: Sequence[Step],
    patterns: Sequence[str],
    untrusted: Collection[str],
    request: ToolRequest,
    rules: RuleSet,
    fs: Filesystem,
) -> str:
    """Why rules for the beginnings of commands are not enough for a line; nothing if they are."""
    known = compile_patterns(tuple(patterns))
    if known.has_exact(line.text):
        return ""
    words = _OperandCheck(request, rules, fs)
    sends = any(XARGS in command.argv for command in line.commands)
    for command, step in zip_longest(line.commands, steps[: len(line.commands)], fillvalue=None):
        if command is None or step is None:
            return TOO_MANY
        inner = unwrap(command) or UnwrappedCommand(command.argv, command.words, command.globs)
        trusts = not untrusted or not {*inner.wrappers, *inner.argv[:1]} & set(untrusted)
        reads = trusts and files_read(command) is not None
        if not inner.argv or (not sends and (reads or only_names_targets(inner))) or known.has_exact(command.text):
            continue
        why = "" if reads else find_concern(inner, patterns)
        # The files of a command in the tables are judged already.
        is_judged = not sends and trusts and is_known_edit(command)
        if why := why or words.find_hazard(inner, step.folders, sends=sends, only_patterns=is_judged):
            return why
    return ""


def only_names_targets(inner: UnwrappedCommand) -> bool:
    """`npm test`, `make build`: nothing in it is a file."""
    return inner.argv[0] in RUNS_THE_TREE and all(map(str.isalnum, inner.argv[1:])) and not inner.globs


def is_known_edit(command: SimpleCommand) -> bool:
    return program_name(command.argv[0]) in EDITS and find_file_operands(command) is not None


class _OperandCheck:
    def __init__(self, request: ToolRequest, rules: RuleSet, fs: Filesystem) -> None:
        self._request = request
        self._rules = rules
        self._fs = fs
        self._names_left = MAX_NAMES
        self._protected_folders: dict[str, bool] = {}
        """Whether folders are protected."""
        self._has_edit_rules = any(rules.path_rules(behavior, "Edit", writing=True) for behavior in RESTRICTING)

    def find_hazard(self, inner: UnwrappedCommand, folders: Sequence[str], *, sends: bool, only_patterns: bool) -> str:
        """Why one of the names in a command's words is not approved."""
        if not folders:
            return UNKNOWN_FOLDER
        found = [] if only_patterns else list(islice(file_words(inner, sends=sends), MAX_NAMES + 1))
        for folder in folders:
            for word, name in found:
                if why := self._check_name(word, name, folder):
                    return why
            if why := (inner.globs and self._check_globs(inner, folder)) or self._check_copied_folder(inner, folder):
                return why
        return ""

    def _check_name(self, word: str, name: str, folder: str) -> str:
        self._names_left -= 1
        if self._names_left < 0:
            return TOO_MANY
        if not may_be_path(name):
            return ""
        path = posixpath.join(folder, name)
        return (
            "" if name.isalnum() and self._is_harmless(name, path) else self._check_path(word, self._fs.resolve(path))
        )

    def _check_globs(self, inner: UnwrappedCommand, folder: str) -> str:
        """Patterns stand for the files that are there now: those may be anything, a flag as well."""
        look = GlobLookup(lambda path: self._fs.entries(path, MAX_ENTRIES), self._fs.exists)
        only_reads = writes_no_operand(inner)
        quick = not self._has_edit_rules and not self._is_protected_folder(folder)
        for index in inner.globs:
            word = inner.words[index]
            found = expand(word, folder, look)
            if found is None:
                return TOO_MANY
            plain = frozenset(found.non_links) if quick else frozenset()
            for name in found.words:
                if name.startswith("-") and not word.startswith("-") and "--" not in inner.argv[:index]:
                    return IS_FLAG.format(word=shorten(word), name=shorten(name), program=inner.argv[0])
                # What is known not to be a link is where its folder is.
                if only_reads or (posixpath.join(folder, name) in plain and not is_protected(f"/{name}")):
                    continue
                if why := self._check_name(word, name, folder):
                    return why
        return ""

    def _is_harmless(self, name: str, path: str) -> bool:
        """Whether a single name, most often no file at all, is surely none that matters: it is quick to see."""
        if self._has_edit_rules or not name.isascii() or name.lower() in FILES or name in SHADOWED:
            return False
        return self._fs.readlink(path) is None and not self._is_protected_folder(path[: -len(name)])

    def _is_protected_folder(self, folder: str) -> bool:
        if folder not in self._protected_folders:
            self._protected_folders[folder] = any(map(self._is_protected, self._fs.resolve(folder).names))
        return self._protected_folders[folder]

    def _is_protected(self, path: str) -> bool:
        """A session that was started in a protected folder works there."""
        inner = relative_parts(path, self._rules.cwd)
        return is_protected(path if inner is None else "/".join(inner))

    def _check_path(self, word: str, resolved: ResolvedPath) -> str:
        for path in resolved.names:
            if self._is_protected(path):
                return RESOLVES_TO_PROTECTED.format(word=shorten(word), path=path)
        if why := explain_shadowing([resolved], self._request, self._fs):
            return why
        for behavior in RESTRICTING:
            rule = self._rules.find_restriction(behavior, resolved, "Edit", self._fs, writing=True)
            if rule is not None:
                return IS_RESTRICTED.format(word=shorten(word), rule=rule.text, source=rule.source)
        return ""

    def _check_copied_folder(self, inner: UnwrappedCommand, folder: str) -> str:
        """`cp -r template/. .` brings every name of a folder along."""
        if inner.argv[0].rpartition("/")[2] not in TAKES_CONTENTS:
            return ""
        merges = any(MERGES.fullmatch(word) for word in inner.argv[1:])
        words = [
            word
            for word in inner.argv[1:]
            if word[:1] != "-" and (merges or posixpath.basename(word) in ("", ".", ".."))
        ]
        for word in words:
            found = self._fs.entries(posixpath.join(folder, word), MAX_ENTRIES)
            if found is None:
                return TOO_MANY
            name = next((name for name in found if is_protected(f"/{name}")), None)
            if name is not None:
                return COPIES_PROTECTED.format(word=shorten(word), name=name)
        return ""
