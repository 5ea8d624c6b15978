"""A command line that the strict parser proved: the files it touches, and the programs that its names run.

    command = build_proven_command(line, request, rules, mode, fs)
    command.files.reads, command.files.writes

A `ProvenCommand` is complete when it is built; the checks in `command.py`, `operands.py` and `git/` take it as one
argument.

Symlinks are followed before a line runs. After `mv a b`, `b/x` is what `a/x` was before: a symlink in it leads on,
under a name where no symlink could be seen. So a moved file is also checked by its former path. And `cp -r a b` writes
through the symlinks of an existing `b/a`.

The tables know `wc` by its name. A folder of the working tree on PATH (`.venv/bin`, `node_modules/.bin`) may contain
another program of that name, which is not the one in the tables. So names are looked up as the shell does it, and a
program in a working directory is neither a known reader nor a known editor or wrapper. A program could be created
between the decision and the run. That is why writing a file with such a name into a folder on PATH always needs
approval.

See also: the assessment itself (command.py), the files of each simple command (shell/targets.py).
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from parley.permissions.base import ToolRequest, word_set
from parley.permissions.filesystem import (
    MAX_ENTRIES,
    CachedFilesystem,
    Filesystem,
    ResolvedPath,
    normalize_path,
    recall,
)
from parley.permissions.patterns import relative_parts
from parley.permissions.rules import RuleSet
from parley.permissions.shell.arguments import WRAPPERS, git_words, inner_argv, unwrap
from parley.permissions.shell.readers import READERS, TRUSTED_FOLDERS, VERSIONS, reads_whole_folders
from parley.permissions.shell.special_readers import CHECKS
from parley.permissions.shell.strict_parser import CommandLine, SimpleCommand
from parley.permissions.shell.targets import EDITS, TargetStep, track_files
from parley.protocol.base import Struct
from parley.workspace.search_path import find_repositories, folders, parse_interpreter
from parley.workspace.sensitive_names import holds_keys, is_protected

PARENT_PART = re.compile(r"(^|[/=])\.\.(/|$)")
MAX_PATHS = 1_000
MAX_MOVES = 16
"""A line that changes its folder more often is not followed."""
MAX_COMPARED = 4_000
MAX_MOVED = 256
MAX_COMPARISONS = 10_000
"""Comparisons of used paths with moved ones."""
TOO_MANY_TO_COMPARE = "It reads too many files to compare each with every rule on files"
TOO_MANY_LINKS = "There are too many files below {folder} to see where each symlink leads"
MAX_SEARCHED = 1_000
"""Folders in which a decision looks for credentials."""
MAX_COPIED = 300
"""Folders in which it looks for protected files, of each folder that gets another name."""
MAX_FOLDER_MOVES = 64


class MovedPath(Struct, frozen=True):
    """The path that a file had before the line ran."""

    path: str
    moved_root: str
    """The former path of the file or folder above it that was moved."""


class CommandFiles(Struct, frozen=True, kw_only=True):
    """The files of a line, as far as they are known."""

    reads: tuple[ResolvedPath, ...] = ()
    writes: tuple[ResolvedPath, ...] = ()
    unknown: bool = True
    """The line may touch other files too."""
    unknown_reason: str = ""
    """Why commands that are known to only read may read other files."""
    steps: tuple[TargetStep, ...] = ()
    searched_keys: tuple[str, ...] = ()
    """Files with credentials that the line does not name, in folders that it searches."""
    moved_paths: tuple[MovedPath, ...] | None = ()
    """Former paths of files that the line moves and then uses; None if there are too many."""
    merges_folders: bool = False
    """A folder is copied over another."""


class ProvenCommand(Struct, frozen=True, kw_only=True, dict=True):
    """A proven command line under assessment."""

    line: CommandLine
    files: CommandFiles
    untrusted: Mapping[str, str]
    """Known program names that would run a file of a working directory instead, and that file."""
    request: ToolRequest
    rules: RuleSet
    mode: str
    fs: Filesystem

    @functools.cached_property
    def runs_git(self) -> bool:
        """Whether one of its commands runs git, or may run it."""
        return any(git_words(simple) for simple in self.line.commands)

    def pair_steps(self) -> Iterator[tuple[SimpleCommand, TargetStep]]:
        """Each simple command with its files."""
        return zip(self.line.commands, self.files.steps, strict=True)

    @functools.cached_property
    def climbs_past_link(self) -> bool:
        """Whether a path has `..` after a symlink, or there are too many paths to check."""
        paths_left, moves, fs = MAX_PATHS, 0, self.fs
        for simple, step in self.pair_steps():
            names = (*simple.argv, *(redirect.target for redirect in simple.redirects))
            climbing = [word for word in names if ".." in word and PARENT_PART.search(word)]
            paths = [os.path.join(folder, word) for word in climbing for folder in step.folders]
            paths_left, moves = paths_left - len(paths), moves + (simple.argv[:1] == ("cd",))
            if paths_left < 0 or (paths and moves > MAX_MOVES):
                return True
            # Following the path and normalizing it as text must give the same.
            if any(fs.resolve(path).real != fs.resolve(os.path.normpath(path)).real for path in paths):
                return True
        return False


def build_proven_command(
    line: CommandLine, request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem
) -> ProvenCommand:
    """Raises OverBudget."""
    targets, steps = track_files(line, request.cwd, fs, request.home)
    links, more_links = find_links(targets.followed, rules, fs)
    moved_paths = None if targets.unknown_reason and any(step.moves for step in steps) else find_moved_paths(steps)
    moved_reads = [moved_path.path for moved_path in moved_paths or ()]
    reads = dict.fromkeys((*targets.reads, *links, *moved_reads))
    rule_count = len(rules.restricting_rules(writing=False))
    # A file that is fed to a reader is where its folder is, too.
    reads.update((path, None) for path in targets.fed if rule_count or holds_keys(path))
    if targets.non_links and not rule_count:
        # These are where their folder is, and the folder is assessed too.
        reads = dict.fromkeys(path for path in reads if path not in targets.non_links or holds_keys(path))
    max_reads = MAX_COMPARED // max(1, rule_count)
    unknown_reason = targets.unknown_reason or more_links or (TOO_MANY_TO_COMPARE if len(reads) > max_reads else "")
    files = CommandFiles(
        reads=tuple(map(fs.resolve, islice(reads, max_reads))),
        writes=tuple(map(fs.resolve, targets.writes)),
        unknown=targets.unknown or unknown_reason != "",
        unknown_reason=unknown_reason,
        steps=steps,
        searched_keys=find_searched_keys(line, steps, fs),
        moved_paths=None if moved_paths is None else tuple(moved_paths),
        merges_folders=merges_folders(steps, fs),
    )
    untrusted = find_planted(line, request, rules, fs)
    return ProvenCommand(line=line, files=files, untrusted=untrusted, request=request, rules=rules, mode=mode, fs=fs)


def find_links(followed: Collection[tuple[str, bool]], rules: RuleSet, fs: Filesystem) -> tuple[list[str], str]:
    """The symlinks in folders, at any depth where the flag says so, and why there may be others.

    One that leads outside is not entered.
    """
    links: dict[str, None] = {}
    pending, visited = list(followed), set[tuple[str | None, bool]]()
    while pending:
        folder, is_deep = pending.pop()
        key = (fs.resolve(folder).real, is_deep)
        if key in visited:
            continue
        visited.add(key)
        names = fs.entries(folder, MAX_ENTRIES)
        if names is None:
            return list(links), TOO_MANY_LINKS.format(folder=make_printable(folder))
        for name, kind in names.items():
            path = f"{folder.rstrip('/')}/{name}"
            if kind == "link":
                links[path] = None
            if is_deep and (kind == "folder" or (kind == "link" and rules.is_readable(fs.resolve(path), fs))):
                pending.append((path, is_deep))
    return list(links), ""


def find_searched_keys(line: CommandLine, steps: Sequence[TargetStep], fs: Filesystem) -> tuple[str, ...]:
    """The files and folders with credentials in the folders that a line searches or copies.

    A `-g`, a `-t` or a `!` in an ignore file makes `rg` search hidden files: it counts as searching all.
    """
    found: dict[str, None] = {}
    for command, step in zip(line.commands, steps, strict=True):
        argv = inner_argv(command)
        if argv and reads_whole_folders(argv):
            if git_words(command) is not None and "grep" not in argv:
                continue  # it shows what is committed
            for folder in step.names or step.folders:
                found |= dict.fromkeys(keys_below(folder.rstrip("/"), fs))
    return tuple(found)


def keys_below(folder: str, fs: Filesystem) -> Sequence[str]:
    """The upper folders are searched before the lower ones, up to a limit; not that of a repository.

    The search is not part of the budget: `grep -r x .` in a large tree need not ask for that reason.
    """
    return search_below(folder, fs, holds_keys, MAX_SEARCHED)


def find_copied_protection(old: str, new: str, fs: Filesystem) -> str:
    """A protected file or folder that a copy of the folder `old` to `new` has; empty if there is none.

    Searched like `keys_below`.
    """
    if not fs.is_folder(old):
        return ""
    found = (path.rpartition("/")[2] for path in search_below(old, fs, is_protected, MAX_COPIED))
    names = fs.entries(old, MAX_ENTRIES) or {}
    return next(found, "") or next((name for name in names if is_protected(f"{new}/{name}")), "")


def search_below(folder: str, fs: Filesystem, test: Callable[[str], bool], max_folders: int) -> tuple[str, ...]:
    """The paths below a folder whose last two parts meet a test."""
    real = fs.real if isinstance(fs, CachedFilesystem) else None
    if real is None or real.memo is None:
        # Each folder of a remote workspace costs a round trip.
        return _search_below(folder, fs, test, 1)
    search = functools.partial(_search_below, folder, test=test, max_folders=max_folders)
    return recall((test, folder), real, search)


def _search_below(folder: str, fs: Filesystem, test: Callable[[str], bool], max_folders: int) -> tuple[str, ...]:
    found: list[str] = []
    pending = [folder]
    for current in pending:
        above = current.rpartition("/")[2]
        for name, kind in (fs.entries(current or "/", MAX_ENTRIES) or {}).items():
            if test(f"{above}/{name}"):
                found.append(f"{current}/{name}")
            elif kind == "folder" and name != ".git" and len(pending) < max_folders:
                pending.append(f"{current}/{name}")
    return tuple(found)


# Moved files.


def find_moved_paths(steps: Sequence[TargetStep]) -> list[MovedPath] | None:
    """The former paths of all files that one command moves and another one uses; None if there are too many."""
    moves = [(number, *move) for number, step in enumerate(steps) for move in step.moves]
    # What a command moves itself does not count for it.
    other_moves = [len(moves) - len(step.moves) for step in steps]
    found: dict[MovedPath, None] = {}
    pending = [(number, name) for number, count in enumerate(other_moves) if count for name in steps[number].names]
    comparisons_left = MAX_COMPARISONS
    while pending:
        number, name = pending.pop()
        comparisons_left -= other_moves[number]
        if comparisons_left < 0 or len(found) >= MAX_MOVED:
            return None
        for other, old, new in moves:
            inner = relative_parts(name, new) if other != number else None
            if inner is None:
                continue
            moved_path = MovedPath(os.path.normpath(os.path.join(old, *inner)), old)
            if moved_path not in found:
                found[moved_path] = None
                if other_moves[other]:
                    pending.append((other, moved_path.path))
    return list(found)


def traverses_moved_symlink(moved_paths: Sequence[MovedPath] | None, fs: Filesystem) -> bool:
    """Whether a moved symlink is part of a path: its new target is not known."""
    return moved_paths is None or any(_traverses_moved_symlink(moved_path, fs) for moved_path in moved_paths)


def _traverses_moved_symlink(moved_path: MovedPath, fs: Filesystem) -> bool:
    folder = os.path.dirname(moved_path.moved_root)
    above = fs.resolve(folder).real
    if above is None:
        return True
    return fs.resolve(moved_path.path).real != os.path.normpath(
        os.path.join(above, os.path.relpath(moved_path.path, folder))
    )


def merges_folders(steps: Sequence[TargetStep], fs: Filesystem) -> bool:
    """Whether a folder is copied over one that may exist and contain symlinks."""
    for number, step in enumerate(steps):
        if step.copies_folders:
            created = [new for other, one in enumerate(steps) if other != number for _, new in one.moves]
            targets = [new for old, new in step.moves if os.path.basename(new) == os.path.basename(old)]
            if any(
                fs.exists(target) or any(relative_parts(new, target) is not None for new in created)
                for target in targets
            ):
                return True
    return False


def make_printable(path: str) -> str:
    """A path as valid UTF-8: a file name may hold bytes that are not characters."""
    return path.encode(errors="surrogateescape").decode(errors="replace")


BUILTINS = word_set(
    ". : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo "
    "enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile noglob popd "
    "printf pushd pwd read readarray readonly return set shift shopt source suspend test time times trap true type "
    "typeset ulimit umask unalias unset wait"
)
"""Builtins: the shell does not look them up on PATH."""
STARTERS = word_set("timeout nice nohup stdbuf xargs find")
"""Wrappers that are programs: after them even `echo` is looked up on PATH."""
ALSO_RUN = {"egrep": ("grep",), "fgrep": ("grep",), "git": ("git-lfs",)}
"""Programs that run another program from PATH; the usual filter of git-lfs is harmless if it is the system's."""
KNOWN_PROGRAMS = frozenset({*READERS, *CHECKS, *EDITS, *WRAPPERS, *(name for name, *_ in VERSIONS), "git", "git-lfs"})
"""The programs that the tables trust by name."""
SHADOWED = KNOWN_PROGRAMS - BUILTINS
MAX_FIRST_LINE_BYTES = 256
"""As much as the kernel reads of a script to find its interpreter."""
VERSION = re.compile(r"[\d.]*$")
OPEN_TO_ALL = ("/tmp/", "/var/tmp/", "/dev/", "/proc/", "/run/")
"""Folders in which other users may create programs."""
PLANTED = "{name} would run {path}, a program of the working directories or their repository, instead of the system's"
SHADOWS = "{path} is in a folder on PATH, so it would run instead of the system's {name}"
REPLACES = "It puts a folder at {path}, which is on PATH or above a folder on PATH: its programs would run as commands"


