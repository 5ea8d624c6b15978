"""Watch files for FileChanged hooks, by looking at them now and then.

    watch = FileWatch(notify)                # notify(path, "change" | "add" | "unlink")
    watch.set_paths("hooks", ["/p/.env"])    # replaces the paths of that owner
    watch.close()

A folder stands for the files directly in it. Sessions without watched paths have no task.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress

POLL_SECONDS = 0.5
MAX_FILES = 1000
"""How many files are looked at."""
Stamp = tuple[int, int, int]


class FileWatch:
    def __init__(self, notify: Callable[[str, str], None], warn: Callable[[str], None]) -> None:
        self._notify = notify
        self._warn = warn
        self._paths: dict[str, tuple[str, ...]] = {}
        """The watched paths of each owner."""
        self._seen: dict[str, Stamp] = {}
        self._task: asyncio.Task[None] | None = None
        self._has_warned = False

    @property
    def has_owners(self) -> bool:
        return bool(self._paths)

    def set_paths(self, owner: str, paths: Iterable[str]) -> None:
        """Replace the paths of an owner. Files that exist now are not reported as added.

        Under paths that were watched before, what changed since the last look is still reported by the next one.
        """
        before = self._list_paths()
        self._paths[owner] = tuple(dict.fromkeys(map(os.path.normpath, paths)))
        after = self._list_paths()
        kept = {path: stamp for path, stamp in self._seen.items() if covers(after, path)}
        new = {path: stamp for path, stamp in self._stat_all().items() if not covers(before, path)}
        self._seen = kept | new
        if any(self._paths.values()) and self._task is None:
            self._task = asyncio.create_task(self._poll())

    def accept(self, paths: Iterable[str]) -> None:
        """Do not report the changes of these files so far."""
        now = self._stat_all()
        for path in paths:
            if path in now:
                self._seen[path] = now[path]

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self.check()

    def check(self) -> None:
        """Report what changed since the last look."""
        now, before = self._stat_all(), self._seen
        self._seen = now
        for path in dict.fromkeys([*before, *now]):
            if path not in before:
                self._notify(path, "add")
            elif path not in now:
                self._notify(path, "unlink")
            elif before[path] != now[path]:
                self._notify(path, "change")

    def _stat_all(self) -> dict[str, Stamp]:
        found: dict[str, Stamp] = {}
        for path in self._files():
            with suppress(OSError):
                stat = os.stat(path)
                found[path] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if len(found) >= MAX_FILES:
                if not self._has_warned:
                    self._warn(f"watchPaths: too many files; only the first {MAX_FILES} are watched")
                self._has_warned = True
                break
        return found

    def _list_paths(self) -> dict[str, None]:
        return dict.fromkeys(path for paths in self._paths.values() for path in paths)

    def _files(self) -> Iterator[str]:
        for path in self._list_paths():
            if not os.path.isdir(path):
                yield path
                continue
            with suppress(OSError):
                yield from sorted(entry.path for entry in os.scandir(path) if entry.is_file())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None


def covers(paths: Collection[str], path: str) -> bool:
    """Whether watching these paths includes a file."""
    return path in paths or os.path.dirname(path) in paths
