"""Resolve and open files without races: the checked object is the opened object.

A path is resolved once to its real path. The real path is then opened from the descriptor of a folder in scope,
without following any symlink:

    with find(path, scope, pins) as location:     # raises ToolError if the path is out of scope
        descriptor = location.open()              # a regular file; raises ToolError or FileNotFoundError

If a file, folder or symlink is replaced in between, opening fails with `Swapped`, and the caller starts again from the
path.

`replace_file` keeps the owner and mode of a file. All of its new content is on disk before the file gets its name.

The errors tell a model what to do next (`translate_os_errors`, `not_found_error`).

See also: `local.py`, which reads and writes what is opened here; `private_files.py` for our own files.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace import private_files, syscalls
from parley.workspace.base import Scope

FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
# O_NONBLOCK: opening a pipe that has replaced a regular file must not block.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
TRIES = 20
"""How often a path is resolved again if it changes in between."""
SYMLINK_ERRORS = {errno.ELOOP, errno.EXDEV, errno.EAGAIN}

MOST_NAMES = 10_000
"""How many names of a folder are compared."""
DESCRIPTIONS = {
    errno.ENOENT: "it no longer exists, or its folder cannot be created",
    errno.EACCES: "permission denied",
    errno.EPERM: "the operation is not permitted",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is exceeded",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "its symlinks form a loop",
    errno.ENOTDIR: "part of the path is a file, not a folder",
    errno.EISDIR: "it is a folder",
    errno.EEXIST: "it already exists; read it before you write it",
    errno.EBUSY: "it is in use and cannot be replaced (a mount point?)",
    errno.EFBIG: "it is too large for the file system",
    errno.EMFILE: "too many files are open; try again",
}


class Swapped(Exception):
    """The target of the path changed while it was resolved."""


class FileLocation(Struct, frozen=True, kw_only=True):
    """The location of an existing or new file: a name in an opened folder."""

    folder: int
    name: str
    path: str
    """The real path, without symlinks."""
    only: tuple[int, int] | None = None
    """The device and inode that the file must have, if the scope contains it under another path."""

    def status(self) -> os.stat_result | None:
        """The current status, of a symlink itself; None if nothing exists. Raises OSError."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def has_moved(self) -> bool:
        """Whether the folder was moved since it was opened. Raises OSError."""
        try:
            now = open_root(self.path.rpartition("/")[0])
        except OSError as exc:
            if exc.errno in SYMLINK_ERRORS | {errno.ENOENT, errno.ENOTDIR}:
                return True
            raise
        try:
            return not os.path.samestat(os.fstat(now), os.fstat(self.folder))
        finally:
            os.close(now)

    def open(self) -> int:
        """Open the regular file. Raises ToolError for other file types, Swapped and OSError."""
        # Check before opening, because opening a device can have side effects.
        check_regular(os.stat(self.name, dir_fd=self.folder, follow_symlinks=False), self.path)
        try:
            descriptor = os.open(self.name, FILE, dir_fd=self.folder)
        except OSError as exc:
            # ENXIO: the file was replaced by a socket.
            if exc.errno in SYMLINK_ERRORS | {errno.ENOENT, errno.ENXIO}:
                raise Swapped from None
            raise
        try:
            opened = os.fstat(descriptor)
            check_regular(opened, self.path)
            if self.only not in (None, (opened.st_dev, opened.st_ino)):
                raise Swapped
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def check_regular(status: os.stat_result, path: str) -> None:
    """Raises ToolError, which names the file type, or Swapped if it became a symlink."""
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISLNK(status.st_mode):
        raise Swapped
    kind = private_files.KINDS.get(stat.S_IFMT(status.st_mode), "a special file")
    advice = "; list it with Glob, or with ls in Bash" if stat.S_ISDIR(status.st_mode) else ""
    raise ToolError(f"{path} is {kind}, not a file{advice}.")


class Pins:
    """The real paths of the folders of a scope, fixed at their first use.

    A folder that is replaced by a symlink later is refused. Otherwise a command that runs in it could extend the scope.
    """

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def real(self, folder: str) -> str:
        if folder not in self._real:
            self._real.setdefault(folder, os.path.realpath(folder))  # another thread may be first
        return self._real[folder]


