"""The files that a proven line reads and writes, as absolute paths.

`cd` is followed: after `cd sub &&` names are below `sub`. If it is not certain that the `cd` took place, they are below
both folders (CVE-2026-25722). Globs are expanded to the files that exist now. A path keeps its `..`, because the
symlinks before it decide where it leads.

EDITS is the closed list of commands that change files in a way that their arguments show (CVE-2026-25723). Each row
says which flags are allowed and which operands are read and written. A command outside the list, an unknown flag, or a
`sed` script that does more than edit lines may touch any file.

If a line changes to an unknown folder, or names too many files to check, there is an `unknown_reason`, and the files
are not complete.

See also: the files of commands that only read (readers.py).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from parley.permissions.filesystem import MAX_ENTRIES, Filesystem, normalize_path
from parley.permissions.shell.arguments import (
    CD_COMMANDS,
    IN_SHELL,
    find_cd_target,
    parse_arguments,
    program_table,
    unwrap,
)
from parley.permissions.shell.file_names import GlobLookup, expand, find_feed, is_pattern
from parley.permissions.shell.readers import (
    checks_sums,
    files_read,
    find_followed_folders,
    has_safe_assignments,
    program_name,
)
from parley.permissions.shell.special_readers import edits_lines
from parley.permissions.shell.strict_parser import ONE_WORD, CommandLine, SimpleCommand
from parley.protocol.base import Struct

GLOB = re.compile(r"[*?\[]")
STATUS = "$?"
DELETERS = frozenset(["rm", "rmdir", "unlink", "shred"])
SURE_BEFORE = ("", ";", "\n", "&&")
"""Operators before a command that certainly runs if the next command of its `&&` chain runs."""
MAX_FOLDERS = 32
MAX_NAMES = 1_000
MAX_EFFORT = 100_000
"""The cost of paths: one per character, and `PER_PATH` for each path."""
PER_PATH = 40
TOO_MANY_FOLDERS = f"It changes the folder so often that its files may be in more than {MAX_FOLDERS} folders"
DEPENDS_ON_STATUS = "A file name in it depends on the exit status of another command"
LIST_UNKNOWN = "{name} reads files that are named in a list, and the list is not checked"
SPLIT_NAMES = "A file that {word} matches has a blank or a special character in its name"
WILD_FOLDER = "The name of the current folder has a special character"
TOO_MANY_NAMES = "It names too many files to check, or their paths are too long"


class FileOperands(Struct, frozen=True):
    """Files as written in the command."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    """Files that get a new name: the old name and the new one."""
    copies_folders: bool = False


class TargetStep(Struct, frozen=True):
    """The files of one command of a line."""

    names: tuple[str, ...]
    moves: tuple[tuple[str, str], ...]
    copies_folders: bool
    folders: tuple[str, ...] = ()
    """The folders in which it may run; empty if they are not known."""
    fed: tuple[str, ...] = ()
    """Globs for the names of the files, if another command names them, it only reads them, and all are known."""


NO_FILES = TargetStep((), (), False)


class Targets(Struct, frozen=True):
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    unknown: bool = False
    """Some command may read or write more: it is not in the tables, or not all its files are known."""
    unknown_reason: str = ""
    """Why not all files of the commands in the tables are known."""
    followed: tuple[tuple[str, bool], ...] = ()
    """Folders in which symlinks are followed, and whether at any depth."""
    non_links: frozenset[str] = frozenset()
    """Files matched by a glob that are not symlinks; each is in a folder among `reads`."""
    fed: tuple[str, ...] = ()
    """Files that one command names and another reads. They are not symlinks, and in folders among `reads`."""


class _Tracker:
    """Goes through a line command by command, with the folders in which each may run."""

    def __init__(self, cwd: str, fs: Filesystem | None, text: str, home: str | None) -> None:
        self.folders: tuple[str, ...] = (cwd,)
        self.fallback_folders: tuple[str, ...] = ()
        """The folders of a later command if the `cd` of the current `&&` chain fails."""
        self.reads: dict[str, None] = {}
        self.writes: dict[str, None] = {}
        self.followed: dict[tuple[str, bool], None] = {}
        self.non_links: set[str] = set()
        self.unknown = False
        self.unknown_reason = ""
        self.has_edits = False
        self.has_patterns = False
        self.steps: list[TargetStep] = []
        self.fed: dict[str, None] = {}
        self._before: list[SimpleCommand] = []
        self._fed_globs: tuple[str, ...] = ()
        self._effort_left = MAX_EFFORT
        self._fs = fs
        self._lookup: GlobLookup | None = None
        # A line that mentions one of these may change where `cd` leads.
        self._home = home if home and "HOME" not in text and "CDPATH" not in text else None
        self._sets_cdpath = "CDPATH" in text

    def add_command(self, command: SimpleCommand) -> None:
        if command.before != "&&":
            self._set_folders(_union(self.folders, self.fallback_folders))
            self.fallback_folders = ()
        if command.opaque and any(map(GLOB.search, self.folders)):
            self._mark_unknown(WILD_FOLDER)
        if command.globs:
            self.has_patterns = self.has_patterns or any(
                is_pattern(command.words[index]) for index in command.globs if index not in command.opaque
            )
        fed = self._find_fed_operands(command) if files_read(command) is None else None
        operands = self._find_operands(command) if fed is None else fed
        steps = [self._add_files(found, folders) for found, folders in operands]
        steps += [self._add_files(_redirect_operands(command), self.folders)] if command.redirects else []
        self.steps.append(_merge_steps(steps, self.folders, self._fed_globs if fed is not None else ()))
        self._before.append(command)
        inner = unwrap(command)
        if inner is not None and inner.argv[0] in CD_COMMANDS:
            self._change_directory(inner.argv, command, in_shell=IN_SHELL.issuperset(inner.wrappers))

    def _find_operands(self, command: SimpleCommand) -> Iterator[tuple[FileOperands, tuple[str, ...]]]:
        """The files of a command, with the folders they are in; a glob is expanded in each folder separately."""
        found = find_file_operands(command)
        if found is None:
            self.unknown = self.has_edits = True
            yield FileOperands(), self.folders
            return
        self.has_edits = self.has_edits or bool(found.writes)
        if checks_sums(command):
            self._mark_unknown(LIST_UNKNOWN.format(name=command.argv[0]))
        if not command.globs or self._fs is None:
            self.unknown = self.unknown or bool(command.globs)
            self._add_followed(command, self.folders)
            yield found, self.folders
            return
        entries = partial(self._fs.entries, limit=MAX_ENTRIES)
        lookup = self._lookup = self._lookup or GlobLookup(entries, self._fs.exists)
        for folder in self.folders:
            concrete = self._expand_globs(command, folder, lookup)
            if concrete is None:
                yield found, (folder,)
                continue
            names = find_file_operands(concrete)
            if names is None:
                self._mark_unknown(
                    f"{command.argv[0]} would take a file name as a flag, and it is not known whether "
                    "that flag only reads"
                )
                yield found, (folder,)
                continue
            if any(STATUS in name for name in (*names.reads, *names.writes)):
                self._mark_unknown(DEPENDS_ON_STATUS)
            self._add_followed(concrete, (folder,))
            yield names, (folder,)

    def _find_fed_operands(self, command: SimpleCommand) -> list[tuple[FileOperands, tuple[str, ...]]] | None:
        """The files of a reader that gets their names from another command; None if they are not all known."""
        feed = find_feed(command, self._before) if self._fs is not None and self.folders else None
        if feed is None or self._fs is None:
            return None
        listed = [(folder, feed.list_names(folder, self._fs)) for folder in self.folders]
        found = list[tuple[FileOperands, tuple[str, ...]]]()
        for folder, names in listed:
            if names is None:
                return None
            self.fed.update(dict.fromkeys(_make_absolute(posixpath.join(folder, name)) for name in names.files))
            found.append((FileOperands(reads=(*feed.reads, *names.folders, *names.links)), (folder,)))
        # The names are those before the line runs.
        self.has_patterns, self._fed_globs = True, feed.source.names or ("*",)
        return found

    def _expand_globs(self, command: SimpleCommand, folder: str, lookup: GlobLookup) -> SimpleCommand | None:
        """The command with its globs expanded. The folders that are listed for this count as read."""
        argv: list[str] = []
        for index, word in enumerate(command.argv):
            if index not in command.globs or index in command.opaque:
                argv.append(word)
                continue
            if STATUS in word and is_pattern(command.words[index]):
                self._mark_unknown(DEPENDS_ON_STATUS)
                return None
            found = expand(command.words[index], folder, lookup)
            if found is None or len(argv) + len(found.words) > MAX_NAMES:
                self._mark_unknown(f"{word} matches more files than can be checked")
                return None
            if self.has_edits and GLOB.match(word) and any(name[0] == "-" for name in found.words):
                self._mark_unknown(f"{command.argv[0]} would take a file name that {word} matches as a flag")
                return None
            if index in command.split and not all(ONE_WORD.fullmatch(name) for name in found.words if name != word):
                self._mark_unknown(SPLIT_NAMES.format(word=word))
            self._add(self.reads, found.folders, (folder,))
            self.non_links.update(map(_make_absolute, found.non_links))
            argv += found.words
        return SimpleCommand(tuple(argv), tuple(argv), command.text)

    def _add_files(self, found: FileOperands, folders: tuple[str, ...]) -> TargetStep:
        reads = self._add(self.reads, found.reads, folders) if found.reads else []
        writes = self._add(self.writes, found.writes, folders) if found.writes else []
        if not reads and not writes:
            return NO_FILES
        before = (part for name in (*found.reads, *found.writes) for part in _parts_before_parent(name))
        named = map(normalize_path, (*reads, *writes, *self._resolve(before, folders)))
        if not found.moves:
            return TargetStep(tuple(dict.fromkeys(named)), (), found.copies_folders)
        pairs = [(self._resolve([old], folders), self._resolve([new], folders)) for old, new in found.moves]
        all_moves = ((normalize_path(old), normalize_path(new)) for olds, news in pairs for old in olds for new in news)
        moves = tuple(islice(all_moves, MAX_NAMES))
        if len(moves) == MAX_NAMES:
            self._mark_unknown(TOO_MANY_NAMES)
        return TargetStep(tuple(dict.fromkeys(named)), moves, found.copies_folders)

    def _add_followed(self, command: SimpleCommand, folders: tuple[str, ...]) -> None:
        for name, deep in find_followed_folders(command):
            self.followed.update(((path, deep), None) for path in self._resolve([name], folders))

    def _change_directory(self, argv: tuple[str, ...], command: SimpleCommand, *, in_shell: bool) -> None:
        destination = find_cd_target(argv, self._home)
        if destination is None or (self._sets_cdpath and destination[:1] != "/"):
            self._mark_unknown(f"It is not known which folder {' '.join(argv)} leads to")
            self._set_folders(())
            return
        self._add(self.reads, (destination,), self.folders)
        moved = tuple(
            dict.fromkeys(path for folder in self.folders for path in self._find_cd_results(folder, destination))
        )
        is_certain = in_shell and command.after == "&&" and command.before in SURE_BEFORE
        self.fallback_folders = _union(self.fallback_folders, self.folders)
        self._set_folders(moved if is_certain else _union(self.folders, moved))

    def _find_cd_results(self, folder: str, destination: str) -> Iterator[str]:
        """Where `cd` leads: bash normalizes the path as text; with `-P` it follows the symlinks before `..`."""
        path = posixpath.join(folder, destination)
        yield normalize_path(path)
        if self._fs is not None and ".." in destination:
            real = self._fs.resolve(path).real
            if real is not None and real != self._fs.resolve(normalize_path(path)).real:
                yield real

    def _set_folders(self, folders: tuple[str, ...]) -> None:
        if len(folders) > MAX_FOLDERS:
            self._mark_unknown(TOO_MANY_FOLDERS)
            folders = ()
        self.folders = folders

    def _add(self, to: dict[str, None], names: Iterable[str], folders: tuple[str, ...]) -> list[str]:
        found = self._resolve(names, folders)
        to.update(dict.fromkeys(found if self._fs else map(normalize_path, found)))
        if len(to) > MAX_NAMES:
            self._mark_unknown(TOO_MANY_NAMES)
        return found

    def _resolve(self, names: Iterable[str], folders: tuple[str, ...]) -> list[str]:
        """The paths of names in some folders, up to the limit."""
        found: list[str] = []
        for name in names:
            for folder in ("/",) if name.startswith("/") else folders:
                self._effort_left -= len(folder) + len(name) + PER_PATH
                if self._effort_left < 0:
                    self._mark_unknown(TOO_MANY_NAMES)
                    return found
                found.append(_make_absolute(posixpath.join(folder, name)))
        return found

    def _mark_unknown(self, reason: str) -> None:
        self.unknown = True
        self.unknown_reason = self.unknown_reason or reason

    def result(self) -> Targets:
        # What a command creates or moves, the globs of a later one may match.
        unknown = self.unknown or (self.has_patterns and self.has_edits and len(self._before) > 1)
        reads, writes, follows = tuple(self.reads), tuple(self.writes), tuple(self.followed)
        return Targets(reads, writes, unknown, self.unknown_reason, follows, frozenset(self.non_links), tuple(self.fed))


def track_files(
    line: CommandLine, cwd: str, fs: Filesystem | None, home: str | None = None
) -> tuple[Targets, tuple[TargetStep, ...]]:
    """The files of a line, in all and per simple command.

    `home` is the HOME of the shell, if it is not the user's. Without a file system, paths are normalized as text, a
    glob counts as its folder, and the target of `cd` without an argument is not known.
    """
    tracker = _Tracker(cwd, fs, line.text, home if home is not None or fs is None else fs.home)
    for command in line.commands:
        tracker.add_command(command)
    return tracker.result(), tuple(tracker.steps)


def find_targets(line: CommandLine, cwd: str, fs: Filesystem | None = None) -> Targets:
    return track_files(line, cwd, fs)[0]


def find_file_operands(command: SimpleCommand) -> FileOperands | None:
    """The files of a command; None if it is neither a known editor nor a known reader."""
    if not has_safe_assignments(command):
        return None
    files = files_read(command)
    if files is not None:
        return FileOperands(reads=tuple(map(_literal_folder, files)) if command.globs else files)
    edit = EDITS.get(program_name(command.argv[0])) if command.argv else None
    return None if edit is None else edit(command.argv)


def deletes(line: CommandLine) -> bool:
    """Whether a program of a proven line is one that deletes. What it runs in turn is not checked."""
    return any(command.argv and command.argv[0].rpartition("/")[2] in DELETERS for command in line.commands)


def _merge_steps(found: list[TargetStep], folders: tuple[str, ...], fed: tuple[str, ...]) -> TargetStep:
    if len(found) == 1:
        return TargetStep(found[0].names, found[0].moves, found[0].copies_folders, folders, fed)
    names = tuple(dict.fromkeys(name for step in found for name in step.names))
    moves = tuple(move for step in found for move in step.moves)
    return TargetStep(names, moves, any(step.copies_folders for step in found), folders, fed)


def _redirect_operands(command: SimpleCommand) -> FileOperands:
    reads = tuple(redirect.target for redirect in command.redirects if redirect.reads)
    return FileOperands(reads, tuple(redirect.target for redirect in command.redirects if redirect.writes))


def _parts_before_parent(name: str) -> Iterator[str]:
    """`a/b` for `a/b/../c`: a symlink there decides where the rest leads."""
    parts = name.split("/") if ".." in name else []
    return ("/".join(parts[:index]) for index, part in enumerate(parts) if part == ".." and index)


def _literal_folder(name: str) -> str:
    """The folder above everything that a glob matches."""
    return GLOB.split(name, maxsplit=1)[0].rpartition("/")[0] or "." if GLOB.search(name) else name


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _make_absolute(path: str) -> str:
    """Remove `.` and double slashes, but keep `..`."""
    if ".." not in path:
        return normalize_path(path)
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


# Commands that edit.

EditParser = Callable[[Sequence[str]], FileOperands | None]

EDITORS = program_table(
    """
    mkdir | min_operands=1: pvm: parents verbose mode=
    touch | min_operands=1: acmd:t:r: no-create date= reference= time=
    rm | min_operands=1: rRfdvI recursive force dir verbose preserve-root one-file-system
    rmdir | min_operands=1: v verbose ignore-fail-on-non-empty
    mv | min_operands=1: fnuvTt: force no-clobber update? verbose no-target-directory target-directory=
    cp | min_operands=1: rRafnpuvdPTt: recursive archive force no-clobber preserve? update? verbose no-dereference
        no-target-directory target-directory= reflink? sparse=
    sed: Erni::e:zs regexp-extended quiet silent in-place? expression= null-data separate
    """
)
RECURSIVE = ("r", "R", "a", "recursive", "archive")


def _parse_written(words: Sequence[str]) -> FileOperands | None:
    found = parse_arguments(EDITORS[words[0].rpartition("/")[2]], words)
    return None if found is None else FileOperands(writes=found.list_operands(words))


def _parse_touch(words: Sequence[str]) -> FileOperands | None:
    found = parse_arguments(EDITORS["touch"], words)
    return None if found is None else FileOperands(found.values("r", "reference"), found.list_operands(words))


def _parse_move(words: Sequence[str], name: str = "mv") -> FileOperands | None:
    found = parse_arguments(EDITORS[name], words)
    if found is None:
        return None
    operands, into = found.list_operands(words), found.values("t", "target-directory")
    if not into and len(operands) < 2:
        return None
    sources, destination = (operands, into[-1]) if into else (operands[:-1], operands[-1])
    if found.has_flag("T", "no-target-directory") or any(_last_part(source) in ("", ".", "..") for source in sources):
        return None  # `cp -r template/. .` copies every name of a folder, also .git and .vscode
    destinations = (destination, *(f"{destination}/{_last_part(source)}" for source in sources))
    # The destination may be a folder that exists already.
    moves = tuple((source, path) for source in sources for path in (destination, f"{destination}/{_last_part(source)}"))
    writes = destinations if name == "cp" else (*sources, *destinations)
    return FileOperands(sources, writes, moves, name == "cp" and found.has_flag(*RECURSIVE))


def _parse_sed(words: Sequence[str]) -> FileOperands | None:
    """`sed -i` with scripts that only edit lines; with a suffix, a backup of each file is written."""
    found = parse_arguments(EDITORS["sed"], words)
    if found is None or not found.has_flag("i", "in-place"):
        return None
    scripts, operands = found.values("e", "expression"), found.list_operands(words)
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    if not scripts or not operands or not all(map(edits_lines, scripts)):
        return None
    suffixes = [suffix for suffix in found.values("i", "in-place") if suffix]
    if any("/" in suffix or "*" in suffix for suffix in suffixes):
        return None
    return FileOperands(writes=(*operands, *(operand + suffix for suffix in suffixes for operand in operands)))


def _last_part(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


EDITS: dict[str, EditParser] = {
    **dict.fromkeys(("mkdir", "rm", "rmdir"), _parse_written),
    "touch": _parse_touch,
    "mv": _parse_move,
    "cp": partial(_parse_move, name="cp"),
    "sed": _parse_sed,
}
