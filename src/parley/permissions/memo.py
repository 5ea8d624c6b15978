"""What was worked out from the file system, kept from one decision to the next for as long as it still holds.

    recall(key, view, work)              # work(view), or what it returned before

The work is done on a view of its own that notes every look it takes. Before the result is used again, every look is
taken again: a link still says the same, a missing name is still missing. A file or folder whose contents were read is
compared by its identity, size and times instead. The time of the last change (ctime) cannot be set by a program, but
it is only as fine as the kernel's clock; so what was read shortly after a change is not kept.

A result costs the same steps of the budget whether it was kept or not: the same call is always decided alike.

See also: views (paths/filesystem.py), what is kept of repositories (git/repository.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from parley.permissions.base import EntryKind, Filesystem
from parley.permissions.paths.filesystem import CachedFilesystem, RealFilesystem
from parley.protocol.base import Struct

MOST_RESULTS = 64
MOST_LOOKS = 256
"""A result that depends on more is worked out anew each time."""
SETTLED_NANOSECONDS = 2_000_000_000
"""A file that changed this long ago would show another change; two in quick succession may have the same time."""

T = TypeVar("T")
Look = tuple[Callable[[CachedFilesystem, str], object], str, object]
"""How a look is taken again, at what, and what was seen."""


class Kept(Struct, frozen=True):
    result: Any
    looks: tuple[Look, ...]
    steps: int

    def holds(self, fs: CachedFilesystem) -> bool:
        return all(look(fs, path) == seen for look, path, seen in self.looks)


def recall(key: Hashable, fs: Filesystem, work: Callable[[Filesystem], T]) -> T:
    """The key names all that the work depends on beside the file system. Raises OverBudget."""
    if not isinstance(fs, CachedFilesystem) or fs.real is None or fs.real.kept is None:
        return work(fs)
    shelf, before = fs.real.kept, fs.steps
    kept: Kept | None = shelf.get(key)
    holds = kept is not None and kept.holds(fs)
    fs.steps = before
    if kept is None or not holds:
        noting = Noting(fs.real)
        apart = CachedFilesystem(noting)
        kept = Kept(work(apart), noting.looks(), apart.steps)
        if len(shelf) >= MOST_RESULTS:
            shelf.clear()
        if kept.looks:
            shelf[key] = kept
        else:
            shelf.pop(key, None)
    fs.spend(kept.steps)
    result: T = kept.result  # of the same key, so of the same work
    return result


class Noting(RealFilesystem):
    """A view of the file system, with a note of every look at it."""

    def __init__(self, fs: RealFilesystem) -> None:
        super().__init__(fs.home, fs.now)
        self.kept = None  # what was kept would hide looks
        self._fs = fs
        self._looks: dict[tuple[str, str], Look] = {}
        self._states: dict[str, tuple[int, ...] | None] = {}
        self._can_be_kept = True

    def looks(self) -> tuple[Look, ...]:
        """What has to be looked at again; nothing if a change might not be seen."""
        states: list[Look] = [(CachedFilesystem.state, path, state) for path, state in self._states.items()]
        looks = (*states, *(look for look in self._looks.values() if not self._is_implied(*look)))
        return looks if self._can_be_kept and len(looks) <= MOST_LOOKS else ()

    def _is_implied(self, look: Callable[[CachedFilesystem, str], object], path: str, _: object) -> bool:
        """The state of a name says all of it: whether it is there, is a link, and what is in it. The state of a
        folder says which names are in it, and whether these are links."""
        folder = path.rpartition("/")[0] or "/"
        return path in self._states or (
            look in (CachedFilesystem.exists, CachedFilesystem.readlink) and folder in self._states
        )

    def heed(self, folder: str) -> None:
        self._note_state(folder)

    def readlink(self, path: str) -> str | None:
        return self._note(CachedFilesystem.readlink, path, self._fs.readlink(path))

    def exists(self, path: str) -> bool:
        return self._note(CachedFilesystem.exists, path, self._fs.exists(path))

    def is_folder(self, path: str) -> bool:
        return self._note(CachedFilesystem.is_folder, path, self._fs.is_folder(path))

    def identity(self, path: str) -> tuple[int, int] | None:
        return self._note(CachedFilesystem.identity, path, self._fs.identity(path))

    def signature(self, path: str) -> tuple[int, ...] | None:
        return self._note(CachedFilesystem.signature, path, self._fs.signature(path))

    def read(self, path: str, most_bytes: int) -> bytes | None:
        self._note_state(path)
        return self._note_contents(path, self._fs.read(path, most_bytes))

    def entries(self, path: str, most: int) -> Mapping[str, EntryKind] | None:
        self._note_state(path)
        found = self._fs.entries(path, most)
        self._note_contents(path, found or None)  # a folder that cannot be listed seems empty
        return found

    def listing(self, path: str, most: int) -> Mapping[str, EntryKind] | None:
        self._note_state(path)
        return self._note_contents(path, self._fs.listing(path, most))

    def _note(self, look: Callable[[CachedFilesystem, str], T], path: str, seen: T) -> T:
        self._looks[look.__name__, path] = (look, path, seen)
        return seen

    def _note_state(self, path: str) -> None:
        """Before the contents are read: a change meanwhile shows in the next state, which then is a later one."""
        if path in self._states:
            return
        state = self._states[path] = self._fs.state(path)
        if self._fs.readlink(path) is not None or (state is not None and self.now() - state[-1] < SETTLED_NANOSECONDS):
            self._can_be_kept = False

    def _note_contents(self, path: str, found: T) -> T:
        """What is there but could not be read may be readable the next time, with the same state."""
        if found is None and self._states[path] is not None:
            self._can_be_kept = False
        return found
