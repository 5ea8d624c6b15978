"""Find files on this machine, by path (walk.py) and by content (ripgrep.py): the implementation of `FileSearch`.

Both start from a folder that is opened once and checked (`open_root`), so a path that is replaced later has no effect.
Hidden files, and symlinks that lead out of scope, do not appear in the results.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace.base import ContentQuery, FileListing, Scope, SearchArea, SearchMatches
from parley.workspace.globs import BadGlob, PathGlob, split_prefix
from parley.workspace.safe_open import Pins, check_name, is_beneath, not_found_error, out_of_scope
from parley.workspace.search import ripgrep
from parley.workspace.search.walk import Walk, WalkFilter, newest

TRAVERSE = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_CLOEXEC


class LocalSearch:
    def __init__(
        self,
        environment: dict[str, str],
        list_changeable: Callable[[], Iterable[str]] = tuple,
        pins: Pins | None = None,
    ) -> None:
        self._environment = environment
        self._list_changeable = list_changeable
        """The folders that the session can change: the search program is not one of theirs."""
        self._pins = pins or Pins()

    def files(
        self, pattern: str, area: SearchArea, *, most: int, ignored: bool, hidden: bool, stop: Callable[[], bool]
    ) -> FileListing:
        prefix, rest = split_prefix(pattern)
        glob = parse_glob(rest or "**", is_path="/" in pattern)

        def look(root: Root) -> FileListing:
            walk = Walk(root.descriptor, root.real, WalkFilter(glob, ignored=ignored, hidden=hidden), stop=stop)
            hides = root.hides(area.hides)

            def is_included(path: str, is_link: bool) -> bool:
                if hides(path):
                    return False
                real = os.path.realpath(os.path.join(root.real, path)) if is_link else ""
                return not is_link or (within(real, area.scope, self._pins) and os.path.isfile(real))

            newest_paths, total = newest(walk, most, is_included)
            top = root.shown_from(area.cwd)
            paths = [printable(os.path.join(top, path)) for path in newest_paths]
            return FileListing(paths=paths, total=total, complete=walk.complete, stopped=walk.stopped)

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

    async def matches(
        self, query: ContentQuery, area: SearchArea, *, timeout_seconds: float, enough_lines: int
    ) -> SearchMatches:
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
        try:
            with open_root(area.path, area.scope, self._pins) as root:
                yield root
        except Missing:
            raise not_found_error(area.path, area.scope, self._pins, area.cwd) from None


def parse_glob(pattern: str, *, is_path: bool) -> PathGlob:
    """Parse a glob. Without a slash it applies to names in all folders. Raises ToolError."""
    try:
        return PathGlob.of(pattern if is_path else f"**/{pattern}")
    except BadGlob as exc:
        raise ToolError(f"The pattern cannot be used: {exc}.") from None


def present(found: SearchMatches, query: ContentQuery, root: Root, cwd: str) -> SearchMatches:
    """The matches with paths as shown to the model, newest first in the mode `files`."""

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


class Root(Struct, frozen=True, kw_only=True):
    descriptor: int
    named: str
    """The requested path, absolute."""
    real: str
    is_folder: bool

    def path(self) -> str:
        """A path that leads to this very object, for this process or a child that inherits the descriptor."""
        return by_descriptor(self.descriptor) or self.real

    def shown_from(self, cwd: str) -> str:
        """The path to show for results, relative to `cwd` if it is beneath it; "" for `cwd` itself."""
        base = os.path.realpath(cwd)
        if self.real == base:
            return ""
        if is_beneath(self.real, base):
            return self.real[len(base) :].lstrip("/")
        return os.path.normpath(self.named)

    def hides(self, hidden: Callable[[str], bool]) -> Callable[[str], bool]:
        """A predicate for paths relative to this root: whether one is hidden, by its requested or its real path."""
        tops = {os.path.normpath(self.named), self.real}
        if not self.is_folder:
            return lambda path: any(hidden(top) for top in tops)
        real, *others = (top.rstrip("/") + "/" for top in tops)
        if not others:
            return lambda path: hidden(real + path)
        [named] = others
        return lambda path: hidden(real + path) or hidden(named + path)


class Missing(ToolError):
    """The path does not exist."""


@contextmanager
def open_root(path: str, scope: Scope, pins: Pins) -> Iterator[Root]:
    """Raises ToolError if the path cannot be searched or is out of scope, Missing if it does not exist."""
    check_name(path)
    try:
        opened = os.open(path, TRAVERSE)
    except (FileNotFoundError, NotADirectoryError):
        raise Missing(f"{path} does not exist.") from None
    except OSError as exc:
        raise ToolError(f"{path} cannot be searched: {exc.strerror}.") from None
    try:
        link = by_descriptor(opened)
        real = os.readlink(link) if link else os.path.realpath(path)
        if not within(real, scope, pins):
            raise out_of_scope(path, real, scope)
        mode = os.fstat(opened).st_mode
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise ToolError(f"{path} is neither a file nor a folder, so it cannot be searched.")
        descriptor = readable(opened, path, real, stat.S_ISDIR(mode))
    finally:
        os.close(opened)
    try:
        yield Root(descriptor=descriptor, named=path, real=real, is_folder=stat.S_ISDIR(mode))
    finally:
        os.close(descriptor)


def within(real: str, scope: Scope, pins: Pins) -> bool:
    """Whether a real path is in scope."""
    if scope.anywhere or real in scope.files:
        return True
    folders = [pins.real(folder) for folder in scope.folders]
    return any(real == folder or is_beneath(real, folder) for folder in folders)


def readable(opened: int, path: str, real: str, is_folder: bool) -> int:
    """Open the same object for reading. Raises ToolError."""
    kind = os.O_DIRECTORY if is_folder else 0
    try:
        return os.open(by_descriptor(opened) or real, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | kind)
    except OSError as exc:
        raise ToolError(f"{path} cannot be read: {exc.strerror}.") from None


def by_descriptor(descriptor: int) -> str | None:
    link = f"/proc/self/fd/{descriptor}"
    return link if os.path.lexists(link) else None


def printable(path: str) -> str:
    """A path as valid text: invalid bytes are replaced."""
    return path if path.isascii() else os.fsencode(path).decode(errors="replace")
