"""Where the words of a command lead that only a rule for its beginning allows.

A rule like `Bash(tee:*)` says nothing of the file. Of a program that is in no table, every word may be a file that is
written, and so may be the value of a flag and either half of `a=b`: if one leads to a protected name, or to a file
that an Edit rule denies, a person is asked. A rule for exactly the command is about exactly these words.

Not here: which words those are, and flags that no such rule approves (shell/prefixed.py).
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Sequence

from parley.permissions.base import Request, View, Way
from parley.permissions.facts import AGAINST
from parley.permissions.located import SHADOWED, shadows
from parley.permissions.paths import beneath
from parley.permissions.protected import FILES, FOLDERS, is_protected
from parley.permissions.rules import Rules
from parley.permissions.shell import Line, Simple
from parley.permissions.shell.edits import EDITS
from parley.permissions.shell.patterns import together
from parley.permissions.shell.prefixed import concern, file_words, shown
from parley.permissions.shell.readonly import MOVES, files_read, program_name
from parley.permissions.shell.simple import names
from parley.permissions.shell.targets import touched
from parley.permissions.shell.wrappers import Inner, unwrapped
from parley.workspace.globs import WILD, name_test

LEADS_TO_PROTECTED = "{word} leads to {path}, which decides what runs later: no rule approves it in advance"
IS_AGAINST = "{word} names a file that the rule {rule} ({source}) is against"
BRINGS = "{word} has {name} in it, which decides what runs later: no rule approves it in advance"
MAY_STAND_FOR = "{word} may stand for {name}, which decides what runs later: no rule approves it in advance"
TOO_MANY = "It names too many files to judge them"
MOST_NAMES = 1_000
MOST_FOLDERS = 32
MOST_PATTERNS = 32
PROTECTED = tuple(sorted(FILES | FOLDERS))
XARGS = "xargs"
RUNS_THE_TREE = names("npm yarn pnpm bun make cargo go pytest tox nox gradle mvn dotnet mix rake")
"""What they do comes from the working tree anyway; a single word is the name of a target to them."""
TAKES_CONTENTS = ("cp", "rsync", "mv", "ditto")


def hazards(
    line: Line, patterns: Sequence[str], untrusted: Collection[str], request: Request, rules: Rules, view: View
) -> str:
    """Why rules for the beginnings of commands are not enough for a line; nothing if they are."""
    known = together(tuple(patterns))
    if known.name(line.text):
        return ""
    words: _Words | None = None
    sends = any(XARGS in command.argv for command in line.commands)
    for command in line.commands:
        inner = unwrapped(command) or Inner(command.argv, command.words, command.globs)
        trusts = not untrusted or not {*inner.wrappers, *inner.argv[:1]} & set(untrusted)
        reads = trusts and files_read(command) is not None
        if not inner.argv or (not sends and (reads or names_targets(inner))) or known.name(command.text):
            continue
        words = words or _Words(folders_of(line, request, view.home), request, rules, view)
        why = "" if reads else concern(inner, patterns) or (words.globs(inner) if inner.globs else "")
        # The files of a command in the tables are judged already.
        if not why and (sends or not (trusts and is_known(command))):
            why = words.names(inner, sends)
        if why:
            return why
    return ""


def names_targets(inner: Inner) -> bool:
    """`npm test`, `make build`: nothing in it is a file."""
    return inner.argv[0] in RUNS_THE_TREE and all(map(str.isalnum, inner.argv[1:])) and not inner.globs


def is_known(command: Simple) -> bool:
    return program_name(command.argv[0]) in EDITS and touched(command) is not None


def folders_of(line: Line, request: Request, home: str) -> list[str]:
    """The folders that a command of the line may run in."""
    found = [request.cwd]
    for inner in map(unwrapped, line.commands[:-1]):
        if inner is not None and inner.argv[0] in MOVES and len(found) <= MOST_FOLDERS:
            goal = inner.argv[-1] if len(inner.argv) > 1 else home
            found += [place for folder in found if (place := posixpath.join(folder, goal)) not in found]
    return found


class _Words:
    def __init__(self, folders: Sequence[str], request: Request, rules: Rules, view: View) -> None:
        self._folders = folders
        self._request = request
        self._rules = rules
        self._view = view
        self._left = MOST_NAMES
        self._seen: dict[str, bool] = {}
        """Whether folders are protected."""
        self._against = bool(
            rules.on_paths("deny", "Edit", writing=True) or rules.on_paths("ask", "Edit", writing=True)
        )

    def names(self, inner: Inner, sends: bool) -> str:
        if len(self._folders) > MOST_FOLDERS:
            return TOO_MANY
        for word, name in file_words(inner, sends=sends):
            for path in self._paths(name):
                self._left -= 1
                if self._left < 0:
                    return TOO_MANY
                if name.isalnum() and self._is_harmless(name, path):
                    continue
                if why := self._judged(word, self._view.way(path)):
                    return why
        return self._brought(inner)

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

    def globs(self, inner: Inner) -> str:
        """Patterns of file names: what they stand for is decided by the folder."""
        if len(inner.globs) > MOST_PATTERNS:
            return TOO_MANY
        for word in (inner.argv[place] for place in inner.globs):
            name = next(self._stands_for(word), None)
            if name is not None:
                return MAY_STAND_FOR.format(word=shown(word), name=name)
        return ""

    def _paths(self, name: str) -> Iterator[str]:
        if "\0" not in name:
            yield from (posixpath.join(folder, name) for folder in self._folders)

    def _judged(self, word: str, way: Way) -> str:
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

    def _brought(self, inner: Inner) -> str:
        """`cp -r template/. .` brings every name of a folder along."""
        if inner.argv[0].rpartition("/")[2] not in TAKES_CONTENTS:
            return ""
        words = [word for word in inner.argv[1:] if posixpath.basename(word) in ("", ".", "..") and word[:1] != "-"]
        if len(words) > MOST_PATTERNS:
            return TOO_MANY
        for word in words:
            for folder in self._paths(word.removesuffix(".") if word.endswith("/.") else word):
                name = next((name for name in PROTECTED if self._view.has(posixpath.join(folder, name))), None)
                if name is not None:
                    return BRINGS.format(word=shown(word), name=name)
        return ""

    def _stands_for(self, word: str) -> Iterator[str]:
        """The protected names that a pattern fits, and that are there or in a folder which is a pattern itself."""
        parts = word.split("/")
        for place, part in enumerate(parts):
            if WILD.search(part):
                above, fits = "/".join(parts[:place]), name_test(part)
                for name in PROTECTED:
                    if (part[0] == ".") == (name[0] == ".") and fits(name):
                        places = [posixpath.join(path, name) for path in self._paths(above)]
                        if WILD.search(above) or any(map(self._view.has, places)):
                            yield name