def find_planted(line: CommandLine, request: ToolRequest, rules: RuleSet, fs: Filesystem) -> dict[str, str]:
    """The known program names of a line that would run a file of a working directory, and that file."""
    names = dict.fromkeys(name for command in line.commands for name in searched_names(command))
    if request.search_path is None or not names:
        return {}
    own, found = session_folders(rules, fs), {}
    for path in (request.search_path, *(assigned_search_paths(line, request.cwd) if "PATH" in line.text else ())):
        searched = mark_own_folders(path, own)
        for name in names:
            file = next((file for file in find_run_files(name, searched, fs) if is_planted(file, rules, fs)), None)
            if file is not None:
                found[name] = file
    return found


def find_run_files(name: str, searched: Mapping[str, bool], fs: Filesystem) -> Iterator[str]:
    """The files outside the system's folders that a name runs: the program, and the interpreter of a script."""
    for each in (name, *ALSO_RUN.get(name, ())):
        file = locate(each, searched, fs)
        if file is not None and not file.startswith(TRUSTED_FOLDERS):
            yield file
            if any(searched.values()):
                first_line = (unmetered(fs).head(file, MAX_FIRST_LINE_BYTES) or b"").split(b"\n")[0]
                if found := locate(parse_interpreter(first_line) or "", searched, fs):
                    yield found


