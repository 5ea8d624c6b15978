"""Check the arguments of commands that are allowed only by a rule for their beginning.

A rule like `Bash(tee:*)` does not name the file. For a program that is in no table, every argument may be a file that
is written, and so may the value of a flag and either half of `a=b`. If one leads to a protected file, or to a file that
an Edit rule denies, the line needs approval. A rule for exactly the command approves exactly these arguments.

See also: which arguments may name files, and flags that no such rule approves (shell/prefix_rules.py).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from itertools import islice, product, zip_longest

from parley.permissions.base import RESTRICTING, word_set
from parley.permissions.filesystem import MAX_ENTRIES, ResolvedPath
from parley.permissions.patterns import may_be_path, relative_parts
from parley.permissions.proven_command import (
    MAX_FOLDER_MOVES,
    SHADOWED,
    ProvenCommand,
    explain_shadowing,
    find_copied_protection,
)
from parley.permissions.shell.arguments import UnwrappedCommand, unwrap
from parley.permissions.shell.command_rules import compile_patterns
from parley.permissions.shell.file_names import Expansion, GlobLookup, expand
from parley.permissions.shell.prefix_rules import file_words, find_concern, shorten, writes_no_operand
from parley.permissions.shell.readers import files_read, program_name
from parley.permissions.shell.targets import EDITS, find_file_operands
from parley.workspace.sensitive_names import is_git_internal, is_protected

RESOLVES_TO_PROTECTED = "{word} leads to {path}, a protected file that decides what runs later"
IS_RESTRICTED = "{word} names a file that the rule {rule} ({source}) restricts"
COPIES_PROTECTED = "{word} contains {name}, a protected file that decides what runs later"
IS_FLAG = "{word} expands to the file name {name}, which {program} takes for a flag"
TOO_MANY = "It names too many files to check"
UNKNOWN_FOLDER = "The folder of the files it names is unknown"
MAX_NAMES = 1_000
XARGS = "xargs"
RUNS_THE_TREE = word_set("npm yarn pnpm bun make cargo go pytest tox nox gradle mvn dotnet mix rake")
"""These run code of the working tree anyway; a single word is the name of a target."""
NAMES_TARGET = re.compile(r"-[A-Za-z]*t|--t")
"""With this flag all operands are sources."""
TAKES_CONTENTS = ("cp", "rsync", "mv", "ditto", "scp")


def find_operand_hazard(command: ProvenCommand, patterns: Sequence[str], *, only_rules: bool = False) -> str:
    """Why rules for the beginnings of commands do not approve a line; empty if they do.

    With `only_rules`, only files that an Edit rule restricts are a reason: those need approval in every mode.
    """
    line, untrusted = command.line, set(command.untrusted)
    compiled = compile_patterns(tuple(patterns))
    if compiled.has_exact(line.text):
        return ""
    check = _OperandCheck(command, only_rules=only_rules)
    sends = any(XARGS in simple.argv for simple in line.commands)
    for simple, step in zip_longest(line.commands, command.files.steps[: len(line.commands)], fillvalue=None):
        if simple is None or step is None:
            return TOO_MANY
        inner = unwrap(simple) or UnwrappedCommand(simple.argv, simple.words, simple.globs)
        is_trusted = not untrusted or not {*inner.wrappers, *inner.argv[:1]} & untrusted
        reads = is_trusted and files_read(simple) is not None
        if not inner.argv or (not sends and (reads or only_names_targets(inner))) or compiled.has_exact(simple.text):
            continue
        reason = "" if reads or only_rules else find_concern(inner, patterns)
        # The files of commands in the tables are checked elsewhere.
        is_checked = not sends and is_trusted and program_name(simple.argv[0]) in EDITS
        is_checked = is_checked and find_file_operands(simple) is not None
        if reason := reason or check.find_hazard(inner, step.folders, sends=sends, only_globs=is_checked):
            return reason
    return ""


def only_names_targets(inner: UnwrappedCommand) -> bool:
    """`npm test`, `make build`: no argument is a file."""
    return inner.argv[0] in RUNS_THE_TREE and all(map(str.isalnum, inner.argv[1:])) and not inner.globs


class _OperandCheck:
    def __init__(self, command: ProvenCommand, *, only_rules: bool) -> None:
        self._only_rules = only_rules
        self._request = command.request
        self._rules = command.rules
        self._fs = command.fs
        self._names_left = MAX_NAMES
        self._protected_folders: dict[str, bool] = {}
        """Whether each folder is protected, as far as it was checked."""
        self._has_edit_rules = bool(self._rules.restricting_rules(writing=True))

    def find_hazard(self, inner: UnwrappedCommand, folders: Sequence[str], *, sends: bool, only_globs: bool) -> str:
        """Why a name in the arguments of a command is not approved."""
        if not folders:
            return UNKNOWN_FOLDER
        names = [] if only_globs else list(islice(file_words(inner, sends=sends), MAX_NAMES + 1))
        for folder in folders:
            for word, name in names:
                if reason := self._check_name(word, name, folder):
                    return reason
            expanded = self._expand_globs(inner, folder)
            if expanded is None:
                return TOO_MANY
            reason = self._check_globs(inner, folder, expanded)
            if reason := reason or ("" if self._only_rules else self._check_copied_folders(inner, folder, expanded)):
                return reason
        return ""

    def _expand_globs(self, inner: UnwrappedCommand, folder: str) -> dict[int, Expansion] | None:
        """What the words that are globs match now; None if that is too much to check."""
        lookup = GlobLookup(lambda path: self._fs.entries(path, MAX_ENTRIES), self._fs.exists)
        found = {}
        for index in inner.globs:
            if (expansion := expand(inner.words[index], folder, lookup)) is None:
                return None
            found[index] = expansion
        return found

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

    def _check_globs(self, inner: UnwrappedCommand, folder: str, expanded: Mapping[int, Expansion]) -> str:
        """A glob expands to the files that exist now; a name may be protected, or look like a flag."""
        only_reads = writes_no_operand(inner)
        above = posixpath.basename(folder)
        can_skip = not self._has_edit_rules and not self._is_protected_folder(folder)
        for index, found in expanded.items():
            word = inner.words[index]
            non_links = frozenset(found.non_links) if can_skip else frozenset()
            for name in found.words:
                if name.startswith("-") and not word.startswith("-") and "--" not in inner.argv[:index]:
                    return IS_FLAG.format(word=shorten(word), name=shorten(name), program=inner.argv[0])
                # A file that is not a symlink is where its folder is.
                if only_reads or (posixpath.join(folder, name) in non_links and not is_protected(f"/{above}/{name}")):
                    continue
                if reason := self._check_name(word, name, folder):
                    return reason
        return ""

    def _is_harmless(self, name: str, path: str) -> bool:
        """A quick check for single names, most of which are not files at all."""
        above = posixpath.basename(path[: -len(name)].rstrip("/"))
        if self._has_edit_rules or not name.isascii() or name in SHADOWED or is_protected(f"/{above}/{name}"):
            return False
        return self._fs.readlink(path) is None and not self._is_protected_folder(path[: -len(name)])

    def _is_protected_folder(self, folder: str) -> bool:
        if folder not in self._protected_folders:
            self._protected_folders[folder] = any(map(self._is_protected, self._fs.resolve(folder).names))
        return self._protected_folders[folder]

    def _is_protected(self, path: str) -> bool:
        """Whether a path is protected. A session that started in a protected folder may work there."""
        inner = relative_parts(path, self._rules.cwd)
        return is_protected(path if inner is None else "/".join(inner))

    def _check_path(self, word: str, resolved: ResolvedPath) -> str:
        for path in resolved.names if not self._only_rules else ():
            if self._is_protected(path) or is_git_internal(path, self._fs.exists):
                return RESOLVES_TO_PROTECTED.format(word=shorten(word), path=path)
        if not self._only_rules and (reason := explain_shadowing([resolved], self._request, self._fs)):
            return reason
        for behavior in RESTRICTING:
            rule = self._rules.find_restriction(behavior, resolved, "Edit", self._fs, writing=True)
            if rule is not None:
                return IS_RESTRICTED.format(word=shorten(word), rule=rule.text, source=rule.source)
        return ""

    def _check_copied_folders(self, inner: UnwrappedCommand, folder: str, expanded: Mapping[int, Expansion]) -> str:
        """`cp -r template .` copies every name of a folder, protected ones too."""
        if inner.name not in TAKES_CONTENTS:
            return ""
        operands = [
            expanded[index].words if index in expanded else (word,)
            for index, word in enumerate(inner.argv)
            if index in expanded or (index and word[:1] != "-")
        ]
        names_target = any(NAMES_TARGET.match(word) for word in inner.argv[1:])
        targets = operands[-1] if operands else ()
        # The last of several names that a glob matches may be any of them.
        sources = operands if names_target or len(targets) > 1 else operands[:-1]
        paths = {posixpath.join(folder, word): word for words in sources for word in words}
        folders = {path: self._fs.entries(path, MAX_ENTRIES) for path in paths if self._fs.is_folder(path)}
        folders = {path: names for path, names in folders.items() if names != {}}
        if len(folders) > MAX_FOLDER_MOVES or None in folders.values():
            return TOO_MANY
        for path, target in product(folders, targets):
            if name := find_copied_protection(path, posixpath.join(folder, target), self._fs):
                return COPIES_PROTECTED.format(word=shorten(paths[path]), name=name)
        return ""
