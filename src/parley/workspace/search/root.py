"""Open the folder or file that a search starts from, and check that it is in scope.

    with open_root("/home/me/project", scope, pins) as root:
        root.descriptor, root.real, root.is_folder

The rest of the search starts from the descriptor, so a path that is replaced later has no effect.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace.base import Scope
from parley.workspace.safe_open import Pins, check_name, is_beneath, out_of_scope

TRAVERSE = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_CLOEXEC


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
        real = real_path(opened, path)
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


def real_path(descriptor: int, path: str) -> str:
    """The real path of the opened object."""
    link = by_descriptor(descriptor)
    return os.readlink(link) if link else os.path.realpath(path)


def by_descriptor(descriptor: int) -> str | None:
    link = f"/proc/self/fd/{descriptor}"
    return link if os.path.lexists(link) else None


def printable(path: str) -> str:
    """A path as valid text: invalid bytes are replaced."""
    return path if path.isascii() else os.fsencode(path).decode(errors="replace")
