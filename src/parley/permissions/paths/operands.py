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

from parley.permissions.assessment import AGAINST
from parley.permissions.base import Request, View, Way
from parley.permissions.paths.filesystem import MOST_ENTRIES
from parley.permissions.paths.patterns import beneath, may_be_path
from parley.permissions.paths.programs import SHADOWED, shadows
from parley.permissions.paths.protected import FILES, is_protected
from parley.permissions.rules import Rules
from parley.permissions.shell import Line, Simple, Step
from parley.permissions.shell.ast import names
from parley.permissions.shell.edits import EDITS
from parley.permissions.shell.expansion import Look, expand
from parley.permissions.shell.prefix_rules import concern, file_words, shown, writes_no_operand
from parley.permissions.shell.readonly.check import files_read, program_name
from parley.permissions.shell.rule_patterns import together
from parley.permissions.shell.targets import touched
from parley.permissions.shell.wrappers import Inner, unwrapped

LEADS_TO_PROTECTED = "{word} leads to {path}, which decides what runs later: no rule approves it in advance"
IS_AGAINST = "{word} names a file that the rule {rule} ({source}) is against"
BRINGS = "{word} has {name} in it, which decides what runs later: no rule approves it in advance"
IS_FLAG = "{word} stands for the file {name}, which {program} takes for a flag"
TOO_MANY = "It names too many files to judge them"
UNKNOWN_FOLDER = "It is not known in which folder it names files"
MOST_NAMES = 1_000
XARGS = "xargs"
RUNS_THE_TREE = names("npm yarn pnpm bun make cargo go pytest tox nox gradle mvn dotnet mix rake")
"""What they do comes from the working tree anyway; a single word is the name of a target to them."""
MERGES = re.compile(r"-[A-Za-z]*T[A-Za-z]*|--no-target-d[a-z-]*")
"""With this flag a folder is not put into the other, but in its place."""
TAKES_CONTENTS = ("cp", "rsync", "mv", "ditto", "scp")


def hazards(
    line: Line,
    steps: Sequence[Step],
    patterns: Sequence[str],
    untrusted: Collection[str],
    request: Request,
    rules: Rules,
    view: View,
) -> str:
    """Why rules for the beginnings of commands are not enough for a line; nothing if they are."""
    known = together(tuple(patterns))
    if known.name(line.text):
        return ""
    words = _Words(request, rules, view)
    sends = any(XARGS in command.argv for command in line.commands)
    for command, step in zip_longest(line.commands, steps[: len(line.commands)], fillvalue=None):
        if command is None or step is None:
            return TOO_MANY
        inner = unwrapped(command) or Inner(command.argv, command.words, command.globs)
        trusts = not untrusted or not {*inner.wrappers, *inner.argv[:1]} & set(untrusted)
        reads = trusts and files_read(command) is not None
        if not inner.argv or (not sends and (reads or names_targets(inner))) or known.name(command.text):
            continue
        why = "" if reads else concern(inner, patterns)
        # The files of a command in the tables are judged already.
        is_judged = not sends and trusts and is_known(command)
        if why := why or words.judged(inner, step.folders, sends=sends, only_patterns=is_judged):
            return why
    return ""


def names_targets(inner: Inner) -> bool:
    """`npm test`, `make build`: nothing in it is a file."""
    return inner.argv[0] in RUNS_THE_TREE and all(map(str.isalnum, inner.argv[1:])) and not inner.globs


def is_known(command: Simple) -> bool:
    return program_name(command.argv[0]) in EDITS and touched(command) is not None


class _Words:
    def __init__(self, request: Request, rules: Rules, view: View) -> None:
        self._request = request
        self._rules = rules
        self._view = view
        self._left = MOST_NAMES
        self._seen: dict[str, bool] = {}
        """Whether folders are protected."""
        self._against = any(rules.on_paths(behavior, "Edit", writing=True) for behavior in AGAINST)

    def judged(self, inner: Inner, folders: Sequence[str], *, sends: bool, only_patterns: bool) -> str:
        """Why one of the names in a command's words is not approved."""
        if not folders:
            return UNKNOWN_FOLDER
        found = [] if only_patterns else list(islice(file_words(inner, sends=sends), MOST_NAMES + 1))
        for folder in folders:
            for word, name in found:
                if why := self._named(word, name, folder):
                    return why
            if why := (inner.globs and self._stood_for(inner, folder)) or self._brought(inner, folder):
                return why
        return ""

    def _named(self, word: str, name: str, folder: str) -> str:
        self._left -= 1
        if self._left < 0:
            return TOO_MANY
        if not may_be_path(name):
            return ""
        path = posixpath.join(folder, name)
        return "" if name.isalnum() and self._is_harmless(name, path) else self._led(word, self._view.way(path))

    def _stood_for(self, inner: Inner, folder: str) -> str:
        """Patterns stand for the files that are there now: those may be anything, a flag as well."""
        look = Look(lambda path: self._view.entries(path, MOST_ENTRIES), self._view.has)
        only_reads = writes_no_operand(inner)
        quick = not self._against and not self._is_protected_folder(folder)
        for place in inner.globs:
            word = inner.words[place]
            found = expand(word, folder, look)
            if found is None:
                return TOO_MANY
            plain = frozenset(found.plain) if quick else frozenset()
            for name in found.words:
                if name.startswith("-") and not word.startswith("-") and "--" not in inner.argv[:place]:
                    return IS_FLAG.format(word=shown(word), name=shown(name), program=inner.argv[0])
                # What is known not to be a link is where its folder is.
                if only_reads or (posixpath.join(folder, name) in plain and not is_protected(f"/{name}")):
                    continue
                if why := self._named(word, name, folder):
                    return why
        return ""

    def _is_harmless(self, name: str, path: str) -> bool:
        """Whether a single name, most often no file at all, is surely none that matters: it is quick to see."""
        if self._against or not name.isascii() or name.lower() in FILES or name in SHADOWED:
            return False
        return self._view.link(path) is None and not self._is_protected_folder(path[: -len(name)])

    def _is_protected_folder(self, folder: str) -> bool:
        if folder not in self._seen:
            self._seen[folder] = any(map(self._is_protected, self._view.way(folder).names))
        return self._seen[folder]

    def _is_protected(self, path: str) -> bool:
        """A session that was started in a protected folder works there."""
        inner = beneath(path, self._rules.cwd)
        return is_protected(path if inner is None else "/".join(inner))

    def _led(self, word: str, way: Way) -> str:
        for path in way.names:
            if self._is_protected(path):
                return LEADS_TO_PROTECTED.format(word=shown(word), path=path)
        if why := shadows([way], self._request, self._view):
            return why
        for behavior in AGAINST:
            rule = self._rules.against(behavior, way, "Edit", self._view, writing=True)
            if rule is not None:
                return IS_AGAINST.format(word=shown(word), rule=rule.text, source=rule.source)
        return ""

    def _brought(self, inner: Inner, folder: str) -> str:
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
            found = self._view.entries(posixpath.join(folder, word), MOST_ENTRIES)
            if found is None:
                return TOO_MANY
            name = next((name for name in found if is_protected(f"/{name}")), None)
            if name is not None:
                return BRINGS.format(word=shown(word), name=name)
        return ""
