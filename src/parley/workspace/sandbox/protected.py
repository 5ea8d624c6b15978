"""Files that commands must leave as they are, although they may change the folder: they decide what runs later.

Found in each writable folder:

* Protected folders and files, also in folders below it, in any case. They are mounted read-only. If there are very
  many, the others are compared and restored (`contents.py`).
* Protected folders that do not exist. They are masked, so that a command cannot create them.
* Symlinks with a protected name, and protected names that do not exist, in all folders. Nothing can be mounted there
  without side effects for others (an empty `.npmrc` breaks npm). `entries.py` compares them after each command, moves
  what was created into a private folder, and restores what was replaced.

Of a git repository, the configuration and the hooks are protected; the rest must be writable, or git does not work.
"""

from __future__ import annotations

import os
import stat

from parley.protocol.base import Struct
from parley.workspace.sandbox.folders import GIT, GIT_RESTRICTED, FolderIndex, ProtectedNames, normalize
from parley.workspace.sandbox.mounts import is_folder

MAX_MOUNTED = 100
"""How many paths are mounted, at most: bubblewrap takes long for many. Those in upper folders come first."""
GIT_NESTED = ("worktrees", "modules")
"""Folders with more of the kind."""
MODULE_DEPTH = 3
"""A submodule is stored under its path, which may have several parts."""
MAX_GIT_FILE_BYTES = 4096


class ProtectedPaths(Struct, frozen=True, kw_only=True):
    """What was found in the writable folders."""

    read_only: tuple[str, ...] = ()
    """Paths to mount read-only or, if they do not exist, to mask."""
    restored: tuple[str, ...] = ()
    """Paths for which there are too many mounts."""
    writable: tuple[str, ...] = ()
    """Paths below protected ones that commands may change, and repositories outside of the writable folders."""


def find_protected(index: FolderIndex) -> ProtectedPaths:
    """What is protected now. The paths of the index must be real."""
    names = index.names
    read_only: list[str] = []
    writable: list[str] = []
    for folder, entries in index.entries.items():
        if normalize(os.path.basename(folder)) == GIT:
            continue  # see `protect_repository`
        for name, target in entries.items():
            path = os.path.join(folder, name)
            if target:
                read_only.append(os.path.realpath(path))
            elif normalize(name) == GIT and not is_missing(path, "HEAD"):  # a placeholder has none
                read_only += protect_repository(path)
            else:
                read_only.append(path)
                writable += [inner for inner in exempt_paths(path, names) if is_folder(inner)]
    for root in filter(is_folder, index.roots):
        read_only += [os.path.join(root, name) for name in sorted(names.masked) if is_missing(root, name)]
        for gitdir in outer_repository(root):
            writable.append(gitdir)
            read_only += protect_repository(gitdir)
    # The same, whether or not a placeholder exists.
    ordered = sorted(set(read_only), key=lambda path: (path.count("/"), path))
    return ProtectedPaths(
        read_only=tuple(sorted(ordered[:MAX_MOUNTED])),
        restored=tuple(ordered[MAX_MOUNTED:]),
        writable=tuple(sorted(set(writable))),
    )


def is_missing(root: str, name: str) -> bool:
    return not os.path.lexists(os.path.join(root, name))


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
