"""The protected names below the writable folders: found again after each command at little cost, and restored.

    index = FolderIndex(roots)
    index.refresh()                     # lists the folders that have changed since
    index.entries                       # folder -> {name: target of a symlink, or ""}

    restore_entries(index, before, quarantine)      # after a command; returns the paths that it created or replaced

A folder is listed again only if its change time differs, which a command cannot set. So a tree that did not change
costs one `lstat` for each folder. In folders of installed and built files (`NOT_ENTERED`) only the top and the scripts
of an environment are listed: packages contain such names, and no one starts programs there.

A git directory is known by its name or by what is in it: a bare repository, the directory of a submodule below
`.git/modules`, that of a worktree below `.git/worktrees`. Git reads its configuration and hooks wherever it is.

A command may have put a symlink in the place of a folder, and may still be running. So names are restored relative to
folders that were opened without following a symlink.

Runs in the engine and in the process that cleans up after a killed engine, and uses only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from parley.workspace.sensitive_names import (
    ACTIVATE,
    GIT_RESTRICTED,
    PROTECTED_FOLDERS,
    is_git_directory,
    is_protected,
    is_protected_in,
    normalize_name,
)

GIT = ".git"
GIT_NESTED = frozenset({"worktrees", "modules"})
"""Folders of a repository with more of the kind. The others contain no configuration."""
ENVIRONMENT_SCRIPTS = frozenset({"bin", "scripts"})
NOT_ENTERED = frozenset({"node_modules", "__pycache__", ".venv", "venv", "target", "dist", "build"})
MAX_FOLDERS = 20_000
"""How many folders are listed at first, the upper ones before the lower ones. Those that appear later always are."""
SETTLED_NANOSECONDS = 100_000_000
"""A change that is not older than this could be followed by another one with the same time."""
UNSETTLED = -1

Entries = dict[str, str]
"""Names in a folder, each with the target of a symlink or ""."""


class Folder(NamedTuple):
    """A folder as it was when it was listed."""

    inode: int
    changed_ns: int
    inner: tuple[str, ...] = ()
    """The paths of the folders in it that are listed, too."""
    entries: Entries = {}
    is_git: bool = False


class FolderIndex:
    """All folders below some others, with the protected names in them."""

    def __init__(self, roots: Iterable[str], beyond: Iterable[str] = ()) -> None:
        """`beyond`: folders that are not listed, because another index has found too many."""
        self.roots = tuple(roots)
        self.entries: dict[str, Entries] = {}
        """The folders that have protected names. Replaced by a refresh, never changed."""
        self.git_folders: list[str] = []
        self.beyond = set(beyond)
        self._limit = MAX_FOLDERS if not self.beyond else 0
        self._folders: dict[str, Folder] = {}
        self._paths: list[str] = []
        self._times: list[int] = []
        self.refresh()
        self._limit = 0

    def refresh(self) -> None:
        """Look at the folders that have changed."""
        with contextlib.suppress(OSError):
            if self._paths and [os.lstat(path).st_ctime_ns for path in self._paths] == self._times:
                return
        found: dict[str, Folder] = {}
        waiting = deque(self.roots)
        while waiting:
            path = waiting.popleft()
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if path in found or not stat.S_ISDIR(status.st_mode):
                continue
            if self._limit and len(found) >= self._limit:
                self.beyond.add(path)
                continue
            known = self._folders.get(path)
            if known is None or (known.inode, known.changed_ns) != (status.st_ino, status.st_ctime_ns):
                known = self._list(path, status)
            found[path] = known
            waiting += known.inner
        self._folders = found
        self._paths = list(found)
        self._times = [folder.changed_ns for folder in found.values()]
        self.entries = {path: folder.entries for path, folder in found.items() if folder.entries}
        self.git_folders = [path for path, folder in found.items() if folder.is_git]

    def may_cover(self, path: str) -> bool:
        """Whether a path may be protected, as far as its name and the folders that were found last tell."""
        return is_protected(path) or any(path.startswith(f"{folder}/") for folder in self.git_folders)

    def _list(self, path: str, status: os.stat_result) -> Folder:
        is_settled = status.st_ctime_ns < time.time_ns() - SETTLED_NANOSECONDS
        base = normalize_name(os.path.basename(path))
        found = self._read(path)
        is_git = base == GIT or is_git_directory({name for name, _ in found})
        # Only what is below `.git` is known to be git's own: a command can make any folder look like a repository.
        is_inside_git = base == GIT or f"/{GIT}/" in path
        below = ENVIRONMENT_SCRIPTS if base in NOT_ENTERED and path not in self.roots else None
        if is_inside_git:
            below = GIT_NESTED if is_git else None
        inner: list[str] = []
        entries: Entries = {}
        for name, is_folder in found:
            plain = normalize_name(name)
            inside = os.path.join(path, name)
            if (is_git and name in GIT_RESTRICTED) or (not is_inside_git and is_protected_in(base, plain)):
                entries[name] = "" if is_folder else read_link(inside)
                if plain == GIT and is_folder:
                    inner.append(inside)
            elif is_folder and inside not in self.beyond and (below is None or plain in below):
                inner.append(inside)
        changed_ns = status.st_ctime_ns if is_settled else UNSETTLED
        return Folder(status.st_ino, changed_ns, tuple(inner), entries, is_git)

    def _read(self, path: str) -> list[tuple[str, bool]]:
        """The names in a folder, each with whether it is a folder."""
        try:
            with os.scandir(path) as found:
                return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        except PermissionError:
            if not self._folders:
                return []  # commands cannot read it, either
        except OSError:
            return []
        with contextlib.suppress(OSError), open_folder(path) as opened, os.scandir(opened) as found:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        return []


@contextlib.contextmanager
def open_folder(path: str, *, create: bool = False) -> Iterator[int]:
    """Open a folder by its real path. Raises OSError if there is a symlink on the way, or no folder."""
    current = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in filter(None, path.split("/")):
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=current)
            inner = open_own(current, part, os.O_PATH)
            os.close(current)
            current = inner
        opened = open_own(current, ".", os.O_RDONLY)
    finally:
        os.close(current)
    try:
        yield opened
    finally:
        os.close(opened)


@contextlib.contextmanager
def open_inner(folder: int, name: str) -> Iterator[int]:
    """Open a folder in an opened one. Raises OSError if it is not a folder."""
    opened = open_own(folder, name, os.O_RDONLY)
    try:
        yield opened
    finally:
        os.close(opened)


def open_own(folder: int, name: str, access: int) -> int:
    """Open a folder in an opened one, although a command has taken away our rights to one of them. Raises OSError."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(PermissionError):
        return os.open(name, access | flags, dir_fd=folder)
    give_rights(folder)
    inner = os.open(name, os.O_PATH | flags, dir_fd=folder)
    try:
        give_rights(inner)
        return os.open(name, access | flags, dir_fd=folder)
    finally:
        os.close(inner)


