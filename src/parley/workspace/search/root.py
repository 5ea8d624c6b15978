"""Where a search begins: a folder or a file, opened once and judged as what it really is.

    with opened("/home/me/project", reach, pins) as root:
        root.descriptor, root.real, root.is_folder

Everything else of the search starts from the descriptor, so that a name that leads
elsewhere a moment later changes nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace.base import Reach
from parley.workspace.safe_open import Pins, check_name, is_beneath, out_of_reach

LOOK = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_CLOEXEC


class Root(Struct, frozen=True, kw_only=True):
    descriptor: int
    named: str
    """As it was asked for, absolute."""
    real: str
    is_folder: bool

    def path(self) -> str:
        """A path for a child of ours that has the descriptor, or for us, that leads to this very object."""
        return by_descriptor(self.descriptor) or self.real

    def shown_from(self, cwd: str) -> str:
        """How it is called by somebody who works in `cwd`; empty for `cwd` itself."""
        base = os.path.realpath(cwd)
        if self.real == base:
            return ""
        if is_beneath(self.real, base):
            return self.real[len(base) :].lstrip("/")
        return os.path.normpath(self.named)

    def hides(self, hidden: Callable[[str], bool]) -> Callable[[str], bool]:
        """For paths from here on: whether one is hidden, by the name it was asked for or by its real one."""
        tops = {os.path.normpath(self.named), self.real}
        if not self.is_folder:
            return lambda path: any(hidden(top) for top in tops)
        real, *others = (top.rstrip("/") + "/" for top in tops)
        if not others:
            return lambda path: hidden(real + path)
        [named] = others
        return lambda path: hidden(real + path) or hidden(named + path)


class Missing(ToolError):
    """There is nothing of that name."""


@contextmanager
def opened(path: str, reach: Reach, pins: Pins) -> Iterator[Root]:
    """Raises ToolError if it cannot be searched or is out of reach; Missing if it is not there."""
    check_name(path)
    try:
        found = os.open(path, LOOK)
    except (FileNotFoundError, NotADirectoryError):
        raise Missing(f"{path} does not exist.") from None
    except OSError as flaw:
        raise ToolError(f"{path} cannot be searched: {flaw.strerror}.") from None
    try:
        real = real_path(found, path)
        if not within(real, reach, pins):
            raise out_of_reach(path, real, reach)
        mode = os.fstat(found).st_mode
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise ToolError(f"{path} is neither a file nor a folder, so it cannot be searched.")
        descriptor = readable(found, path, real, stat.S_ISDIR(mode))
    finally:
        os.close(found)
    try:
        yield Root(descriptor=descriptor, named=path, real=real, is_folder=stat.S_ISDIR(mode))
    finally:
        os.close(descriptor)


def within(real: str, reach: Reach, pins: Pins) -> bool:
    """Whether a real path may be searched."""
    if reach.anywhere or real in reach.files:
        return True
    folders = [pins.real(folder) for folder in reach.folders]
    return any(real == folder or is_beneath(real, folder) for folder in folders)


def readable(found: int, path: str, real: str, is_folder: bool) -> int:
    """The same object, opened for reading. Raises ToolError."""
    kind = os.O_DIRECTORY if is_folder else 0
    try:
        return os.open(by_descriptor(found) or real, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | kind)
    except OSError as flaw:
        raise ToolError(f"{path} cannot be read: {flaw.strerror}.") from None


def real_path(descriptor: int, path: str) -> str:
    """The path of the opened object itself."""
    link = by_descriptor(descriptor)
    return os.readlink(link) if link else os.path.realpath(path)


def by_descriptor(descriptor: int) -> str | None:
    link = f"/proc/self/fd/{descriptor}"
    return link if os.path.lexists(link) else None


def printable(path: str) -> str:
    """A path as text: bytes of a name that are no text are replaced."""
    return path if path.isascii() else os.fsencode(path).decode(errors="replace")
