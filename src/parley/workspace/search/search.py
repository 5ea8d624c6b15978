"""Find files on this machine, by path (walk.py) and by content (ripgrep.py): the implementation of `FileSearch`.

Both start from a folder that is opened once and checked (root.py). Hidden files, and symlinks that lead out of scope,
do not appear in the results.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from parley.errors import ToolError
from parley.workspace.base import ContentQuery, FileListing, SearchArea, SearchMatches

if TYPE_CHECKING:
    from parley.workspace.globs import PathGlob
    from parley.workspace.search.root import Root
    from parley.workspace.search.walk import Walk


class LocalSearch:
    def __init__(self, environment: dict[str, str], list_changeable: Callable[[], Iterable[str]] = tuple) -> None:
        from parley.workspace.safe_open import Pins

        self._environment = environment
        self._list_changeable = list_changeable
        """The folders that the session can change: the search program is not one of theirs."""
        self._pins = Pins()

    def files(
        self, pattern: str, area: SearchArea, *, most: int, ignored: bool, hidden: bool, stop: Callable[[], bool]
    ) -> FileListing:
        from parley.workspace.globs import split_prefix
        from parley.workspace.search.root import Missing, open_root
        from parley.workspace.search.walk import Walk, WalkFilter

        prefix, rest = split_prefix(pattern)
        glob = parse_glob(rest or "**", is_path="/" in pattern)

        def look(root: Root) -> FileListing:
            walk = Walk(root.descriptor, root.real, WalkFilter(glob, ignored=ignored, hidden=hidden), stop=stop)
            return self._newest(walk, root, area, most)

        with self._start(area) as root:
            if not root.is_folder:
                raise ToolError(f"{area.path} is a file, not a folder.")
            if not prefix:
                return look(root)
        try:
            with open_root(os.path.join(area.path, prefix), area.scope, self._pins) as root:
                return look(root) if root.is_folder else FileListing()
        except Missing:
            return FileListing()

    def _newest(self, walk: Walk, root: Root, area: SearchArea, most: int) -> FileListing:
        from parley.workspace.search.root import printable, within
        from parley.workspace.search.walk import newest

        hides = root.hides(area.hides)

        def is_included(path: str, is_link: bool) -> bool:
            if hides(path):
                return False
            real = os.path.realpath(os.path.join(root.real, path)) if is_link else ""
            return not is_link or (within(real, area.scope, self._pins) and os.path.isfile(real))

        found = newest(walk, most, is_included)
        top = root.shown_from(area.cwd)
        paths = [printable(os.path.join(top, path)) for path in found.paths]
        return FileListing(paths=paths, total=found.total, complete=walk.complete, stopped=walk.stopped)

    async def matches(
        self, query: ContentQuery, area: SearchArea, *, timeout_seconds: float, enough_lines: int
    ) -> SearchMatches:
        import msgspec

        from parley.workspace.search import ripgrep
        from parley.workspace.search.root import printable

        with ExitStack() as stack:
            root = await asyncio.to_thread(lambda: stack.enter_context(self._start(area)))
            is_hidden, withholds = root.hides(area.hides), root.hides(area.withholds)

            def hides(path: str) -> bool:
                return is_hidden(path) or withholds(path)

            if not root.is_folder and hides(""):
                raise ToolError(f"{area.path} cannot be searched: a permission rule denies it.")
            found = await ripgrep.search(
                query,
                root,
                ripgrep.Conditions(
                    environment=self._environment,
                    changeable=tuple(self._list_changeable()),
                    confined=not area.scope.anywhere,
                ),
                timeout_seconds=timeout_seconds,
                hides=hides,
                enough_lines=enough_lines,
            )
            names = await asyncio.to_thread(os.listdir, root.descriptor) if root.is_folder else []
            withheld = [printable(name) for name in sorted(names) if withholds(name) and not is_hidden(name)]
            found = msgspec.structs.replace(found, withheld=withheld)
            return await asyncio.to_thread(lambda: present(found, query, root, area.cwd))

    @contextmanager
    def _start(self, area: SearchArea) -> Iterator[Root]:
        """Open the search root. Raises ToolError; for a missing path, with similar names."""
        from parley.workspace import os_errors
        from parley.workspace.search.root import Missing, open_root

        try:
            with open_root(area.path, area.scope, self._pins) as root:
                yield root
        except Missing:
            raise os_errors.not_found_error(area.path, area.scope, self._pins, area.cwd) from None


def parse_glob(pattern: str, *, is_path: bool) -> PathGlob:
    """Parse a glob. Without a slash it applies to names in all folders. Raises ToolError."""
    from parley.workspace.globs import BadGlob, PathGlob

    try:
        return PathGlob.of(pattern if is_path else f"**/{pattern}")
    except BadGlob as exc:
        raise ToolError(f"The pattern cannot be used: {exc}.") from None


def present(found: SearchMatches, query: ContentQuery, root: Root, cwd: str) -> SearchMatches:
    """The matches with paths as shown to the model, newest first in the mode `files`."""
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