def assigned_search_paths(line: CommandLine, cwd: str) -> list[str]:
    """Values that the line assigns to PATH; only a rule for exactly that command allows this."""
    words = (word.partition("=") for command in line.commands for word in command.argv[1:] if word.startswith("PATH="))
    pairs = (pair for command in line.commands for pair in command.assignments)
    values = [*(value for _, _, value in words), *(value for name, value in pairs if name == "PATH")]
    return [":".join(f"{cwd}/{entry}" if entry[:1] != "/" else entry for entry in value.split(":")) for value in values]


def searched_names(command: SimpleCommand) -> Iterable[str]:
    """The known program names that the shell looks up on PATH."""
    inner = unwrap(command)
    chain = (*inner.wrappers, inner.argv[0]) if inner else command.argv[:1]
    if "-exec" in command.argv[:-1]:
        chain = (*chain, *command.argv[command.argv.index("-exec") + 1 :][:1])
    return [
        name
        for index, name in enumerate(chain)
        if name in SHADOWED or (name in KNOWN_PROGRAMS and has_starter(chain[:index]))
    ]


def has_starter(wrappers: Sequence[str]) -> bool:
    """Whether the word after these wrappers is always a program, never a builtin."""
    return any(name in STARTERS for name in wrappers)


@functools.lru_cache(maxsize=64)
def mark_own_folders(search_path: str, own: tuple[str, ...]) -> Mapping[str, bool]:
    """The folders of a PATH, and whether each is the session's: there, a program may appear at any time."""
    return {folder: any(relative_parts(folder, each) is not None for each in own) for folder in folders(search_path)}


