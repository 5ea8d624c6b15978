"""The file system as decisions see it: the real one, and a cached one with a budget for one decision.

See also: the cache across decisions (memo.py). Opening a file is not done here: a name may change its target after the
decision, and the scope of the decision keeps the opener from following it (workspace/safe_open.py).
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any

from parley.permissions.base import EntryKind, Filesystem, RawFilesystem, ResolvedPath
from parley.permissions.budget import OverBudget, describe_excess
from parley.permissions.patterns import MAX_PATH_CHARACTERS
from parley.workspace.sensitive_names import is_git_internal, is_protected, normalize_name

MAX_LINKS = 40
"""As many symlinks as the kernel follows."""
MAX_ENTRIES = 10_000
"""Folder entries that one decision reads."""
MAX_LISTED = 264
"""A folder with more entries is not prefetched. The `objects` of a large git repository have 258."""
MAX_PARTS = 256
PROCESS_CWD = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/cwd")
"""A symlink to the working directory of a process: it differs between the command and this process."""
MAX_STEPS = 4_000
"""Names of files and rules that one decision reads and compares."""


class RealFilesystem:
    def __init__(self, home: str, now: Callable[[], int] = time.time_ns) -> None:
        self.home = home
        self.now = now
        self.memo: dict[Hashable, Any] | None = {}
        """The results that memo.py caches across decisions."""

    def readlink(self, path: str) -> str | None:
        try:
            return os.readlink(path)
        except (OSError, ValueError):
            return None

    def exists(self, path: str) -> bool:
        try:
            return os.path.lexists(path)
        except ValueError:
            return False

    def entries(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        try:
            return _scan(path, limit)
        except (OSError, ValueError):
            return {}

    def listing(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        """As `entries`, but None for a folder that cannot be listed; empty only if there can be nothing."""
        try:
            return _scan(path, limit)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError):
            return None

    def is_folder(self, path: str) -> bool:
        try:
            return os.access(f"{path}/.", os.X_OK)  # fails for anything but a folder that can be entered
        except ValueError:
            return False

    def read(self, path: str, max_bytes: int) -> bytes | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except (OSError, ValueError):
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > max_bytes:
                return None
            data = os.read(descriptor, status.st_size + 1)
            while len(data) <= max_bytes and (more := os.read(descriptor, 4096)):  # the file may grow meanwhile
                data += more
            return data if len(data) <= max_bytes else None
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def identity(self, path: str) -> tuple[int, int] | None:
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        return status.st_dev, status.st_ino

    def signature(self, path: str) -> tuple[int, ...] | None:
        """A value that changes with the contents of a file, with symlinks followed.

        Its last item is the ctime in nanoseconds: no program can set it, but it is only as fine as the kernel's clock.
        """
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def state(self, path: str) -> tuple[int, ...] | None:
        """As `signature`, without following symlinks. For a folder it changes with the names in it."""
        try:
            status = os.lstat(path)
        except (OSError, ValueError):
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def resolve(self, path: str) -> ResolvedPath:
        return resolve_path(path, self.readlink)


def _scan(path: str, limit: int) -> Mapping[str, EntryKind] | None:
    found: dict[str, EntryKind] = {}
    with os.scandir(path) as folder:
        for entry in islice(folder, limit + 1):
            is_folder = entry.is_dir(follow_symlinks=False)
            found[entry.name] = "folder" if is_folder else "link" if entry.is_symlink() else "file"
    return found if len(found) <= limit else None


def _unsupported(*_: object) -> None:
    """Stands in for a method that the wrapped file system does not have."""


class CachedFilesystem:
    """The file system during one decision: every symlink is read once, so it has one target."""

    def __init__(self, fs: RawFilesystem) -> None:
        self.home = fs.home
        self._fs = fs
        self._resolved: dict[str, ResolvedPath] = {}
        self._links: dict[str, str | None] = {}
        self._aliases: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.steps = 0
        self._entries: dict[str, Mapping[str, EntryKind] | None] = {}
        self._entries_left = MAX_ENTRIES
        self._prefetched: dict[str, tuple[Mapping[str, EntryKind], frozenset[str]]] = {}
        """Prefetched folders: their entries, and the normalized names."""
        self.real = fs if isinstance(fs, RealFilesystem) else None
        self.is_remote: bool = getattr(fs, "is_remote", False)
        """Whether the files are on another machine, so that nothing may be looked up on this one."""
        # A file system without `entries` has no known folder contents.
        self._list = getattr(fs, "entries", _unsupported)

    def spend(self, steps: int) -> None:
        """Raises OverBudget if the decision takes too many steps."""
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise OverBudget("It names too many files to check against the rules")

    def readlink(self, path: str) -> str | None:
        if path not in self._links:
            if (self._prefetched or self._entries) and self._is_known_non_link(path):
                return None
            self.spend(2)
            self._links[path] = self._fs.readlink(path)
        return self._links[path]

    def prefetch(self, folder: str) -> None:
        """List a folder once, so that names that are not in it need no further access.

        A folder that cannot be listed, or that has many entries, is read name by name. So is a name that exists in
        another spelling, which some file systems take for the same.
        """
        if folder in self._prefetched:
            return
        self.spend(4)
        found: Mapping[str, EntryKind] | None = getattr(self._fs, "listing", _unsupported)(folder, MAX_LISTED)
        if found is not None:
            self._prefetched[folder] = found, frozenset(normalize_name("/".join(found)).split("/"))

    def _is_known_non_link(self, path: str) -> bool:
        """Whether a listed folder has the name as a non-symlink, or a prefetched folder does not have it."""
        folder, _, name = path.rpartition("/")
        known = self._prefetched.get(folder)
        names = known[0] if known is not None else self._entries.get(folder or "/")
        kind = names.get(name) if names else None
        if kind is not None:
            return kind != "link"
        return known is not None and normalize_name(name) not in known[1]

    def possible_names(self, folder: str, names: Collection[str]) -> Collection[str]:
        known = self._prefetched.get(folder)
        return names if known is None else known[1].intersection(names)

    def _is_prefetched(self, path: str) -> bool | None:
        """Whether a name is in a prefetched folder; None if it has to be looked up."""
        folder, _, name = path.rpartition("/")
        known = self._prefetched.get(folder)
        if known is None:
            return None
        return True if name in known[0] else None if normalize_name(name) in known[1] else False

    def folder_aliases(self, folders: tuple[str, ...]) -> tuple[str, ...]:
        """The folders as given, and their real paths."""
        known = self._aliases.get(folders)
        if known is None:
            reals = [self.resolve(folder).real or folder for folder in folders]
            known = self._aliases[folders] = tuple(dict.fromkeys([*folders, *reals]))
        return known

    def exists(self, path: str) -> bool:
        if self._prefetched and (known := self._is_prefetched(path)) is not None:
            return known
        self.spend(2)
        return self._fs.exists(path)

    def entries(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        real = self.resolve(path).real
        if real is None:
            return {}
        if real not in self._entries:
            found = self._entries[real] = self._list(real, min(limit, self._entries_left))
            self._entries_left -= len(found) if found is not None else self._entries_left
        return self._entries[real]

    def is_folder(self, path: str) -> bool:
        return bool(getattr(self._fs, "is_folder", _unsupported)(path))

    def read(self, path: str, max_bytes: int) -> bytes | None:
        # A file system without `read` has no known contents.
        found: bytes | None = getattr(self._fs, "read", _unsupported)(path, max_bytes)
        return found

    def identity(self, path: str) -> tuple[int, int] | None:
        found: tuple[int, int] | None = getattr(self._fs, "identity", _unsupported)(path)
        return found

    def signature(self, path: str) -> tuple[int, ...] | None:
        found: tuple[int, ...] | None = getattr(self._fs, "signature", _unsupported)(path)
        return found

    def watch_folder(self, folder: str) -> None:
        getattr(self._fs, "watch_folder", _unsupported)(folder)

    def state(self, path: str) -> tuple[int, ...] | None:
        found: tuple[int, ...] | None = getattr(self._fs, "state", _unsupported)(path)
        return found

    def resolve(self, path: str) -> ResolvedPath:
        known = self._resolved.get(path)
        if known is None:
            self.spend(4)
            known = self._resolved[path] = self._resolve_sibling(path) or resolve_path(path, self.readlink)
            self.spend(max(0, len(known.names) - 3))  # each symlink after the first costs as much as a path
        return known

    def _resolve_sibling(self, path: str) -> ResolvedPath | None:
        """A quick result for a file in a folder that is resolved already, if no symlink is involved."""
        folder, _, name = path.rpartition("/")
        known = self._resolved.get(folder)
        if known is None or known.names != (folder,) or name in ("", ".", "..") or path.count("/") >= MAX_PARTS:
            return None
        return ResolvedPath((path,), path) if len(path) <= MAX_PATH_CHARACTERS and self.readlink(path) is None else None


def prefetch(fs: Filesystem, folder: str) -> None:
    """List a folder once for many names, if the file system caches."""
    if isinstance(fs, CachedFilesystem):
        fs.prefetch(folder)


def watch_folder(fs: Filesystem, folder: str) -> None:
    """Call this before checking single names in a folder: memo.py then watches the folder instead of the names."""
    if isinstance(fs, CachedFilesystem):
        fs.watch_folder(folder)


def possible_names(fs: Filesystem, folder: str, names: Collection[str]) -> Collection[str]:
    """The names (in lower case) that a folder may have; all of them if it was not prefetched."""
    return fs.possible_names(folder, names) if isinstance(fs, CachedFilesystem) else names


def signature(fs: Filesystem, path: str) -> tuple[int, ...] | None:
    """The signature of a file; None if the file system cannot tell whether a file changed."""
    return fs.signature(path) if isinstance(fs, CachedFilesystem) else None


def resolve_path(path: str, readlink: Callable[[str], str | None]) -> ResolvedPath:
    """Follow a path part by part, as the kernel does, and collect every name. Raises OverBudget."""
    if len(path) > MAX_PATH_CHARACTERS:
        raise OverBudget(describe_excess("The path is too long", len(path), MAX_PATH_CHARACTERS, "characters"))
    name = normalize_path(path)
    if name == path and path.count("/") <= MAX_PARTS and _has_no_link(path, readlink):
        return ResolvedPath((path,), path)
    names = [name]
    current, rest, links, steps, is_known = "/", split_path(path)[::-1], 0, 0, True
    while rest:
        part = rest.pop()
        steps += 1
        if steps + len(rest) > MAX_PARTS:
            raise OverBudget(
                describe_excess("The path goes through too many folders", steps + len(rest), MAX_PARTS, "folders")
            )
        if part == "..":
            current = os.path.dirname(current)
            continue
        entry = f"{current}/{part}" if current != "/" else f"/{part}"
        target = readlink(entry)
        if target is None:
            current = entry
            continue
        links += 1
        is_known = is_known and PROCESS_CWD.fullmatch(entry) is None
        if links > MAX_LINKS:
            return ResolvedPath(tuple(dict.fromkeys(names)), None)
        names.append(normalize_path("/".join([entry, *reversed(rest)])))
        current = "/" if target.startswith("/") else current
        rest += reversed(split_path(target))
        names.append(normalize_path("/".join([current, *reversed(rest)])))
    return ResolvedPath(tuple(dict.fromkeys([*names, current])), current if is_known else None)


def _has_no_link(path: str, readlink: Callable[[str], str | None]) -> bool:
    """Whether neither a normalized path nor a folder above it is a symlink."""
    end = path.find("/", 1)
    while end > 0:
        if readlink(path[:end]) is not None:
            return False
        end = path.find("/", end + 1)
    return readlink(path) is None


def normalize_path(path: str) -> str:
    """Remove dots and double slashes; `normpath` would keep two leading slashes."""
    if path[:1] == "/" and "//" not in path and "/." not in path and path[-1] != "/":
        return path
    return "/" + os.path.normpath(path).lstrip("/")


def split_path(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def has_protected_target(writes: Sequence[ResolvedPath], fs: Filesystem) -> bool:
    """Whether writing these paths, one after the other, changes what runs later."""
    names = [name for resolved in writes for name in resolved.names]
    created = (
        {path for name in names for path in accumulate(name.split("/"), "{}/{}".format)} if len(writes) > 1 else ()
    )
    return any(is_protected(name) or is_git_internal(name, fs.exists, created) for name in names)
