"""The files that a text names or deletes, proven or not: only for deny rules, ask rules and hazards.

`find_targets` knows the files of proven lines. Here every command that the deny search finds counts: after `sudo`, in
`bash -c`, in loops and substitutions. For a command that is in no table, every argument may be a file. A file too many
costs a question; a missed file would be read.

Not all files are known if a program that opens files gets a word that is only known at run time (a variable, a
substitution, what xargs adds), if the text contains code in another language, or if it unpacks files.

A deletion of the root, a home folder, a top-level folder or the working directory needs approval in every mode
(`is_critical_delete`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from urllib.parse import unquote

from parley.permissions.base import OverBudget, word_set
from parley.permissions.patterns import may_be_path
from parley.permissions.shell.arguments import (
    BUILDS,
    CD_COMMANDS,
    FILE_FREE,
    NAMES_NO_TARGET,
    RUNNERS,
    UnwrappedCommand,
    find_cd_target,
)
from parley.permissions.shell.deny_search import ASSIGNMENT, SHELL, survey_command
from parley.permissions.shell.git_arguments import parse_git_call
from parley.permissions.shell.interpreters import (
    FILLERS,
    INTERPRETERS,
    SUBRUNNERS,
    find_filled_command,
    has_inline_code,
)
from parley.permissions.shell.prefix_rules import GIT_CHANGES_TREE, ONLY_READ, file_words, find_concern
from parley.permissions.shell.readers import READERS, reads_whole_folders
from parley.permissions.shell.strict_parser import DEV_NULL, SETS_VARIABLES, CommandLine, SimpleCommand, only_prints
from parley.permissions.shell.targets import DELETERS, find_file_operands
from parley.permissions.shell.treesitter import CommandWords, may_expand

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
SETS_HOME = re.compile(r"(?<![${\w])(?:HOME|PWD|CDPATH)\b|[({]HOME:?=")
"""HOME or PWD other than as a value: something may set it."""
USES_HOME = re.compile(r"~|HOME|PWD|pwd")
EXPORTED = re.compile(r"(?!HOME|PWD)\w+=")
EXPANSION = re.compile(r"[$`]|\{\}|^~(?!/|$)|^/_$")
"""What is only known at run time; `{}` and `/_` are replaced by find, xargs and entr."""
BRACES = re.compile(r"\{[^{}/$`]*\}")
PROGRAM = re.compile(r"(?!\d+[smhd]?$)(?:.*/)?[\w\[:.][\w.+:\[-]*")
"""The name of a program; any other first word is a flag or a value of a wrapper."""
MESSAGES = ("-m", "--message", "-am")
WRITING_READERS = word_set("sort uniq tree file rg")
"""Readers that write or run something with a flag or an operand too many."""
UNPACKS = {
    **dict.fromkeys(("tar", "bsdtar", "gtar", "star"), re.compile(r"-?[A-Za-z]*x[A-Za-z]*|--(?:extract|get)")),
    **dict.fromkeys(("7z", "7za", "7zr", "ar", "unrar", "jar"), re.compile(r"-?[A-Za-z]*[xe][A-Za-z]*|--extract")),
    **dict.fromkeys(("cpio", "pax"), re.compile(r"-\w*[ir]\w*|--extract")),
    **dict.fromkeys(("patch", "unzip"), re.compile(r"(?s:.)*")),
    "find": re.compile(r"-delete|-f(?:print0?|printf|ls)"),
}
"""Programs that write files which other files name, or a search finds, and the words with which they do."""
READS_LISTS = {
    **dict.fromkeys(("tar", "bsdtar", "gtar", "star"), re.compile(r"-\w*T.*|--files-from.*")),
    "cpio": re.compile(r"-\w*[op]\w*|--create|--pass-through"),
    **dict.fromkeys(("zip", "pax"), re.compile(r"-@|-\w*w\w*")),
    "curl": re.compile(r"-\w*K.*|--config.*|--proto-default.*"),
    "wget": re.compile(r"-\w*[ie].*|--(?:input-file|execute|config).*"),
    "rsync": re.compile(r"--(?:files|include|exclude)-from.*"),
    **dict.fromkeys(("du", "wc", "sort"), re.compile(r"--files0-from.*")),
    "file": re.compile(r"-\w*[fm].*|--(?:files-from|magic-file).*"),
    **dict.fromkeys(
        word_set(
            "strings ar nm objdump size ranlib strip objcopy readelf addr2line c++filt ld ld.bfd ld.gold ld.lld "
            "as lld elfedit dlltool windres gprof gcc g++ cc c++ cpp clang clang++ gcc-ar gcc-nm gcc-ranlib llvm-ar "
            "llvm-nm llvm-objdump llvm-strings llvm-size java javac javadoc jar rustc swiftc dmd ldc2 7z rar unrar"
        ),
        re.compile(r"@.+"),
    ),
}
"""Programs that read files named in a list, and the words with which they do."""
FILE_URL = re.compile(r"(?i)\bfile:(?://[^/]*)?([^?#]*)")
URL_GLOB = re.compile(r"[\[{]")
SEPARATORS = re.compile(r"[=:@,;<|]")
"""Separators before or after a file name in a word: `if=x`, `HEAD:x`, `@x`, `f=<x;type=text/plain`."""
MAX_NAME_CHARACTERS = 1_000
MAX_CHECKS = 500
"""Targets times the folders that they may be in."""
# `$X/etc` is one of these if X is empty.
SYSTEM = word_set(
    "/ /proc/self/root /proc/self/cwd "
    "/bin /boot /dev /etc /home /lib /lib64 /opt /proc /root /run /sbin /srv /sys /usr /var /Users /System"
)
NARROWING_TESTS = word_set("-name -iname -path -ipath -regex -iregex -wholename -newer -mtime -mmin -size -empty")
BRACE = re.compile(r"\{([^{}]*)\}")
POSSIBLE_HOME = re.compile(r"^~(?=/|$)|\$HOME\b|\$\{HOME(?:[:?+=-][^}]*)?\}")
POSSIBLE_HERE = re.compile(r"\$PWD\b|\$\{PWD(?:[:?+=-][^}]*)?\}|\$\(pwd\)|`pwd`")
OTHER_HOME = re.compile(r"^~[A-Za-z0-9_-]+/?$")
ANY_EXPANSION = re.compile(r"\$\{[^}]*\}|\$\([^)]*\)|`[^`]*`|\$\w+|\$[*@#?!$-]")
ALL_IN_IT = re.compile(r"/(?:\*|\.\*|\.\[!\.\]\*|\{[^}]*\*[^}]*\})$")


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
    candidates = [(words, found) for found in survey.commands if (words := _literal_words(found))]
    sets_home = SETS_HOME.search(QUOTES.sub("", command)) is not None or any(map(_may_set_home, survey.commands))
    mentions = Mentions(bases, line, sets_home=sets_home)
    if survey.over_budget:
        mentions.too_many = True
        mentions.unknown_read = mentions.unknown_write = mentions.unknown_target = survey.over_budget
        return mentions
    for words, _ in candidates:
        if words[0] in CD_COMMANDS:
            bases.change_directory(words)
            uses_home = len(words) == 1 or USES_HOME.search(" ".join(words)) or "CDPATH" in command
            bases.has_unknown_folder = bases.has_unknown_folder or bool(sets_home and uses_home)
    for words, found in candidates:
        mentions.add_command(words)
        if words not in mentions.known:
            mentions.add_unknown(words, found)
    if survey.unresolved:
        mentions.unknown_read = mentions.unknown_write = "a command that is only known when it runs"
    for operator, target in survey.redirects:
        mentions.add_redirect(operator, target)
    if line is None or line.has_documents or any("xargs" in words for words, _ in candidates):
        mentions.add_text(command)
    mentions.finish()
    return mentions


def has_nested_commands(line: CommandLine) -> bool:
    """Whether the arguments of a command in a proven line contain another command."""
    return len(survey_command(line.text).commands) > len(line.commands)


class Mentions:
    """The files that a text names, as absolute paths."""

    def __init__(self, bases: BaseFolders, line: CommandLine | None, *, sets_home: bool) -> None:
        self._bases = bases
        self._sets_home = sets_home
        simple = line.commands if line else ()
        self._proven = {command.argv for command in simple}
        self.known = {command.argv for command in simple if find_file_operands(command) is not None}
        self.reads: dict[str, None] = {}
        self.writes: dict[str, None] = {}
        self.words: dict[str, None] = {}
        """Arguments of commands that are in no table: each may be a file that is read."""
        self.targets: dict[str, None] = {}
        """The same: each may be a file that is written."""
        self.folders: dict[str, None] = {}
        """Arguments of commands that may use everything in a folder."""
        self.patterns: dict[str, None] = {}
        """Globs and braces, as written."""
        self.reads_whole_folders = False
        """A command reads whole folders."""
        self.too_many = False
        """There are too many files to check."""
        self.has_unknown_folder = False
        """A command changes to an unknown folder."""
        self.unknown_read = ""
        """The word or program because of which not all files that are read are known; empty if they are."""
        self.unknown_write = ""
        """The same for files that are written, by whatever program."""
        self.unknown_target = ""
        """The same for redirections, and for programs that write the files that they are given."""
        self._has_writer = False
        """A program writes files that its arguments may name."""
        self._known_redirects = {(found.operator, found.target) for command in simple for found in command.redirects}
        self._added: set[tuple[int, str]] = set()

    def add_command(self, words: tuple[str, ...]) -> None:
        found = find_file_operands(SimpleCommand(words, words, ""))
        if words not in self._proven:
            self.reads_whole_folders = self.reads_whole_folders or reads_whole_folders(words)
        if found is None:
            for word in words[1:]:
                self._add(self.words, _names_in_word(word))
        elif words not in self.known:
            self._add(self.reads, found.reads)
            self._add(self.writes, found.writes)
        if words not in self._proven:
            self.patterns.update(dict.fromkeys(word for word in words[1:] if WILD.search(word)))

    def add_unknown(self, words: tuple[str, ...], candidate: CommandWords) -> None:
        """Files that a command may use without naming them, and names that it may write."""
        name = words[0].rpartition("/")[2]
        if name in FILE_FREE or name in CD_COMMANDS or not PROGRAM.fullmatch(words[0]):
            return
        found = find_file_operands(SimpleCommand(words, words, ""))
        begin = len(candidate.words) - len(words)
        pairs = zip(candidate.words[begin:], candidate.raw_words[begin:], strict=True)
        is_proven, only_reads = words in self._proven, found is not None and not found.writes
        unknown = (
            index
            for index, (value, raw) in enumerate(pairs)
            if index
            and (self._is_dynamic(value, raw) or (not is_proven and _may_expand(raw, only_reads)))
            and not _is_text(name, words[index - 1], raw)
        )
        dynamic = next((words[index] for index in unknown), "")
        if name in ("fd", "fdfind") and SUBRUNNERS[name].intersection(words):
            dynamic = name
        elif name in FILLERS:
            words, dynamic = words[find_filled_command(words) :], name
            name = words[0].rpartition("/")[2] if words else "echo"
            if name in FILE_FREE:
                return
        elif name in RUNNERS:
            # The command inside is another candidate; `env -C folder` changes where it runs.
            for before, word in pairwise(words):
                self._add(self.folders, _names_in_word(word) if before[:1] == "-" or RUNNERS[name] else ())
            self._add_effects(name, words)
            return
        if found is None:
            if name not in BUILDS and name != "git":
                for word in words[1:]:
                    self._add(self.folders, _names_in_word(word))
            if not is_proven:
                self._add(self.targets, (target for _, target in file_words(UnwrappedCommand(words, words, ()))))
                self._has_writer = self._has_writer or name not in NAMES_NO_TARGET
            self._add_effects(name, words)
        if dynamic:
            self._add_dynamic(name, words, dynamic)

    def _add_effects(self, name: str, words: tuple[str, ...]) -> None:
        """What a command that is in no table may do besides using the files in its arguments."""
        is_sed_code = name == "sed" and find_concern(UnwrappedCommand(words, words, ()), ()) != ""
        is_code = is_sed_code or has_inline_code(name, words)
        has_url_glob = any(URL_GLOB.search(found[1]) for word in words[1:] for found in FILE_URL.finditer(word))
        if is_code or has_url_glob or _has_word(READS_LISTS, name, words):
            self.unknown_read = self.unknown_read or name
        changes_tree = name == "git" and parse_git_call(words).subcommand in GIT_CHANGES_TREE
        if is_code or _has_word(UNPACKS, name, words) or (changes_tree and words not in self._proven):
            self.unknown_write = self.unknown_write or name

    def _add_dynamic(self, name: str, words: tuple[str, ...], dynamic: str) -> None:
        """Add a command with a word that is only known at run time."""
        self.unknown_read = self.unknown_read or dynamic
        reads = name in READERS and name not in WRITING_READERS
        if reads or name in ONLY_READ:
            return
        self.unknown_write = self.unknown_write or dynamic
        if name in DELETERS and dynamic in FILLERS:
            return
        takes_code = INTERPRETERS.fullmatch(name) or SHELL.fullmatch(name)
        # Without a subcommand, as in `xargs git`, the input may name any.
        sets_key = name == "git" and ("config" in words or len(words) == 1 or dynamic == words[1])
        if sets_key or not (name in NAMES_NO_TARGET or takes_code):
            self.unknown_target = self.unknown_target or dynamic

    def _is_dynamic(self, value: str | None, raw: str) -> bool:
        """Whether a word is only known at run time. A process substitution is a pipe, and its command is searched."""
        if self._sets_home and USES_HOME.search(raw):
            return True
        if value is not None:
            return value == raw and EXPANSION.search(value) is not None
        if raw[:2] in ("<(", ">(") and raw.endswith(")"):
            return False
        return EXPANSION.search(HERE.sub("", HOME.sub("", QUOTES.sub("", raw)))) is not None

    def add_text(self, command: str) -> None:
        """Not everything that runs is known: any text that looks like a name may be a file."""
        found = (match[0] for match in NAME.finditer(command))
        self._add(self.words, dict.fromkeys(name for name in found if name[0] != "-"))

    def add_redirect(self, operator: str, target: str) -> None:
        if (operator, target) in self._known_redirects or target == DEV_NULL or DUPLICATE.fullmatch(operator + target):
            return
        name = QUOTES.sub("", target)
        self._add(self.reads if operator == "<" else self.writes, [name])
        if name[:2] not in ("<(", ">(") and (WILD.search(name) or self._is_dynamic(None, name)):
            if operator != ">" and "<" in operator:
                self.unknown_read = self.unknown_read or name
            if operator != "<":
                self.unknown_write = self.unknown_target = name

    def finish(self) -> None:
        """Nothing more is added. Only so many names are checked."""
        kinds = (self.reads, self.writes, self.words, self.patterns, self.folders, self.targets)
        self.too_many = any(len(kind) > MAX_NAMES for kind in kinds)
        self.has_unknown_folder = self._bases.has_unknown_folder
        if self.has_unknown_folder and (self._has_writer or self.writes):
            self.unknown_target = self.unknown_target or "its folder is not known"
        for kind in kinds:
            for name in list(kind)[MAX_NAMES:]:
                del kind[name]

    def _add(self, to: dict[str, None], names: Iterable[str]) -> None:
        for name in names:
            if len(to) > MAX_NAMES:
                return
            if (id(to), name) not in self._added:
                self._added.add((id(to), name))
                to.update(dict.fromkeys(self._bases.resolve_all(name)))


def _may_set_home(candidate: CommandWords) -> bool:
    """Whether a command may set HOME without naming it: `export "$x"`, `. file`."""
    name = candidate.words[0] if candidate.words else None
    if name not in SETS_VARIABLES or (name == "printf" and only_prints([word or "-" for word in candidate.words])):
        return False
    if name in ("source", "."):
        return True
    exports = name in ("export", "readonly")
    pairs = zip(candidate.words[1:], candidate.raw_words[1:], strict=True)
    unknown = (value for value, raw in pairs if not (exports and EXPORTED.match(raw)))
    return any(value is None or "HOME" in value or "PWD" in value for value in unknown)


def _may_expand(raw: str, only_reads: bool) -> bool:
    """Whether a word may become other names. What a reader may get is compared with the rules, unless it is nested."""
    return may_expand(BRACES.sub("", raw) if only_reads else raw) and ("{" in raw or not only_reads)


def _is_text(name: str, before: str, raw: str) -> bool:
    """Whether a word is not a file: a quoted message, or `{}` in the command that find runs, which is searched too."""
    return (name == "git" and before in MESSAGES and raw[:1] == '"') or (name == "find" and raw == "{}")


def _has_word(table: Mapping[str, re.Pattern[str]], name: str, words: Sequence[str]) -> bool:
    form = table.get(name)
    return form is not None and any(map(form.fullmatch, words[1:]))


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
    names += FILE_URL.findall(word)
    if "%" in word:
        names += [unquote(name) for name in names]
    if word[:1] == "-" and word[:2] != "--":
        names.append(word[2:])
    return [name for name in names if name and name[0] != "-" and may_be_path(name)]


def is_critical_delete(command: str, cwd: str, home: str) -> bool:
    """Whether some command in the text deletes a critical folder. Raises OverBudget."""
    parts = [TOP.sub(lambda _: cwd, part).split() for part in survey_command(command).parts]
    targets = dict.fromkeys(found for words in parts for found in _find_deleted(words))
    if not targets:
        return False
    folders = dict.fromkeys([cwd, *(found for words in parts for found in _find_cd_folders(words, cwd, home))])
    if len(targets) * len(folders) > MAX_CHECKS:
        raise OverBudget(
            f"It may delete too many files to check: {len(targets):,} names in {len(folders):,} "
            f"folders (at most {MAX_CHECKS:,})"
        )
    return any(_is_critical(target, folder, home, recursive) for target, recursive in targets for folder in folders)


def _find_cd_folders(words: list[str], cwd: str, home: str) -> Iterator[str]:
    """The folder that a `cd` changes to, as far as it is known."""
    if words[:1] in (["cd"], ["pushd"]):
        plain = [QUOTES.sub("", word) for word in words[1:]]
        destination = POSSIBLE_HOME.sub(lambda _: home, find_cd_target(("cd", *plain), home) or plain[-1])
        yield posixpath.normpath(posixpath.join(cwd, destination))


def _find_deleted(words: list[str]) -> Iterator[tuple[str, bool]]:
    """What a command deletes, and whether recursively. The words are as written."""
    name = QUOTES.sub("", words[0]).rpartition("/")[2] if words else ""
    if name != "find" and name not in DELETERS:
        return
    plain = [QUOTES.sub("", word) for word in words]
    if name == "find":
        if "-delete" in plain or any(word.rpartition("/")[2] in DELETERS for word in plain):
            narrowed = any(word in NARROWING_TESTS for word in plain)
            starts = takewhile(lambda word: word[:1] != "-", plain[1:])
            yield from ((word, True) for word in starts if not narrowed or word[:1] in "/~$")
        return
    recursive = any(re.fullmatch(r"-[A-Za-z]*[rR][A-Za-z]*|--r(?:ecursive|ecursiv|ecur|ec)?", word) for word in plain)
    for word in plain[1:]:
        if word[:1] != "-":
            yield from ((each, recursive) for each in _expand_braces(word))


def _expand_braces(word: str) -> list[str]:
    """`a{b,c}` is `ab` and `ac`; the word itself stays in the list, as braces may be literal."""
    found = BRACE.search(word)
    if found is None:
        return [word]
    return [word, *(word[: found.start()] + each + word[found.end() :] for each in found[1].split(","))]


def _is_critical(target: str, cwd: str, home: str, recursive: bool) -> bool:
    if OTHER_HOME.match(target) or len(target) > MAX_NAME_CHARACTERS:
        return True
    path = POSSIBLE_HERE.sub(lambda _: cwd, POSSIBLE_HOME.sub(lambda _: home, target))
    emptied = ANY_EXPANSION.sub("", path)
    if emptied == "":
        return False
    if recursive and emptied in ("*", ".*", "./*"):
        return emptied == path
    whole = ALL_IN_IT.sub("", emptied) if ALL_IN_IT.search(emptied) else emptied
    if whole == "":
        return True
    resolved = "/" + posixpath.normpath(posixpath.join(cwd, whole)).lstrip("/")
    if emptied != path:
        return emptied.startswith("/") and resolved in SYSTEM
    return (
        resolved.count("/") == 1
        or resolved in SYSTEM
        or _is_at_or_above(resolved, cwd)
        or _is_at_or_above(resolved, home)
    )


def _is_at_or_above(folder: str, path: str) -> bool:
    """Whether a folder is the path itself or above it."""
    return posixpath.normpath(path) == folder or path.startswith(folder.rstrip("/") + "/")