def locate(name: str, searched: Mapping[str, bool], fs: Filesystem) -> str | None:
    """The file that a name runs; None if it is not on PATH. `searched`: its folders, and which are the session's."""
    plain = unmetered(fs)
    for folder, is_own in searched.items() if name else ():
        if (plain.exists if is_own else plain.glimpse)(file := f"{folder}/{name}"):
            return file
    return None


def unmetered(fs: Filesystem) -> Filesystem:
    """The file system outside of the budget of the decision, if that is on this machine."""
    return (fs.real or fs) if isinstance(fs, CachedFilesystem) else fs


def session_folders(rules: RuleSet, fs: Filesystem) -> tuple[str, ...]:
    """The folders of the session and the repositories around them, under all their names.

    `/` is left out: every program would be in it.
    """
    roots = (rules.cwd, *rules.folders, *rules.readable)
    names = [name for root_folder in roots for name in fs.resolve(root_folder).names if name != "/"]
    for name in names.copy():
        names += find_repositories(name, fs.home, unmetered(fs).glimpse)
    return tuple(dict.fromkeys(names))


def is_in_session_folder(resolved: ResolvedPath, rules: RuleSet, fs: Filesystem) -> bool:
    """Whether any name of a file is in a folder of the session."""
    own = session_folders(rules, fs)
    return resolved.real is None or any(
        relative_parts(name, folder) is not None for name in resolved.names for folder in own
    )