@contextmanager
def find(
    path: str, scope: Scope, pins: Pins, *, to_write: bool = False, make_folders: bool = False
) -> Iterator[FileLocation]:
    """Resolve a path. Raises ToolError if it is out of scope, OSError, Swapped."""
    check_name(path)
    location = _open_location(path, scope, pins, to_write, make_folders)
    try:
        yield location
    finally:
        os.close(location.folder)


@contextmanager
def at(path: str, *, make_folders: bool = False) -> Iterator[FileLocation]:
    """Open the folder of exactly this real path. Raises Swapped if the path contains a symlink, OSError."""
    location = _beneath("/", path, make_folders)
    try:
        yield location
    finally:
        os.close(location.folder)


def check_name(path: str) -> None:
    """Raises ToolError for an invalid path."""
    if not path.startswith("/"):
        raise ToolError(f"The path must be absolute, but {path!r} is relative.")
    if "\0" in path:
        raise ToolError("A path cannot contain a NUL character.")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ToolError("The path is not valid Unicode.") from None


def _open_location(path: str, scope: Scope, pins: Pins, to_write: bool, make_folders: bool) -> FileLocation:
    real = real_path(path)
    if real == "/":
        raise ToolError("/ is a folder, not a file.")
    if scope.anywhere:
        return _beneath("/", real, make_folders)
    for folder in scope.folders:
        root = pins.real(folder)
        if real == root:
            raise ToolError(f"{path} is a folder, not a file.")
        if is_beneath(real, root):
            return _beneath(root, real, make_folders)
    if real in scope.files:
        return _beneath("/", real, make_folders)
    # Another path to the same object may be read. Writing would change another location.
    if not to_write and (only := _object_among(real, scope.files)) is not None:
        return msgspec.structs.replace(_beneath("/", real, make_folders), only=only)
    raise out_of_scope(path, real, scope)


def real_path(path: str) -> str:
    """Resolve all symlinks of a path, which need not exist. Raises ToolError, Swapped and OSError."""
    try:
        real = os.path.realpath(path)
    except RecursionError:
        raise ToolError(f"{path} has too many levels of symlinks.") from None
    except OSError as exc:
        # A symlink was replaced while it was resolved.
        if exc.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
            raise Swapped from None
        raise
    check_name(real)
    return real


def out_of_scope(path: str, real: str, scope: Scope) -> ToolError:
    subject = f"{path} leads to {real}, which" if real != os.path.normpath(path) else path
    allowed = ", ".join((*scope.folders, *scope.files)) or "nothing"
    return ToolError(f"{subject} is outside the paths that this call may access ({allowed}).")


def is_beneath(real: str, root: str) -> bool:
    """Whether a real path is inside a folder, by whole components."""
    return real.startswith(root if root == "/" else root + "/")


def _object_among(real: str, files: tuple[str, ...]) -> tuple[int, int] | None:
    """The device and inode of a path, if one of these files is the same object."""
    mine = identity(real)
    return mine if mine is not None and any(identity(file) == mine for file in files) else None


def identity(real: str) -> tuple[int, int] | None:
    """The device and inode of exactly this real path; None if it does not exist or contains a symlink."""
    try:
        with at(real) as location:
            status = location.status()
    except (OSError, Swapped):
        return None
    if status is None or stat.S_ISLNK(status.st_mode):
        return None
    return status.st_dev, status.st_ino


def _beneath(root: str, real: str, make_folders: bool) -> FileLocation:
    """Open the parent folder of a real path, starting at `root`, without symlinks. Raises Swapped and OSError."""
    parent, _, name = real.rpartition("/")
    inner = parent[len(root) :].strip("/") if root != "/" else parent.strip("/")
    try:
        top = open_root(root)
        try:
            folder = make_folder(top, inner) if make_folders else open_folder(top, inner)
        finally:
            os.close(top)
    except OSError as exc:
        if exc.errno in SYMLINK_ERRORS:
            raise Swapped from None
        raise
    return FileLocation(folder=folder, name=name, path=real)


def open_root(root: str) -> int:
    """Open a folder by its real path. Raises OSError (ELOOP or EXDEV at a symlink)."""
    top = os.open("/", FOLDER)
    try:
        return open_folder(top, root.strip("/"))
    finally:
        os.close(top)


