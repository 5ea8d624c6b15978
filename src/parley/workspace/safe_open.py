"""Finding and opening files so that nothing but the opened object counts.

A name is resolved once, to the place it really leads to; then that place is opened
from the descriptor of a folder within reach, without following a single link:

    with find(path, reach, pins) as place:     # beneath a folder of the reach, or ToolError
        descriptor = place.open()              # a regular file, or ToolError, or FileNotFoundError

If somebody swaps a file, a folder or a link in between, the walk meets a link or
nothing, and is tried anew from the name. So what a check saw and what is opened are the
same object. Not here: what is done with it (local.py, atomic.py).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace import syscalls
from parley.workspace.base import Reach

FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
# O_NONBLOCK: a pipe that takes a regular file's place must not hang us.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
TRIES = 20
"""How often a name is followed anew while somebody swaps what it leads to."""
MET_A_LINK = {errno.ELOOP, errno.EXDEV, errno.EAGAIN}

KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link that leads nowhere we may go"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Swapped(Exception):
    """What the name leads to changed while it was followed."""


class Place(Struct, frozen=True, kw_only=True):
    """Where a file is or would be: a name in an opened folder."""

    folder: int
    name: str
    path: str
    """The real path: no link in it."""
    only: tuple[int, int] | None = None
    """Device and inode that the file must have, where its path alone does not say that it is the one."""

    def status(self) -> os.stat_result | None:
        """What is there now, a link itself included; None if nothing is. Raises OSError."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def has_moved(self) -> bool:
        """Whether the folder is not where it was when it was opened. Raises OSError."""
        try:
            now = open_root(self.path.rpartition("/")[0])
        except OSError as flaw:
            if flaw.errno in MET_A_LINK | {errno.ENOENT, errno.ENOTDIR}:
                return True
            raise
        try:
            return not os.path.samestat(os.fstat(now), os.fstat(self.folder))
        finally:
            os.close(now)

    def open(self) -> int:
        """A descriptor of the regular file. Raises ToolError for other kinds, Swapped and OSError."""
        # Looking before opening: to open a device can be an act of its own.
        must_be_regular(os.stat(self.name, dir_fd=self.folder, follow_symlinks=False), self.path)
        try:
            descriptor = os.open(self.name, FILE, dir_fd=self.folder)
        except OSError as flaw:
            # ENXIO: a socket took the file's place.
            if flaw.errno in MET_A_LINK | {errno.ENOENT, errno.ENXIO}:
                raise Swapped from None
            raise
        try:
            opened = os.fstat(descriptor)
            must_be_regular(opened, self.path)
            if self.only not in (None, (opened.st_dev, opened.st_ino)):
                raise Swapped
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def must_be_regular(status: os.stat_result, path: str) -> None:
    """Raises ToolError that says what it is instead; Swapped if it became a link."""
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISLNK(status.st_mode):
        raise Swapped
    what = next((words for test, words in KINDS if test(status.st_mode)), "no regular file")
    advice = "; list it with Glob, or with ls in Bash" if stat.S_ISDIR(status.st_mode) else ""
    raise ToolError(f"{path} is {what}, not a file{advice}.")


class Pins:
    """The folders of a reach, each bound to the place it was when it was first used.

    A folder that is a link later, or lies beneath one, is refused: whoever runs in it
    could else move the border.
    """

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def real(self, folder: str) -> str:
        if folder not in self._real:
            self._real[folder] = os.path.realpath(folder)
        return self._real[folder]


@contextmanager
def find(path: str, reach: Reach, pins: Pins, *, to_write: bool = False, make_folders: bool = False) -> Iterator[Place]:
    """The place a name leads to. Raises ToolError if that is out of reach, OSError, Swapped."""
    check_name(path)
    place = _open_place(path, reach, pins, to_write, make_folders)
    try:
        yield place
    finally:
        os.close(place.folder)


@contextmanager
def at(path: str, *, make_folders: bool = False) -> Iterator[Place]:
    """The place with exactly this real path. Raises Swapped if a link is on the way, OSError."""
    place = _beneath("/", path, make_folders)
    try:
        yield place
    finally:
        os.close(place.folder)


def check_name(path: str) -> None:
    """Raises ToolError for what can be no path."""
    if not path.startswith("/"):
        raise ToolError(f"The path must be absolute, and {path!r} is not.")
    if "\0" in path:
        raise ToolError("A path cannot contain a NUL character.")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ToolError("The path is not valid Unicode.") from None