def is_planted(file: str, rules: RuleSet, fs: Filesystem) -> bool:
    """Whether the file belongs to the session.

    A symlink to an installed program of the same name, as in virtual environments, is that program.
    """
    resolved = fs.resolve(file)
    if not is_in_session_folder(resolved, rules, fs):
        return False
    if (
        resolved.real is None
        or resolved.real.startswith(OPEN_TO_ALL)
        or is_in_session_folder(ResolvedPath((resolved.real,), resolved.real), rules, fs)
    ):
        return True
    names = (VERSION.sub("", path.rpartition("/")[2]) for path in (file, resolved.real))
    return len(set(names)) > 1


def explain_shadowing(resolved_paths: Iterable[ResolvedPath], request: ToolRequest, fs: Filesystem) -> str:
    """Why writing one of these files needs approval: it would run under the name of a known program."""
    if request.search_path is None:
        return ""
    on_path = folders(request.search_path)
    for resolved in resolved_paths:
        for path in resolved.names:
            folder, _, name = path.rpartition("/")
            if name in SHADOWED and (
                folder in on_path or fs.resolve(folder).real in [fs.resolve(each).real for each in on_path]
            ):
                return SHADOWS.format(path=resolved.names[0], name=name)
    return ""


def explain_replacing(steps: Iterable[TargetStep], request: ToolRequest, rules: RuleSet, fs: Filesystem) -> str:
    """Why moving or copying a folder needs approval: it would become a folder on PATH, or one above it."""
    moved = dict.fromkeys(new for step in steps for _, new in step.moves)
    if request.search_path is None or not moved:
        return ""
    search_folders = [name for folder in folders(request.search_path) for name in fs.resolve(folder).names]
    working = [name for folder in rules.working_directories() for name in fs.resolve(folder).names]
    for new in map(normalize_path, moved):
        if any(is_above(new, name) for name in search_folders) and not any(is_above(new, name) for name in working):
            return REPLACES.format(path=new)
    return ""


def is_above(folder: str, path: str) -> bool:
    return relative_parts(path, folder) is not None
