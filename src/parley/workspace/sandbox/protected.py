"""Files that commands must leave as they are, although they may change the folder: they decide what runs later.

Found in each writable folder:

* Protected folders and files, also in folders below it (`SEARCH_DEPTH`), in any case. They are mounted read-only.
* Protected folders that do not exist. They are masked, so that a command cannot create them.
* Symlinks with a protected name, and protected files that do not exist. Nothing can be mounted there without side
  effects for others (an empty `.npmrc` breaks npm). `entries.py` compares them after each command, moves what was
  created into a private folder, and restores what was replaced.

Of a git repository, the configuration and the hooks are protected; the rest must be writable, or git does not work.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from parley.protocol.base import Struct
from parley.workspace.sandbox.entries import GIT, GIT_RESTRICTED, ProtectedNames, normalize
from parley.workspace.sandbox.mounts import is_folder

SEARCH_DEPTH = 3
SEARCH_ENTRIES = 20_000
"""How many entries of folders are looked at, at most."""
NOT_SEARCHED = frozenset({"node_modules", "__pycache__", ".venv", "venv", "target", "dist", "build"})
GIT_NESTED = ("worktrees", "modules")
"""Folders with more of the kind."""
MODULE_DEPTH = 3
"""A submodule is stored under its path, which may have several parts."""
MAX_GIT_FILE_BYTES = 4096


class ProtectedPaths(Struct, frozen=True, kw_only=True):
    """What was found in the writable folders."""

    read_only: tuple[str, ...] = ()
    """Paths to mount read-only or, if they do not exist, to mask."""
    writable: tuple[str, ...] = ()
    """Paths below protected ones that commands may change, and repositories outside of the writable folders."""
    folders: tuple[str, ...] = ()
    """The folders whose entries must be compared after a command."""


def find_protected(roots: tuple[str, ...], names: ProtectedNames) -> ProtectedPaths:
    """Search the writable folders. Paths must be real."""
    read_only: list[str] = []
    writable: list[str] = []
    folders: list[str] = []
    budget = [SEARCH_ENTRIES]
    for root in roots:
        if not is_folder(root):
            continue
        folders.append(root)
        read_only += [os.path.join(root, name) for name in sorted(names.masked) if is_missing(root, name)]
        for path in search(root, names, SEARCH_DEPTH, budget):
            parent, name = os.path.split(path)
            if parent not in folders:
                folders.append(parent)
            if os.path.islink(path):
                read_only.append(os.path.realpath(path))
            elif normalize(name) == GIT:
                folders.append(path)
                read_only += protect_repository(path)
            else:
                read_only.append(path)
                writable += [inner for inner in exempt_paths(path, names) if is_folder(inner)]
        for gitdir in outer_repository(root):
            writable.append(gitdir)
            read_only += protect_repository(gitdir)
    return ProtectedPaths(
        read_only=tuple(sorted(set(read_only))),  # the same, whether or not a placeholder exists
        writable=tuple(sorted(set(writable))),
        folders=tuple(sorted(set(folders))),
    )


def is_missing(root: str, name: str) -> bool:
    return not os.path.lexists(os.path.join(root, name))


def search(folder: str, names: ProtectedNames, depth: int, budget: list[int]) -> Iterator[str]:
    """Yield the entries with protected names, not those below them."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    budget[0] -= len(entries)
    base = normalize(os.path.basename(folder))
    for entry in entries:
        plain = normalize(entry.name)
        if plain in names.folders or plain in names.files or (base, plain) in names.pairs:
            yield entry.path
        elif depth > 1 and budget[0] > 0 and plain not in NOT_SEARCHED and entry.is_dir(follow_symlinks=False):
            yield from search(entry.path, names, depth - 1, budget)


def exempt_paths(path: str, names: ProtectedNames) -> list[str]:
    plain = normalize(os.path.basename(path))
    return [os.path.join(path, inner) for outer, inner in names.exempt if outer == plain]


def protect_repository(path: str) -> list[str]:
    """What is protected of a `.git` folder, or the `.git` file of a worktree."""
    if not is_folder(path):
        return [path]
    # Only hooks are masked if they are missing: an empty `config` or `commondir` would break git.
    found = [os.path.join(path, name) for name in GIT_RESTRICTED if name == "hooks" or not is_missing(path, name)]
    for name in GIT_NESTED:
        found += protect_nested(os.path.join(path, name), MODULE_DEPTH)
    return found


def protect_nested(folder: str, depth: int) -> list[str]:
    try:
        inner = [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    found: list[str] = []
    for path in inner:
        if not is_missing(path, "HEAD"):
            found += protect_repository(path)
        elif depth > 1:
            found += protect_nested(path, depth - 1)
    return found


def outer_repository(root: str) -> list[str]:
    """The folders of the repository that a folder belongs to, if they are not in it.

    The `.git` file of a worktree is believed only if the repository refers back to it: a hostile working tree could
    name any repository.
    """
    current = root
    while is_missing(current, GIT):
        parent = os.path.dirname(current)
        if parent == current:
            return []
        current = parent
    path = os.path.join(current, GIT)
    if is_folder(path):
        return [] if current == root else [path]
    gitdir = read_reference(path, "gitdir: ", current)
    if gitdir is None or read_reference(os.path.join(gitdir, "gitdir"), "", gitdir) != os.path.realpath(path):
        return []
    common = read_reference(os.path.join(gitdir, "commondir"), "", gitdir)
    return [gitdir] if common is None else [common, gitdir]


def read_reference(path: str, prefix: str, base: str) -> str | None:
    """The real path that a small file of git names."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return None
        with open(path, "rb") as file:
            text = os.fsdecode(file.read(MAX_GIT_FILE_BYTES)).rstrip("\n")
    except OSError:
        return None
    return os.path.realpath(os.path.join(base, text.removeprefix(prefix))) if text.startswith(prefix) else None
