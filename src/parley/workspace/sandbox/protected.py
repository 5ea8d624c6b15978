"""Files that commands must leave as they are, although they may change the folder: they decide what runs later.

Found in each writable folder:

* Protected folders and files, also in folders below it, in any case. They are mounted read-only. If there are very
  many, the others are compared and restored (`cleanup.py`), as are files with hard links.
* Protected folders that do not exist. They are masked, so that a command cannot create them.
* Symlinks with a protected name, and protected names that do not exist, in all folders. Nothing can be mounted there
  without side effects for others (an empty `.npmrc` breaks npm). `protected_entries.py` compares them after each
  command, moves what was created into a private folder, and restores what was replaced.

Of a git repository, the configuration and the hooks are protected; the rest must be writable, or git does not work.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable

from parley.protocol.base import Struct
from parley.workspace.sandbox.base import is_beneath, is_folder
from parley.workspace.sandbox.protected_entries import GIT, FolderIndex
from parley.workspace.sensitive_names import EXEMPT_PAIRS, normalize_name

MAX_MOUNTED = 100
"""How many paths are mounted, at most: bubblewrap takes long for many. Those in upper folders come first."""
MASKED_FOLDERS = frozenset(
    {".git", ".agents", ".claude", ".parley", ".vscode", ".cursor", ".idea", ".husky", ".devcontainer"}
)
"""Folders that commands cannot create while they run. Other protected names are moved away after the command."""
MAX_SEARCHED = 2000
"""How many protected files are searched for hard links."""
MAX_GIT_FILE_BYTES = 4096
GIT_FOLDERS = ("objects", "refs")
"""What a git directory contains besides its `HEAD`."""


class ProtectedPaths(Struct, frozen=True, kw_only=True):
    """What was found in the writable folders."""

    read_only: tuple[str, ...] = ()
    """Paths to mount read-only or, if they do not exist, to mask."""
    existing: tuple[str, ...] = ()
    """Those that exist, and the hooks of repositories."""
    restored: tuple[str, ...] = ()
    """Paths for which there are too many mounts, and files that a command can change by another name."""
    writable: tuple[str, ...] = ()
    """Paths below protected ones that commands may change, and repositories outside of the writable folders."""


def find_protected(index: FolderIndex, repositories: Iterable[str] = ()) -> ProtectedPaths:
    """What is protected now. The paths of the index must be real.

    `repositories`: those of the index that are outside of the writable folders.
    """
    read_only: list[str] = []
    writable = list(repositories)
    for folder, entries in index.entries.items():
        for name, target in entries.items():
            path = os.path.join(folder, name)
            if target:
                read_only.append(os.path.realpath(path))
            elif normalize_name(name) != GIT or not is_folder(path) or is_missing(path, "HEAD"):
                read_only.append(path)  # also a placeholder, which has no HEAD
                exempt = [os.path.join(path, inner) for outer, inner in EXEMPT_PAIRS if outer == normalize_name(name)]
                writable += filter(is_folder, exempt)
    # Only hooks are masked if they are missing: an empty `config` or `commondir` would break git.
    read_only += [os.path.join(path, "hooks") for path in index.git_folders if not is_missing(path, "HEAD")]
    existing = read_only[:MAX_MOUNTED]
    for root in index.roots:
        if is_folder(root) and root not in writable:
            read_only += [os.path.join(root, name) for name in sorted(MASKED_FOLDERS) if is_missing(root, name)]
    # The same, whether or not a placeholder exists.
    ordered = sorted(set(read_only), key=lambda path: (path.count("/"), path))
    return ProtectedPaths(
        existing=tuple(dict.fromkeys(existing)),
        read_only=tuple(sorted(ordered[:MAX_MOUNTED])),
        restored=(*find_linked(ordered[:MAX_MOUNTED], writable), *ordered[MAX_MOUNTED:]),
        writable=tuple(sorted(set(writable))),
    )


def find_linked(paths: Iterable[str], writable: Collection[str]) -> list[str]:
    """The files at and below some paths that have hard links: a read-only mount protects only one of their names."""
    found: list[str] = []
    waiting, left = list(paths), MAX_SEARCHED
    while waiting and left:
        path, left = waiting.pop(), left - 1
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                found.append(path)
            elif stat.S_ISDIR(status.st_mode) and path not in writable:
                waiting += [os.path.join(path, name) for name in os.listdir(path)]
    return sorted(found)


def is_missing(root: str, name: str) -> bool:
    return not os.path.lexists(os.path.join(root, name))


def outer_repository(root: str) -> list[str]:
    """The folders of the repository that a folder belongs to, if they are not in it.

    The `.git` file of a worktree is believed only if the repository refers back to it, from the place where git keeps
    its worktrees. A hostile working tree could name any repository, and could itself contain files that refer back to
    it and name any folder as `commondir`.
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
    if common is None or os.path.dirname(gitdir) != os.path.join(common, "worktrees"):
        return []
    is_repository = not is_missing(common, "HEAD") and all(
        is_folder(os.path.join(common, name)) for name in GIT_FOLDERS
    )
    # Files of the working tree say nothing about folders outside of it, even if it lies in a repository's `worktrees`.
    is_forged = is_beneath(gitdir, current) and not is_beneath(common, current)
    return [common, gitdir] if is_repository and not is_forged else []


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
