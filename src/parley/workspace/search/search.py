"""Finding files on this machine: by their paths (walk.py) and by what is in them (ripgrep.py).

Both start from a folder that is opened once and judged as what it is (root.py), and
tell of no file that is hidden or that a link leads to out of reach.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from parley.errors import ToolError
from parley.workspace.base import Area, Found, Listing, Query

if TYPE_CHECKING:
    from parley.workspace.globs import Glob
    from parley.workspace.search.root import Root
    from parley.workspace.search.walk import Walk


class LocalSearch:
    def __init__(self, environment: dict[str, str]) -> None:
        from parley.workspace.safe_open import Pins

        self._environment = environment
        """For the search program."""
        self._pins = Pins()

    def files(
        self, pattern: str, area: Area, *, most: int, ignored: bool, hidden: bool, stop: Callable[[], bool]
    ) -> Listing:
        from parley.workspace.globs import split_prefix
        from parley.workspace.search.root import Missing, opened
        from parley.workspace.search.walk import Walk

        prefix, rest = split_prefix(pattern)
        glob = understood(rest or "**", is_path="/" in pattern)

        def look(root: Root) -> Listing:
            walk = Walk(root.descriptor, root.real, glob=glob, ignores=not ignored, hidden=hidden, stop=stop)
            return self._newest(walk, root, area, most)

        with self._start(area) as root:
            if not root.is_folder:
                raise ToolError(f"{area.path} is a file, not a folder.")
            if not prefix:
                return look(root)
        try:
            with opened(os.path.join(area.path, prefix), area.reach, self._pins) as root:
                return look(root) if root.is_folder else Listing()
        except Missing:
            return Listing()

    def _newest(self, walk: Walk, root: Root, area: Area, most: int) -> Listing:
        from parley.workspace.search.root import printable, within
        from parley.workspace.search.walk import newest

        hides = root.hides(area.hides)

        def wanted(path: str, is_link: bool) -> bool:
            if hides(path):
                return False
            real = os.path.realpath(os.path.join(root.real, path)) if is_link else ""
            return not is_link or (within(real, area.reach, self._pins) and os.path.isfile(real))

        found = newest(walk, most, wanted)
        top = root.shown_from(area.cwd)
        paths = [printable(os.path.join(top, path)) for path in found.paths]
        return Listing(paths=paths, total=found.total, complete=walk.complete, stopped=walk.stopped)

    async def matches(self, query: Query, area: Area, *, timeout_seconds: float, enough_lines: int) -> Found:
        from parley.workspace.search import ripgrep

        with ExitStack() as stack:
            root = await asyncio.to_thread(lambda: stack.enter_context(self._start(area)))
            hides = root.hides(area.hides)
            if not root.is_folder and hides(""):
                raise ToolError(f"{area.path} may not be searched: a rule denies it.")
            found = await ripgrep.search(
                query,
                root,
                ripgrep.Conditions(environment=self._environment, confined=not area.reach.anywhere),
                timeout_seconds=timeout_seconds,
                hides=hides,
                enough_lines=enough_lines,
            )
            return await asyncio.to_thread(lambda: told(found, query, root, area.cwd))

    @contextmanager
    def _start(self, area: Area) -> Iterator[Root]:
        """Raises ToolError; where there is nothing of that name, with names that come near."""
        from parley.workspace import os_errors
        from parley.workspace.search.root import Missing, opened

        try:
            with opened(area.path, area.reach, self._pins) as root:
                yield root
        except Missing:
            raise os_errors.missing(area.path, area.reach, self._pins, area.cwd) from None


def understood(pattern: str, *, is_path: bool) -> Glob:
    """Without a slash, a pattern is meant for names in all folders. Raises ToolError."""
    from parley.workspace.globs import BadGlob, Glob

    try:
        return Glob.of(pattern if is_path else f"**/{pattern}")
    except BadGlob as flaw:
        raise ToolError(f"The pattern cannot be used: {flaw}.") from None


def told(found: Found, query: Query, root: Root, cwd: str) -> Found:
    """The same with paths as they are told, and in the order in which they are."""
    import msgspec

    from parley.workspace.search.root import printable

    def age(file: tuple[str, list[bytes]]) -> tuple[int, str]:
        try:
            return -os.stat(file[0], dir_fd=root.descriptor, follow_symlinks=False).st_mtime_ns, file[0]
        except OSError:
            return 0, file[0]  # gone in the meantime

    files = sorted(found.files, key=age) if query.mode == "files" else found.files
    top = root.shown_from(cwd)
    before = os.path.join(top, "") if root.is_folder and top else top
    shown = [(printable(before + path), lines) for path, lines in files]
    return msgspec.structs.replace(found, files=shown)