def _open_place(path: str, reach: Reach, pins: Pins, to_write: bool, make_folders: bool) -> Place:
    real = real_path(path)
    if real == "/":
        raise ToolError("/ is a folder, not a file.")
    if reach.anywhere:
        return _beneath("/", real, make_folders)
    for folder in reach.folders:
        root = pins.real(folder)
        if real == root:
            raise ToolError(f"{path} is a folder, not a file.")
        if is_beneath(real, root):
            return _beneath(root, real, make_folders)
    if real in reach.files:
        return _beneath("/", real, make_folders)
    # Another name of the same object may be read by; written would be another place.
    if not to_write and (only := _object_among(real, reach.files)) is not None:
        return msgspec.structs.replace(_beneath("/", real, make_folders), only=only)
    raise out_of_reach(path, real, reach)


def real_path(path: str) -> str:
    """Where a name leads to, whether or not something is there. Raises ToolError, Swapped and OSError."""
    try:
        real = os.path.realpath(path)
    except RecursionError:
        raise ToolError(f"{path} leads from link to link too often.") from None
    except OSError as flaw:
        # What was a link when it was looked at is none any more.
        if flaw.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
            raise Swapped from None
        raise
    check_name(real)
    return real


def out_of_reach(path: str, real: str, reach: Reach) -> ToolError:
    leads = f"{path} leads to {real}, which" if real != os.path.normpath(path) else path
    limits = ", ".join((*reach.folders, *reach.files)) or "nothing"
    return ToolError(f"{leads} is outside of what this call may touch ({limits}).")


def is_beneath(real: str, root: str) -> bool:
    """Whether a real path lies in a folder, by whole components."""
    return real.startswith(root if root == "/" else root + "/")


def _object_among(real: str, files: tuple[str, ...]) -> tuple[int, int] | None:
    """The device and inode of a place, if one of these files is the same object."""
    mine = identity(real)
    return mine if mine is not None and any(identity(file) == mine for file in files) else None


def identity(real: str) -> tuple[int, int] | None:
    """Device and inode of what has exactly this real path; None if nothing has, or a link is on the way."""
    try:
        with at(real) as place:
            status = place.status()
    except (OSError, Swapped):
        return None
    if status is None or stat.S_ISLNK(status.st_mode):
        return None
    return status.st_dev, status.st_ino


def _beneath(root: str, real: str, make_folders: bool) -> Place:
    """Open the folder of a real path, from the root on, following no link. Raises Swapped and OSError."""
    parent, _, name = real.rpartition("/")
    inner = parent[len(root) :].strip("/") if root != "/" else parent.strip("/")
    try:
        top = open_root(root)
        try:
            folder = make_folder(top, inner) if make_folders else open_folder(top, inner)
        finally:
            os.close(top)
    except OSError as flaw:
        if flaw.errno in MET_A_LINK:
            raise Swapped from None
        raise
    return Place(folder=folder, name=name, path=real)


def open_root(root: str) -> int:
    """A folder by its real path. Raises OSError (ELOOP or EXDEV at a link)."""
    top = os.open("/", FOLDER)
    try:
        return open_folder(top, root.strip("/"))
    finally:
        os.close(top)


def open_folder(top: int, inner: str) -> int:
    """A folder beneath an opened one, following no link. Raises OSError (ELOOP or EXDEV at a link)."""
    if not inner:
        return os.open(".", FOLDER, dir_fd=top)
    return syscalls.openat2(top, inner, FOLDER) if syscalls.has_openat2() else walk(top, inner)


def walk(top: int, inner: str) -> int:
    """The same, one component after the other, for systems without openat2."""
    folder = os.dup(top)
    for name in inner.split("/"):
        try:
            below = _step(folder, name)
        finally:
            os.close(folder)
        folder = below
    return folder


def _step(folder: int, name: str) -> int:
    if name == "..":
        raise OSError(errno.EXDEV, "a path may not climb")
    try:
        return os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        # With O_PATH the link itself would have been opened, and is no folder.
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise


def make_folder(top: int, inner: str) -> int:
    """As `open_folder`; what is missing is made."""
    folder = os.dup(top)
    for name in inner.split("/") if inner else ():
        try:
            try:
                below = open_folder(folder, name)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=folder)
                below = open_folder(folder, name)
        finally:
            os.close(folder)
        folder = below
    return folder