def give_rights(folder: int) -> None:
    """Let the owner list and change an opened folder. Raises OSError."""
    status = os.fstat(folder)
    if status.st_uid == os.geteuid() and status.st_mode & 0o700 != 0o700:
        os.chmod(f"/proc/self/fd/{folder}", stat.S_IMODE(status.st_mode) | 0o700)


@contextlib.contextmanager
def open_parent(path: str) -> Iterator[tuple[int, str]]:
    """The folder that contains a path, and the name in it. Raises OSError."""
    folder, name = os.path.split(path)
    with open_folder(folder) as opened:
        yield opened, name


def read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def restore_entries(index: FolderIndex, before: Mapping[str, Entries], quarantine: str) -> list[str]:
    """Move new entries away and restore changed symlinks. Returns the paths. Raises OSError."""
    index.refresh()
    found: list[str] = []
    problem: OSError | None = None
    for folder, entries in index.entries.items():
        known = before.get(folder, {})
        for name, target in entries.items():
            path = os.path.join(folder, name)
            if is_new_environment(name, known):
                continue
            if name not in known or (known[name] and target != known[name]):
                try:
                    with open_parent(path) as (opened, last):
                        move_away(opened, last, quarantine)
                except FileNotFoundError:
                    continue  # with a folder above it
                except OSError as exc:  # the others are restored all the same
                    problem = problem or OSError(exc.errno, exc.strerror, path)
                found.append(path)
    for folder, known in before.items():
        found += restore_links(folder, known)
    if found:
        index.refresh()
    if problem is not None:
        raise problem
    return list(dict.fromkeys(found))


def is_new_environment(name: str, before: Entries) -> bool:
    """Whether a script activates an environment that a command has just created: all of it is the command's work."""
    plain = normalize_name(name)
    is_script = plain.startswith(ACTIVATE) and plain not in PROTECTED_FOLDERS
    return is_script and not any(normalize_name(other).startswith(ACTIVATE) for other in before)


def restore_links(folder: str, before: Entries) -> list[str]:
    """Create symlinks that are gone. Returns their paths."""
    found: list[str] = []
    for name, target in before.items():
        path = os.path.join(folder, name)
        with contextlib.suppress(FileExistsError, NotADirectoryError, FileNotFoundError):
            if target:
                with open_parent(path) as (opened, last):
                    os.symlink(target, last, dir_fd=opened)
                found.append(path)
    return found


def move_away(folder: int, name: str, quarantine: str) -> None:
    """Move an entry of an opened folder into a private folder, whatever it contains. Raises OSError."""
    give_rights(folder)
    try:
        with open_folder(quarantine, create=True) as opened:
            place = f"{len(os.listdir(opened))}-{name.lstrip('.')}"
            os.rename(name, place, src_dir_fd=folder, dst_dir_fd=opened)
    except OSError:  # on another file system, or a command has replaced it
        # Remove a file or a whole folder, however deep it is.
        waiting = [name]
        while waiting:
            current = waiting.pop()
            if not is_folder_in(folder, current):
                os.unlink(current, dir_fd=folder)
                continue
            with open_inner(folder, current) as opened:
                give_rights(opened)
                for inner in os.listdir(opened):
                    if is_folder_in(opened, inner):
                        waiting.append(f".parley-{secrets.token_hex(8)}")
                        os.rename(inner, waiting[-1], src_dir_fd=opened, dst_dir_fd=folder)
                    else:
                        os.unlink(inner, dir_fd=opened)
            os.rmdir(current, dir_fd=folder)


def is_folder_in(folder: int, name: str) -> bool:
    return stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode)
