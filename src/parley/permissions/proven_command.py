"""A command line that the strict parser proved, with the files it touches and what it is assessed against.

    command = build_proven_command(line, request, rules, mode, fs)
    command.files.reads, command.files.writes

A `ProvenCommand` is complete when it is built; the checks in `command.py`, `operands.py` and `git/` take it as one
argument.

Symlinks are followed before a line runs. After `mv a b`, `b/x` is what `a/x` was before: a symlink in it leads on,
under a name where no symlink could be seen. So a moved file is also checked by its former path. And `cp -r a b` writes
through the symlinks of an existing `b/a`.

See also: the assessment itself (command.py), the files of each simple command (shell/targets.py).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from parley.permissions.base import ToolRequest
from parley.permissions.filesystem import MAX_ENTRIES, CachedFilesystem, Filesystem, ResolvedPath, recall
from parley.permissions.patterns import relative_parts
from parley.permissions.programs import find_planted
from parley.permissions.rules import RuleSet
from parley.permissions.shell import CommandLine, SimpleCommand, Step, track_files
from parley.permissions.shell.arguments import git_words, inner_argv
from parley.permissions.shell.readers import reads_whole_folders
from parley.protocol.base import Struct
from parley.workspace.sensitive_names import holds_keys

MAX_COMPARED = 4_000
MAX_MOVED = 256
MAX_COMPARISONS = 10_000
"""Comparisons of used paths with moved ones."""
TOO_MANY_TO_COMPARE = "It reads too many files to compare each with every rule on files"
TOO_MANY_LINKS = "There are too many files below {folder} to see where each symlink leads"
MAX_SEARCHED = 1_000
"""Folders in which a decision looks for credentials."""


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
    steps: tuple[Step, ...] = ()
    searched_keys: tuple[str, ...] = ()
    """Files with credentials that the line does not name, in folders that it searches."""
    moved_paths: tuple[MovedPath, ...] | None = ()
    """Former paths of files that the line moves and then uses; None if there are too many."""
    merges_folders: bool = False
    """A folder is copied over another."""


class ProvenCommand(Struct, frozen=True, kw_only=True):
    """A proven command line under assessment."""

    line: CommandLine
    files: CommandFiles
    untrusted: Mapping[str, str]
    """Known program names that would run a file of a working directory instead, and that file."""
    request: ToolRequest
    rules: RuleSet
    mode: str
    fs: Filesystem

    @property
    def runs_git(self) -> bool:
        """Whether one of its commands runs git, or may run it."""
        return any(git_words(simple) for simple in self.line.commands)

    def pair_steps(self) -> Iterator[tuple[SimpleCommand, Step]]:
        """Each simple command with its files."""
        return zip(self.line.commands, self.files.steps, strict=True)


def build_proven_command(
    line: CommandLine, request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem
) -> ProvenCommand:
    """Raises OverBudget."""
    files = find_files(line, request, rules, fs)
    untrusted = find_planted(line, request, rules, fs)
    return ProvenCommand(line=line, files=files, untrusted=untrusted, request=request, rules=rules, mode=mode, fs=fs)


def find_files(line: CommandLine, request: ToolRequest, rules: RuleSet, fs: Filesystem) -> CommandFiles:
    targets, steps = track_files(line, request.cwd, fs, request.home)
    links = find_links(targets.followed, rules, fs)
    moved_paths = None if targets.unknown_reason and any(step.moves for step in steps) else find_moved_paths(steps)
    moved_reads = [moved_path.path for moved_path in moved_paths or ()]
    reads = dict.fromkeys((*targets.reads, *links.paths, *moved_reads))
    deny, ask = rules.path_rules("deny", "Read", writing=False), rules.path_rules("ask", "Read", writing=False)
    rule_count = len(deny) + len(ask)
    # A file that is fed to a reader is where its folder is, too.
    reads.update((path, None) for path in targets.fed if rule_count or holds_keys(path))
    if targets.non_links and not rule_count:
        # These are where their folder is, and the folder is assessed too.
        reads = dict.fromkeys(path for path in reads if path not in targets.non_links or holds_keys(path))
    max_reads = MAX_COMPARED // max(1, rule_count)
    unknown_reason = (
        targets.unknown_reason or links.unknown_reason or (TOO_MANY_TO_COMPARE if len(reads) > max_reads else "")
    )
    return CommandFiles(
        reads=tuple(map(fs.resolve, islice(reads, max_reads))),
        writes=tuple(map(fs.resolve, targets.writes)),
        unknown=targets.unknown or unknown_reason != "",
        unknown_reason=unknown_reason,
        steps=steps,
        searched_keys=find_searched_keys(line, steps, fs),
        moved_paths=None if moved_paths is None else tuple(moved_paths),
        merges_folders=merges_folders(steps, fs),
    )


class FoundLinks(Struct, frozen=True):
    paths: tuple[str, ...] = ()
    unknown_reason: str = ""
    """Why there may be others."""


NO_LINKS = FoundLinks()


def find_links(followed: Collection[tuple[str, bool]], rules: RuleSet, fs: Filesystem) -> FoundLinks:
    """The symlinks in folders, at any depth where the flag says so. One that leads outside is not entered."""
    if not followed:
        return NO_LINKS
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
            return FoundLinks(tuple(links), TOO_MANY_LINKS.format(folder=make_printable(folder)))
        for name, kind in names.items():
            path = f"{folder.rstrip('/')}/{name}"
            if kind == "link":
                links[path] = None
            if is_deep and (kind == "folder" or (kind == "link" and rules.is_readable(fs.resolve(path), fs))):
                pending.append((path, is_deep))
    return FoundLinks(tuple(links))


def find_searched_keys(line: CommandLine, steps: Sequence[Step], fs: Filesystem) -> tuple[str, ...]:
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
    real = fs.real if isinstance(fs, CachedFilesystem) else None
    if real is None or real.memo is None:
        # Each folder of a remote workspace costs a round trip.
        return search_keys(folder, fs, 1)
    search = functools.partial(search_keys, folder, max_folders=MAX_SEARCHED)
    return recall(("keys", folder), real, search)


def search_keys(folder: str, fs: Filesystem, max_folders: int) -> tuple[str, ...]:
    found: list[str] = []
    pending = [folder]
    for current in pending:
        above = current.rpartition("/")[2]
        for name, kind in (fs.entries(current or "/", MAX_ENTRIES) or {}).items():
            if holds_keys(f"{above}/{name}"):
                found.append(f"{current}/{name}")
            elif kind == "folder" and name != ".git" and len(pending) < max_folders:
                pending.append(f"{current}/{name}")
    return tuple(found)


# Moved files.


def find_moved_paths(steps: Sequence[Step]) -> list[MovedPath] | None:
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


def merges_folders(steps: Sequence[Step], fs: Filesystem) -> bool:
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
