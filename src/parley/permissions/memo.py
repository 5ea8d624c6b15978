"""A cache of results computed from the file system, valid while the file system is unchanged.

    memoize(key, fs, compute)              # compute(fs), or its earlier result

`compute` runs on a file system of its own that records every access. Before the result is used again, every access is
repeated: a symlink still has the same target, a missing name is still missing. A file or folder whose contents were
read is compared by identity, size and times instead. A program cannot set the time of the last change (ctime), but
the kernel's clock is coarse, so nothing that was read shortly after a change is cached.

A result costs the same steps of the budget whether it was cached or not: equal calls get equal decisions.

See also: file systems (paths/filesystem.py), cached repository findings (git/repository.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from parley.permissions.base import EntryKind, Filesystem, RawFilesystem
from parley.permissions.paths.filesystem import CachedFilesystem, RealFilesystem
from parley.protocol.base import Struct

MAX_RESULTS = 64
MAX_ACCESSES = 256
"""A result that depends on more is computed anew each time."""
SETTLED_NANOSECONDS = 2_000_000_000
"""A change this long ago has a time of its own; two changes in quick succession may share one."""

T = TypeVar("T")
Access = tuple[Callable[[CachedFilesystem, str], object], str, object]
"""The method to call again, its path, and the value it returned."""


class CachedResult(Struct, frozen=True):
    value: Any
    accesses: tuple[Access, ...]
    steps: int

    def is_valid(self, fs: CachedFilesystem) -> bool:
        return all(method(fs, path) == value for method, path, value in self.accesses)


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


def recall(key: Hashable, real: RealFilesystem, compute: Callable[[RawFilesystem], T]) -> T:
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


class RecordingFilesystem(RealFilesystem):
    """The real file system, with a record of every access."""

    def __init__(self, fs: RealFilesystem) -> None:
        super().__init__(fs.home, fs.now)
        self.memo = None  # a cached result would hide accesses
        self._fs = fs
        self._accesses: dict[tuple[str, str], Access] = {}
        self._states: dict[str, tuple[int, ...] | None] = {}
        self._is_cacheable = True

    def accesses(self) -> tuple[Access, ...]:
        """The accesses to repeat; empty if a change could go unnoticed."""
        states: list[Access] = [(CachedFilesystem.state, path, state) for path, state in self._states.items()]
        accesses = (*states, *(access for access in self._accesses.values() if not self._is_implied(*access)))
        return accesses if self._is_cacheable and len(accesses) <= MAX_ACCESSES else ()

    def _is_implied(self, method: Callable[[CachedFilesystem, str], object], path: str, _: object) -> bool:
        """Whether a recorded state covers the access. The state of a name covers whether it exists, whether it is a
        symlink, and its contents. The state of a folder covers which names it has, and which are symlinks."""
        folder = path.rpartition("/")[0] or "/"
        return path in self._states or (
            method in (CachedFilesystem.exists, CachedFilesystem.readlink) and folder in self._states
        )

    def watch_folder(self, folder: str) -> None:
        self._record_state(folder)

    def readlink(self, path: str) -> str | None:
        return self._record(CachedFilesystem.readlink, path, self._fs.readlink(path))

    def exists(self, path: str) -> bool:
        return self._record(CachedFilesystem.exists, path, self._fs.exists(path))

    def is_folder(self, path: str) -> bool:
        return self._record(CachedFilesystem.is_folder, path, self._fs.is_folder(path))

    def identity(self, path: str) -> tuple[int, int] | None:
        return self._record(CachedFilesystem.identity, path, self._fs.identity(path))

    def signature(self, path: str) -> tuple[int, ...] | None:
        return self._record(CachedFilesystem.signature, path, self._fs.signature(path))

    def read(self, path: str, max_bytes: int) -> bytes | None:
        self._record_state(path)
        return self._check_readable(path, self._fs.read(path, max_bytes))

    def entries(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        self._record_state(path)
        found = self._fs.entries(path, limit)
        self._check_readable(path, found or None)  # a folder that cannot be listed looks empty
        return found

    def listing(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        self._record_state(path)
        return self._check_readable(path, self._fs.listing(path, limit))

    def _record(self, method: Callable[[CachedFilesystem, str], T], path: str, value: T) -> T:
        self._accesses[method.__name__, path] = (method, path, value)
        return value

    def _record_state(self, path: str) -> None:
        """Call this before the contents are read: a change in between then shows in the next state."""
        if path in self._states:
            return
        state = self._states[path] = self._fs.state(path)
        if self._fs.readlink(path) is not None or (state is not None and self.now() - state[-1] < SETTLED_NANOSECONDS):
            self._is_cacheable = False

    def _check_readable(self, path: str, found: T) -> T:
        """What exists but could not be read may become readable without a change of its state."""
        if found is None and self._states[path] is not None:
            self._is_cacheable = False
        return found
