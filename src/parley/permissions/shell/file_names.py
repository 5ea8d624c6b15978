"""File names that are not in the text of a line: what a glob matches, and what another command prints.

    expand("src/*.py", "/w", lookup)          the names that a glob matches now, and the folders that were listed
    feed = find_feed(command, before)         `find . -name '*.py' | xargs wc -l`: the reader, and the source of names
    feed.list_names("/w", fs)                 the names that the tree or the index of git has now; None if not known

An expansion contains at least what bash finds, in every locale and version: a character class matches any text,
and `.*` matches `..` too. Only folders that bash would list are listed.

A name reaches a fed reader in four ways that it must not: as a flag, split at a blank into two other names, through a
symlink, and as a path out of the tree, which only a forged index has. So every name is looked at: it must not begin
with a dash or, unless the names end with NUL, contain a blank, a quote or a backslash, and symlinks are reported apart.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from parley.permissions.base import word_set
from parley.permissions.filesystem import MAX_ENTRIES, EntryKind, Filesystem
from parley.permissions.git.repository import MAX_INDEX_BYTES, find_repositories, read_index_names
from parley.permissions.shell.arguments import FLAGS, Program, parse_arguments, unwrap
from parley.permissions.shell.readers import (
    checks_sums,
    files_read,
    find_followed_folders,
    has_safe_assignments,
    program_name,
    reads_whole_folders,
)
from parley.permissions.shell.special_readers import FIND_NEWER, FIND_TESTS_WITH_VALUE, check_find
from parley.permissions.shell.strict_parser import DEV_NULL, TOKEN, SimpleCommand
from parley.protocol.base import Struct

MAX_TESTS = 50_000
"""Names that are compared with the globs of one line."""
MAX_WORD_CHARACTERS = 1_024
STATUS = "\0"
"""Stands for `$?` in a word."""
IN_QUOTES = re.compile(r'\\([\\"$`])|\$\?')

Char = tuple[str, bool]
"""A character of a word, and whether it is literal."""
NAME = "./name"
"""Stands for the names in the arguments of the reader."""
MAX_FOLDERS = 300
PLAIN_NAME = re.compile(r"[!#-&(-\[\]-~]+")
"""A name that `xargs` takes as it is."""
NOT_READERS = word_set("git find diff cmp comm cd command xargs strings")
"""`strings` reads the names of files from one whose name begins with `@`."""
FILTERS = {
    "sort": Program(short="uVrf", max_operands=0),
    "uniq": Program(max_operands=0),
    "head": Program(short="n:", number_flags=True, max_operands=0),
    "tail": Program(short="n:", number_flags=True, max_operands=0),
    "grep": Program(short="viEFw", min_operands=1, max_operands=1),
}
"""Programs that print some of the lines they read."""
LISTERS = {
    "grep": Program(short="rlLiwFEse:I", long="include= exclude= exclude-dir= null", operands="pattern"),
    "rg": Program(short="lLiwFSe:g:t:0", long="files files-with-matches glob= type= null hidden", operands="pattern"),
}
"""Searches that print the names of files, if they have one of the flags of NAMES_ONLY."""
NAMES_ONLY = ("l", "L", "files", "files-with-matches")
LS_FILES = Program(short="czm", long="cached modified deduplicate")
NOT_LISTED = word_set("-L -H -follow -printf -ls -depth -d")
"""Arguments with which `find` follows symlinks, prints more than names, or enters what it should prune."""
ANY_OF = word_set("-o -or , ( )")
SIMPLE_PATTERN = re.compile(r"[\w.*+-]+", re.ASCII)
PATHSPEC = re.compile(r"\*[\w.+-]+|(?!.*\.\.)\w[\w./+-]*", re.ASCII)
"""The end of a name, or a folder below the current one."""
EXCLUDED = re.compile(r"(?:\./(?P<top>[\w.@-]+)|(?P<any>\*/[\w.@-]+))/\*", re.ASCII)
UNUSUAL_INDEX = (b"link\0\0", b"sdir\0\0")


class GlobLookup:
    """File system access for globs, with a limit."""

    def __init__(self, entries: Callable[[str], Mapping[str, EntryKind] | None], exists: Callable[[str], bool]) -> None:
        self.entries = entries
        self.exists = exists
        self.tests_left = MAX_TESTS


class Expansion(Struct, frozen=True):
    words: tuple[str, ...]
    """What bash may replace the glob with: the names, or the glob itself if nothing matches."""
    folders: tuple[str, ...]
    """The folders that were listed."""
    non_links: tuple[str, ...]
    """The matching paths that are not symlinks, in folders that were listed."""


class _Match(Struct, frozen=True):
    word: str
    kind: EntryKind | None = None
    """The kind of the last name, if its folder was listed."""


def expand(raw: str, folder: str, lookup: GlobLookup) -> Expansion | None:
    """The names that a word, as written, matches in a folder; None if there are too many to check."""
    if len(raw) > MAX_WORD_CHARACTERS or "<<" in raw:
        return None  # longer than a path, or with a here-document
    pieces = _split_pieces(raw)
    found, folders = [_Match("")], dict[str, None]()
    listed = False
    for index, piece in enumerate(pieces):
        end = "/" if index + 1 < len(pieces) else ""
        matches_name = _compile_piece(piece)
        if matches_name is None:
            text = "".join(char for char, _ in piece)
            found = [_Match(f"{one.word}{text}{end}") for one in found]
            if listed and text:
                found = [one for one in found if lookup.exists(posixpath.join(folder, one.word.rstrip("/")))]
                folders.update((posixpath.dirname(posixpath.join(folder, one.word.rstrip("/"))), None) for one in found)
            continue
        following: list[_Match] = []
        for one in found:
            where = posixpath.join(folder, one.word)
            names = lookup.entries(where)
            lookup.tests_left -= 0 if names is None else len(names)
            if names is None or lookup.tests_left < 0:
                return None
            if names or not listed:
                folders[where] = None
            following += [
                _Match(f"{one.word}{name}{end}", kind) for name, kind in _match_names(names, piece, matches_name, end)
            ]
        found, listed = following, True
    plain = [posixpath.join(folder, one.word) for one in found if one.kind in ("file", "folder")]
    words = tuple(one.word for one in found) if listed else ()
    itself = "/".join(map(_format_piece, pieces))
    # We may match more than bash does; where bash matches nothing, it keeps the word as it is.
    if not words or (itself not in words and lookup.exists(posixpath.join(folder, itself))):
        words = (itself, *words)
    return Expansion(words, tuple(folders), tuple(plain))


def is_pattern(raw: str) -> bool:
    """Whether a word is a glob. A word with `$?` is unknown until it runs, but not a glob."""
    return len(raw) > MAX_WORD_CHARACTERS or any(_compile_piece(piece) is not None for piece in _split_pieces(raw))


def _match_names(
    names: Mapping[str, EntryKind], piece: Sequence[Char], matches_name: Callable[[str], bool], end: str
) -> Iterator[tuple[str, EntryKind]]:
    hidden = piece[0] == (".", True)
    for name, kind in names.items():
        if (name[0] != "." or hidden) and not (end and kind == "file") and matches_name(name):
            yield name, kind
    if hidden:
        yield from ((name, "link") for name in (".", "..") if matches_name(name))


def _format_piece(piece: Sequence[Char]) -> str:
    return "".join("$?" if char == STATUS else char for char, _ in piece)


@lru_cache(maxsize=64)
def _split_pieces(raw: str) -> tuple[tuple[Char, ...], ...]:
    """The characters between the slashes of a word."""
    pieces: list[list[Char]] = [[]]
    for char, literal in _iter_chars(raw):
        if char == "/":
            pieces.append([])
        else:
            pieces[-1].append((char, literal))
    return tuple(map(tuple, pieces))


def _iter_chars(raw: str) -> Iterator[Char]:
    """The characters of a word without its quotes."""
    for token in TOKEN.finditer(raw):
        kind, text = token.lastgroup, token[0]
        if kind == "glob":
            yield (STATUS if text == "$?" else text), False
        elif kind == "double":
            inner = IN_QUOTES.sub(lambda found: found[1] or STATUS, text[1:-1])
            yield from ((char, char != STATUS) for char in inner)
        else:
            inner = text[1:-1] if kind == "single" else text[1:] if kind == "escape" else text
            yield from ((char, True) for char in inner)


@lru_cache(maxsize=64)
def _compile_piece(piece: tuple[Char, ...]) -> Callable[[str], bool] | None:
    """A test whether a name matches a piece; None if the piece has no wildcard."""
    if not any(not literal and char in "*?[" for char, literal in piece):
        return None
    strict, loose = (re.compile(_build_regex(piece, loose), re.DOTALL).fullmatch for loose in (False, True))
    # The number of characters in a non-ASCII name depends on the locale.
    return lambda name: (strict if name.isascii() else loose)(name) is not None


def _build_regex(piece: Sequence[Char], loose: bool) -> str:
    """Between two stars the length is fixed, so each star can match as little as possible (workspace/globs.py).

    A character class may match anything: which letters are in it depends on the locale, and where it ends on bash.
    """
    parts, index = [""], 0
    while index < len(piece):
        char, literal = piece[index]
        index += 1
        closed = 0
        if not literal and char == "[":
            closed = max((at for at in range(index + 1, len(piece)) if piece[at][0] == "]"), default=0)
        if closed or (not literal and char in ("*", STATUS)) or (loose and not literal and char == "?"):
            parts.append("")
            index = closed + 1 if closed else index
        elif not literal and char == "?":
            parts[-1] += "."
        else:
            parts[-1] += re.escape(char)
    first, *others = parts
    if not others:
        return first
    return f"{first}{''.join(f'(?>.*?{part})' for part in others[:-1] if part)}.*{others[-1]}"


class Names(Struct, frozen=True):
    """Paths as the source prints them."""

    folders: tuple[str, ...]
    """The folders that were listed."""
    files: tuple[str, ...]
    links: tuple[str, ...]


class NameSource(Struct, frozen=True, kw_only=True):
    """Which names a command prints."""

    starts: tuple[str, ...] = (".",)
    names: tuple[str, ...] = ()
    """Globs, one of which the last part of a name matches; all names if empty."""
    excluded: frozenset[str] = frozenset()
    """Folders whose files are not printed: paths, and `*/name` for any folder of that name."""
    max_depth: int = 256
    only_files: bool = False
    is_tracked: bool = False
    """The names are those of the index of git."""
    ends_with_nul: bool = False


class Feed(Struct, frozen=True):
    reader: SimpleCommand
    """The command that reads the files, with NAME in place of their names."""
    source: NameSource
    is_split: bool
    """The names are read from a pipe, and split at blanks."""
    reads: tuple[str, ...]
    """The files that are read besides."""

    def list_names(self, folder: str, fs: Filesystem) -> Names | None:
        """The names that the source may print; None if they cannot all be checked."""
        found = _list_tracked(self.source, folder, fs) if self.source.is_tracked else _walk(self.source, folder, fs)
        if found is None:
            return None
        for name in (*found.files, *found.links):
            if name[:1] == "-" or (self.is_split and not PLAIN_NAME.fullmatch(name)):
                return None
        return found


def find_feed(command: SimpleCommand, before: Sequence[SimpleCommand]) -> Feed | None:
    """The feed of a command in a line; None if it has none, or one that is not known. `before` are earlier commands."""
    if command.globs or command.document is not None or not has_safe_assignments(command):
        return None
    if any(redirect.writes or redirect.reads for redirect in command.redirects):
        return None
    if command.argv and program_name(command.argv[0]) == "find":
        return _find_executed(command.argv)
    inner = unwrap(command)
    if inner is None or inner.wrappers != ("xargs",):
        return None
    flags = parse_arguments(FLAGS["xargs"], command.argv[: len(command.argv) - len(inner.argv)])
    source = _find_source(command, before)
    if flags is None or source is None or source.ends_with_nul != flags.has_flag("0", "null"):
        return None
    reader = _make_reader((*inner.argv, NAME))
    return Feed(reader, source, not source.ends_with_nul, _other_files(reader)) if reader else None


def _make_reader(argv: tuple[str, ...]) -> SimpleCommand | None:
    """The command, if it reads its operands and nothing else, wherever they lead."""
    command = SimpleCommand(argv, argv, " ".join(argv), globs=(argv.index(NAME),))
    if program_name(argv[0]) in NOT_READERS or files_read(command) is None or reads_whole_folders(argv):
        return None
    return None if find_followed_folders(command) or checks_sums(command) else command


def _other_files(reader: SimpleCommand) -> tuple[str, ...]:
    return tuple(file for file in files_read(reader) or () if file != NAME)


def _find_executed(argv: tuple[str, ...]) -> Feed | None:
    """`find src -name x -exec head {} +`: the names are arguments, so they are not split."""
    begin = argv.index("-exec") if argv.count("-exec") == 1 else len(argv)
    end = next((at for at in range(begin, len(argv)) if argv[at] in (";", "+")), None)
    if end is None or argv[begin + 1 : end].count("{}") != 1 or (argv[end] == "+" and argv[end - 1] != "{}"):
        return None
    tests = (*argv[:begin], *argv[end + 1 :])
    source = _parse_find(tests, executes=True)
    reader = _make_reader(tuple(NAME if word == "{}" else word for word in argv[begin + 1 : end])) if source else None
    if reader is None or source is None:
        return None
    return Feed(reader, source, False, (*(check_find(tests, ()) or ()), *_other_files(reader)))


def _find_source(command: SimpleCommand, before: Sequence[SimpleCommand]) -> NameSource | None:
    """What the command before a pipe prints, also through filters."""
    for earlier in reversed(before):
        if command.before != "|" or earlier.after != "|" or earlier.globs or not earlier.argv:
            return None
        if any((redirect.descriptor, redirect.target) != ("2", DEV_NULL) for redirect in earlier.redirects):
            return None  # messages would be taken for names
        name = program_name(earlier.argv[0])
        filtering = FILTERS.get(name)
        found = parse_arguments(filtering, earlier.argv) if filtering else None
        if found is None or earlier.before != "|":
            return _parse_source(name, earlier.argv)
        command = earlier
    return None


def _parse_source(name: str, argv: tuple[str, ...]) -> NameSource | None:
    if name == "find":
        return _parse_find(argv)
    if argv[:2] == ("git", "ls-files"):
        listed = parse_arguments(LS_FILES, argv, 2)
        patterns = listed.list_operands(argv) if listed else ()
        if listed is None or not all(map(PATHSPEC.fullmatch, patterns)):
            return None
        only_names = patterns if all(pattern[0] == "*" for pattern in patterns) else ()
        return NameSource(names=only_names, is_tracked=True, ends_with_nul=listed.has_flag("z"))
    program = LISTERS.get(name)
    found = parse_arguments(program, argv) if program else None
    if found is None or not found.has_flag(*NAMES_ONLY) or (name == "grep" and not found.has_flag("r")):
        return None
    if name == "rg" and found.has_flag("L"):
        return None
    has_pattern = found.has_flag("e", "files")
    starts = found.list_operands(argv)[0 if has_pattern else 1 :]
    return NameSource(starts=starts or (".",), only_files=True, ends_with_nul=found.has_flag("0", "null"))


def _parse_find(argv: tuple[str, ...], *, executes: bool = False) -> NameSource | None:
    """The names that `find` prints, or runs a command with, at most."""
    if check_find(argv, ()) is None or NOT_LISTED.intersection(argv):
        return None
    begin = next((at for at in range(1, len(argv)) if argv[at][:1] in ("-", "(", "!")), len(argv))
    starts, words, excluded = argv[1:begin] or (".",), list(argv[begin:]), set[str]()
    while words[:1] in (["-path"], ["-name"]) and words[2:4] == ["-prune", "-o"]:
        if not executes and not {"-print", "-print0"}.intersection(argv):
            return None  # the folder itself would be printed too
        pruned = f"*/{words[1]}" if words[0] == "-name" else words[1]
        excluded.update([pruned.removeprefix("./")] if EXCLUDED.fullmatch(f"{pruned}/*") else ())
        words = words[4:]
    names, only_files, max_depth, index, is_negated = list[str](), False, 256, 0, False
    is_conjunction = not ANY_OF.intersection(words)
    while index < len(words):
        word = words[index]
        takes_value = word in FIND_TESTS_WITH_VALUE or FIND_NEWER.fullmatch(word) is not None
        value = words[index + 1] if takes_value else ""
        index += 2 if takes_value else 1
        if word in ("!", "-not"):
            is_negated = not is_negated
            continue
        match = EXCLUDED.fullmatch(value) if word in ("-path", "-wholename") else None
        if word == "-maxdepth" and value.isdigit():
            max_depth = int(value)
        elif is_conjunction and is_negated:
            excluded.update([match["top"] or match["any"]] if match else ())
        elif is_conjunction and word == "-name" and SIMPLE_PATTERN.fullmatch(value):
            names.append(value)
        elif is_conjunction and (word, value) == ("-type", "f"):
            only_files = True
        is_negated = False
    return NameSource(
        starts=tuple(starts),
        names=tuple(names[:1]),
        excluded=frozenset(excluded),
        max_depth=max_depth,
        only_files=only_files,
        ends_with_nul="-print0" in argv,
    )


# Names.


def _walk(source: NameSource, folder: str, fs: Filesystem) -> Names | None:
    """The names in the folders at which a source starts."""
    is_printed = _compile(source.names)
    files, links, folders = list[str](), list[str](), list[str]()
    pending = [(start.rstrip("/") or "/", 0) for start in source.starts]
    while pending:
        path, depth = pending.pop()
        entries = fs.entries(posixpath.join(folder, path), MAX_ENTRIES) if len(folders) < MAX_FOLDERS else None
        if entries is None:
            return None
        folders.append(path)
        for name, kind in entries.items() if depth < source.max_depth else ():
            below = name if path == "." else posixpath.join(path, name)
            if kind == "folder":
                is_excluded = below in source.excluded or f"*/{name}" in source.excluded
                pending += [] if is_excluded else [(below, depth + 1)]
            if is_printed(name) and not (source.only_files and kind != "file"):
                (links if kind == "link" else files).append(below)
    return Names(tuple(folders), tuple(files), tuple(links))


def _list_tracked(source: NameSource, folder: str, fs: Filesystem) -> Names | None:
    """The names in the index of git, below a folder. A folder on their way must not be a symlink."""
    found, real = find_repositories(folder, fs), fs.resolve(folder).real
    if real is None or len(found) != 1 or not found[0].is_certain or found[0].is_bare or found[0].problem:
        return None
    data = fs.read(posixpath.join(found[0].gitdir, "index"), MAX_INDEX_BYTES)
    is_whole = data is not None and not any(mark in data for mark in UNUSUAL_INDEX)
    tracked = read_index_names(data) if data is not None and is_whole else None
    inside = posixpath.relpath(real, found[0].top)
    prefix = "" if inside == "." else f"{inside}/"
    if tracked is None or prefix.startswith("../"):
        return None
    is_printed = _compile(source.names)
    files, links, folders = list[str](), list[str](), dict[str, Mapping[str, EntryKind]]()
    for path in tracked:
        if not path.startswith(prefix) or not is_printed(posixpath.basename(path)):
            continue
        name = path[len(prefix) :]
        parts = name.split("/")
        kind: EntryKind | None = "folder"
        for depth, part in enumerate(parts):
            parent = "/".join(parts[:depth]) or "."
            if kind == "link" or (parent not in folders and len(folders) >= MAX_FOLDERS):
                return None
            if parent not in folders:
                entries = fs.entries(posixpath.join(folder, parent), MAX_ENTRIES)
                if entries is None:
                    return None
                folders[parent] = entries
            kind = folders[parent].get(part)
            if kind is None:
                break
        if kind is None and fs.exists(posixpath.join(folder, name)):
            return None  # under another spelling
        (links if kind == "link" else files).append(name)
    return Names(tuple(folders), tuple(files), tuple(links))


def _compile(patterns: Sequence[str]) -> Callable[[str], object]:
    """A test whether one of these globs, with only `*`, matches a name."""
    if not patterns:
        return bool
    regex = "|".join(".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns)
    return re.compile(regex, re.DOTALL).fullmatch