def open_folder(top: int, inner: str) -> int:
    """Open a folder beneath an opened one without symlinks. Raises OSError (ELOOP or EXDEV at a symlink)."""
    if not inner:
        return os.open(".", FOLDER, dir_fd=top)
    return syscalls.openat2(top, inner, FOLDER) if syscalls.has_openat2() else walk(top, inner)


def walk(top: int, inner: str) -> int:
    """Like `open_folder`, component by component, for systems without openat2."""
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
        raise OSError(errno.EXDEV, "'..' is not allowed in the path")
    try:
        return os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        # With O_PATH, a symlink is reported as not being a folder.
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise


def make_folder(top: int, inner: str) -> int:
    """Like `open_folder`, but creates missing folders."""
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


def describe_os_error(error: OSError) -> str:
    return DESCRIPTIONS.get(error.errno or 0) or error.strerror or str(error)


@contextmanager
def translate_os_errors(message: str) -> Iterator[None]:
    """Translate OSError to a ToolError with the message and the reason."""
    try:
        yield
    except OSError as exc:
        raise ToolError(f"{message}: {describe_os_error(exc)}.") from None


def not_found_error(path: str, scope: Scope, pins: Pins, cwd: str) -> ToolError:
    """The error for a missing file, with similar names and, if it may help, the working directory."""
    similar = similar_names(path, scope, pins)
    message = [f"File does not exist: {path}."]
    if similar:
        message.append(f"Did you mean {' or '.join(similar)}?")
    if not similar or not is_beneath(path, cwd):
        message.append(f"Note: your current working directory is {cwd}.")
    return ToolError(" ".join(message))


def similar_names(path: str, scope: Scope, pins: Pins) -> list[str]:
    """Up to three similar names in the same folder, if it is in scope."""
    from difflib import get_close_matches

    try:
        with find(path, scope, pins) as location:
            names = list_names(location.folder)
    except (OSError, Swapped, ToolError):
        return []
    by_lower = {name.lower(): name for name in names}
    return [by_lower[name] for name in get_close_matches(location.name.lower(), by_lower, n=3)]


def list_names(folder: int) -> list[str]:
    """The names in an opened folder, up to `MOST_NAMES`."""
    from itertools import islice

    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        with os.scandir(readable) as entries:
            return [entry.name for entry in islice(entries, MOST_NAMES)]
    finally:
        os.close(readable)


KEPT_BITS = 0o1777
"""The mode bits that are preserved. As with a write, a changed program loses setuid and setgid."""


def replace_file(
    location: FileLocation, data: bytes, temp_name: str, check: Callable[[], object], mode: int | None = None
) -> os.stat_result:
    """Replace the content by `data`. `check` is called just before the rename and may raise.

    If `mode` is None, an existing file keeps its mode and a new one gets the default.
    Raises OSError, Swapped, and whatever `check` raises.
    """
    old = location.status()
    if old is not None and not stat.S_ISREG(old.st_mode):
        raise Swapped

    def check_location() -> None:
        check()
        if location.has_moved():
            raise Swapped

    with private_files.replacing(
        location.folder,
        location.name,
        temp_name=temp_name,
        mode=0o666 if old is None and mode is None else 0o600,
        sync=True,
        is_new=old is None,
        check=check_location,
    ) as descriptor:
        private_files.write_all(descriptor, data)
        if old is not None:
            # Give the new file the owner of the old one, as far as permissions allow.
            ours = os.fstat(descriptor)
            if (ours.st_uid, ours.st_gid) != (old.st_uid, old.st_gid):
                try:
                    os.fchown(descriptor, old.st_uid, old.st_gid)
                except PermissionError:
                    with suppress(PermissionError):
                        os.fchown(descriptor, -1, old.st_gid)
        new_mode = old.st_mode if mode is None and old is not None else mode
        if new_mode is not None:
            os.fchmod(descriptor, new_mode & KEPT_BITS)
        return os.fstat(descriptor)


def remove_file(location: FileLocation) -> None:
    """Raises OSError."""
    os.unlink(location.name, dir_fd=location.folder)
    private_files.sync_folder(location.folder)
