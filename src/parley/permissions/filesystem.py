"""The file system as decisions see it.

    RealFilesystem, RemoteFilesystem       this machine, or a remote workspace, from which every fact comes
    CachedFilesystem(fs)                   during one decision: each symlink has one target, and access has a budget
    memoize(key, fs, compute)              compute(fs), or its earlier result if the file system is unchanged

For `memoize`, `compute` runs on a file system of its own that records every access. Before the result is used again,
every access is repeated: a symlink still has the same target, a missing name is still missing. A file or folder whose
contents were read is compared by identity, size and times instead. A program cannot set the time of the last change
(ctime), but the kernel's clock is coarse, so nothing that was read shortly after a change is cached. A result costs the
same steps of the budget whether it was cached or not: equal calls get equal decisions.

Opening a file is not done here: a name may change its target after the decision, and the scope of the decision keeps
the opener from following it (workspace/safe_open.py).

See also: cached repository findings (git/repository.py).
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, Literal, TypeVar

from parley.permissions.base import OverBudget, describe_excess
from parley.permissions.patterns import MAX_PATH_CHARACTERS
from parley.protocol.base import Struct
from parley.workspace.sensitive_names import is_git_internal, is_protected, normalize_name

EntryKind = Literal["link", "folder", "file"]
"""What an entry of a folder is; `file` is anything that is neither a symlink nor a folder."""
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
MAX_RESULTS = 64
MAX_ACCESSES = 256
"""A result that depends on more is computed anew each time."""
SETTLED_NANOSECONDS = 2_000_000_000
"""A change this long ago has a time of its own; two changes in quick succession may share one."""
T = TypeVar("T")


class ResolvedPath(Struct, frozen=True):
    """A path with its symlinks followed."""

    names: tuple[str, ...]
    """Every absolute path on the way: the given one, one per symlink that is replaced, and the real one."""
    real: str | None
    """The real path, whether or not it exists; None for a symlink loop, or where the target is unknown."""


class Filesystem:
    """What a decision asks of a file system. Paths are absolute.

    This one knows nothing: a path is what it seems to be, and no contents are known.
    """

    home: str

    def look(self, kind: str, path: str, *limit: int) -> Any:
        """A fact: what the method of this name returns."""
        return None

    def readlink(self, path: str) -> str | None:
        """The target of a symlink; None if the path is not a symlink or does not exist."""
        found: str | None = self.look("readlink", path)
        return found

    def exists(self, path: str) -> bool:
        """Whether the path exists; symlinks are not followed."""
        return bool(self.look("exists", path))

    def glimpse(self, path: str) -> bool:
        """As `exists`, but the answer may be a second old."""
        return self.exists(path)

    def entries(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        """The names in a folder and what each is; empty if it is not a folder or cannot be listed.

        None if there are more than `limit`.
        """
        found: Mapping[str, EntryKind] | None = self.look("entries", path, limit)
        return found

    def listing(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        """As `entries`, but None for a folder that cannot be listed; empty only if there can be nothing."""
        found: Mapping[str, EntryKind] | None = self.look("listing", path, limit)
        return found

    def is_folder(self, path: str) -> bool:
        """Whether the path is a folder that can be entered, with symlinks followed."""
        return bool(self.look("is_folder", path))

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """The contents of a regular file, with symlinks followed; None for anything else, or if it is larger."""
        found: bytes | None = self.look("read", path, max_bytes)
        return found

    def head(self, path: str, max_bytes: int) -> bytes | None:
        """The beginning of a regular file of any size, with symlinks followed; None for anything else."""
        found: bytes | None = self.look("head", path, max_bytes)
        return found

    def identity(self, path: str) -> tuple[int, int] | None:
        """Device and inode, with symlinks followed."""
        found: tuple[int, int] | None = self.look("identity", path)
        return found

    def signature(self, path: str) -> tuple[int, ...] | None:
        """A value that changes with the contents of a file, with symlinks followed; None if it is not known.

        Its last item is the ctime in nanoseconds: no program can set it, but it is only as fine as the kernel's clock.
        """
        found: tuple[int, ...] | None = self.look("signature", path)
        return found

    def state(self, path: str) -> tuple[int, ...] | None:
        """As `signature`, without following symlinks. For a folder it changes with the names in it."""
        found: tuple[int, ...] | None = self.look("state", path)
        return found

    def resolve(self, path: str) -> ResolvedPath:
        """Follow the symlinks of a path."""
        return resolve_path(path, self.readlink)

    def folder_aliases(self, folders: tuple[str, ...]) -> tuple[str, ...]:
        """The folders as given, and their real paths."""
        return tuple(dict.fromkeys([*folders, *(self.resolve(folder).real or folder for folder in folders)]))

    def spend(self, steps: int) -> None:
        """Count the work of a decision. Raises OverBudget if it takes too many steps."""

    def prefetch(self, folder: str) -> None:
        """List a folder once, so that names that are not in it need no further access."""

    def possible_names(self, folder: str, names: Collection[str]) -> Collection[str]:
        """The names (in lower case) that a folder may have; all of them if it was not prefetched."""
        return names

    def watch_folder(self, folder: str) -> None:
        """Call this before checking single names in a folder: `memoize` then watches the folder instead."""


class RealFilesystem(Filesystem):
    def __init__(self, home: str, now: Callable[[], int] = time.time_ns) -> None:
        self.home = home
        self.now = now
        self.memo: dict[Hashable, Any] | None = {}
        """The results that `memoize` keeps across decisions."""
        self._seen: dict[str, bool] = {}
        self._seen_in = 0
        """The second of `_seen`."""

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

    def glimpse(self, path: str) -> bool:
        second = int(time.monotonic())
        if second != self._seen_in:
            self._seen, self._seen_in = {}, second
        known = self._seen.get(path)
        if known is None:
            known = self._seen[path] = self.exists(path)
        return known

    def entries(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        try:
            return _scan(path, limit)
        except (OSError, ValueError):
            return {}

    def listing(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
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
        return _read_file(path, max_bytes, is_whole=True)

    def head(self, path: str, max_bytes: int) -> bytes | None:
        return _read_file(path, max_bytes, is_whole=False)

    def identity(self, path: str) -> tuple[int, int] | None:
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        return status.st_dev, status.st_ino

    def signature(self, path: str) -> tuple[int, ...] | None:
        return _describe_state(os.stat, path)

    def state(self, path: str) -> tuple[int, ...] | None:
        return _describe_state(os.lstat, path)


def _scan(path: str, limit: int) -> Mapping[str, EntryKind] | None:
    found: dict[str, EntryKind] = {}
    with os.scandir(path) as folder:
        for entry in islice(folder, limit + 1):
            is_folder = entry.is_dir(follow_symlinks=False)
            found[entry.name] = "folder" if is_folder else "link" if entry.is_symlink() else "file"
    return found if len(found) <= limit else None


def _read_file(path: str, max_bytes: int, *, is_whole: bool) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError):
        return None
    try:
        status, most = os.fstat(descriptor), max_bytes + is_whole
        if not stat.S_ISREG(status.st_mode) or (is_whole and status.st_size > max_bytes):
            return None
        data = os.read(descriptor, min(status.st_size + 1, most))
        while len(data) < most and (more := os.read(descriptor, min(4096, most - len(data)))):  # the file may grow
            data += more
        return data if len(data) <= max_bytes else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _describe_state(get_status: Callable[[str], os.stat_result], path: str) -> tuple[int, ...] | None:
    try:
        status = get_status(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class CachedFilesystem(Filesystem):
    """The file system during one decision: every symlink is read once, so it has one target."""

    def __init__(self, fs: Filesystem) -> None:
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

    def spend(self, steps: int) -> None:
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
        """A folder that cannot be listed, or that has many entries, is read name by name. So is a name that exists in
        another spelling, which some file systems take for the same.
        """
        if folder in self._prefetched:
            return
        self.spend(4)
        found = self._fs.listing(folder, MAX_LISTED)
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
        known = self._aliases.get(folders)
        if known is None:
            known = self._aliases[folders] = super().folder_aliases(folders)
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
            found = self._entries[real] = self._fs.entries(real, min(limit, self._entries_left))
            self._entries_left -= len(found) if found is not None else self._entries_left
        return self._entries[real]

    def look(self, kind: str, path: str, *limit: int) -> Any:
        return getattr(self._fs, kind)(path, *limit)

    def watch_folder(self, folder: str) -> None:
        self._fs.watch_folder(folder)

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


class RemoteFilesystem(Filesystem):
    """`get(kind, path, limit, guess)` returns a fact, as workspace/remote/client.py does."""

    def __init__(self, home: str, get: Callable[[str, str, int, Any], Any]) -> None:
        self.home = home
        self._get = get

    def look(self, kind: str, path: str, *limit: int) -> Any:
        found = self._get(kind, path, sum(limit), {} if kind == "entries" else None)
        if found is None or kind in ("exists", "is_folder", "read", "head"):
            return found
        if kind == "readlink":
            return as_name(found)
        return {as_name(name): each for name, each in found.items()} if isinstance(found, Mapping) else tuple(found)


def as_name(found: str | bytes) -> str:
    """A name that is not valid Unicode arrives as bytes."""
    return found if isinstance(found, str) else os.fsdecode(found)


Access = tuple[str, str, object]
"""The kind of fact to look up again, its path, and the value."""


class CachedResult(Struct, frozen=True):
    value: Any
    accesses: tuple[Access, ...]
    steps: int

    def is_valid(self, fs: CachedFilesystem) -> bool:
        return all(getattr(fs, kind)(path) == value for kind, path, value in self.accesses)


def memoize(key: Hashable, fs: Filesystem, compute: Callable[[Filesystem], T]) -> T:
    """The key names everything that `compute` depends on besides the file system. Raises OverBudget."""
    if not isinstance(fs, CachedFilesystem) or fs.real is None or fs.real.memo is None:
        return compute(fs)
    memo, steps_before = fs.real.memo, fs.steps
    cached: CachedResult | None = memo.get(key)
    is_valid = cached is not None and cached.is_valid(fs)
    fs.steps = steps_before
    if cached is None or not is_valid:
        recorder = RecordingFilesystem(fs.real)
        recorded_fs = CachedFilesystem(recorder)
        cached = CachedResult(compute(recorded_fs), recorder.accesses(), recorded_fs.steps)
        keep(memo, key, cached)
    fs.spend(cached.steps)
    value: T = cached.value  # the same key means the same computation
    return value


def recall(key: Hashable, real: RealFilesystem, compute: Callable[[Filesystem], T]) -> T:
    """The same outside of the budget, for a computation that has a limit of its own."""
    memo: dict[Hashable, CachedResult] = {} if real.memo is None else real.memo
    cached = memo.get(key)
    if cached is None or not cached.is_valid(CachedFilesystem(real)):
        recorder = RecordingFilesystem(real)
        cached = CachedResult(compute(recorder), recorder.accesses(), 0)
        keep(memo, key, cached)
    value: T = cached.value
    return value


def keep(memo: dict[Hashable, Any], key: Hashable, cached: CachedResult) -> None:
    """Keep a result, unless a change of what it depends on could go unnoticed."""
    if len(memo) >= MAX_RESULTS:
        memo.clear()
    if cached.accesses:
        memo[key] = cached
    else:
        memo.pop(key, None)


class RecordingFilesystem(Filesystem):
    """The real file system, with a record of every access."""

    def __init__(self, fs: RealFilesystem) -> None:
        self.home = fs.home
        self._fs = fs
        self._accesses: dict[tuple[str, str], Access] = {}
        self._states: dict[str, tuple[int, ...] | None] = {}
        self._is_cacheable = True

    def accesses(self) -> tuple[Access, ...]:
        """The accesses to repeat; empty if a change could go unnoticed."""
        states: list[Access] = [("state", path, state) for path, state in self._states.items()]
        accesses = (*states, *(access for access in self._accesses.values() if not self._is_implied(*access)))
        return accesses if self._is_cacheable and len(accesses) <= MAX_ACCESSES else ()

    def _is_implied(self, kind: str, path: str, _: object) -> bool:
        """Whether a recorded state covers the access. The state of a name covers whether it exists, whether it is a
        symlink, and its contents. The state of a folder covers which names it has, and which are symlinks."""
        folder = path.rpartition("/")[0] or "/"
        return path in self._states or (kind in ("exists", "readlink") and folder in self._states)

    def watch_folder(self, folder: str) -> None:
        self._record_state(folder)

    def look(self, kind: str, path: str, *limit: int) -> Any:
        has_contents = kind in ("read", "head", "entries", "listing")
        if has_contents:
            self._record_state(path)
        found = getattr(self._fs, kind)(path, *limit)
        # What could not be read may become readable without a change of its state. Such a folder looks empty.
        if has_contents and self._states[path] is not None and (found is None or (kind == "entries" and not found)):
            self._is_cacheable = False
        elif not has_contents and kind != "state":
            self._accesses[kind, path] = (kind, path, found)
        return found

    def _record_state(self, path: str) -> None:
        """Call this before the contents are read: a change in between then shows in the next state."""
        if path in self._states:
            return
        state = self._states[path] = self._fs.state(path)
        is_recent = state is not None and self._fs.now() - state[-1] < SETTLED_NANOSECONDS
        if self._fs.readlink(path) is not None or is_recent:
            self._is_cacheable = False
